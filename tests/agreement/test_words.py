"""Every word that a public class is made of is explained in GLOSSARY.md, or is everybody's word.

A new word in a class name is a word that a newcomer must learn: define it, or show here that it needs no definition.
"""

import ast
import re

from tree import MODULES, ROOT, is_in, nodes_of

from colonnade.algorithms import ALGORITHMS

# English, Python, statistics and machine learning, as their readers know them.
_ORDINARY = """
abandoned account acknowledged actor advice after algorithm amount and answers array audited autograd begin bias built
call candidate centralised certificate change child chosen claim class classifier clipped clock code
coefficient colonnade combined command comparison completed completion conjugate count crash credentials
crossing csv curious curve curved
damped data dataset date delay dense descent digest door doorkeeper due embedder end error evaluated exit
exact expected exposed facts fake federated field file files finder finish fired fixed flat forgotten form
fractions full function gathered gaussian gradient greeting group hand hashed held hello hidden hot id ids inferred
interrupt interrupted
introduced inversion issued job joined joint kept key keys keywords killed kind known last layer lbfgs left
letter life limits line linear loss lost markup matched matching measured measurement memory metric missed model
mortal neighbours named network newton noise noised nonces number observe on one only open operations optimiser
options ordinal outer own owner pace pair pairwise paper part parties party pass passes patience periodic perturbation
perturbed perturbing phase picture placed plot point pooled port prediction prepared presence price private process
processes progress protocol quasi raw ray reader received reconstruction recorder recording refreshed refused
regressor remembering remembers replayed report reports request requests retry return returned runnable scheme
scripted sealing search secret section send set settings settled shared sheet simulate simulated simulation size
small smoothness socket span sparse spend spent split square stacked started state step stop stream suggestion
summary term text time timer tiny to told totals traced traffic training transformer turned update verb verbs
api busy cache found grpc handler http image log mlflow pixels problem scorer single tail tls unreachable watching whole
bar notebook plain terminal
taken tensorboard vertical waiting wandb warm weighted weights welcome wire words work writer
"""
ORDINARY = set(_ORDINARY.split())
NAMES_OF_ALGORITHMS = {part for name in ALGORITHMS for part in name.split("-")}
ABOUT_SOME = ("colonnade.benchmarks", "colonnade.reproductions")


def glossary_words() -> set[str]:
    terms = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "GLOSSARY.md").read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"[a-z]+", " ".join(terms).lower()))


KNOWN = ORDINARY | NAMES_OF_ALGORITHMS | {"sqn"} | glossary_words()


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z][a-z0-9]*", name)]


def is_known(word: str) -> bool:
    """Also in the plural, and of a term in the plural the singular."""
    return word in KNOWN or f"{word}s" in KNOWN or (word.endswith("s") and word[:-1] in KNOWN) or word[:-2] in KNOWN


def test_there_is_something_to_look_at() -> None:
    assert {"station", "envelope", "embedding"} <= glossary_words()
    assert words_of("EmbeddingTable") == ["embedding", "table"]
    assert is_known("station") and not is_known("nursery")


def test_every_word_of_a_public_class_is_explained() -> None:
    classes = [
        (module, node.name)
        for module, path in MODULES.items()
        if not is_in(module, ABOUT_SOME)
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    unknown = {
        (module, name): strange
        for module, name in classes
        if (strange := [word for word in words_of(name) if not is_known(word)])
    }
    assert unknown == {}, "explain these words in GLOSSARY.md, or choose others"
