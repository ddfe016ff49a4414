"""Outside `algorithms/` no algorithm is named: whoever needs to know something of one asks its row.

Reproductions, benchmarks and the demo are about certain algorithms; the package's exports and the names in help texts
are written from the table.
"""

import ast
import re
from collections.abc import Iterable

import pytest
from tree import MODULES, imports_of, is_in, nodes_of

from colonnade.algorithms import ALGORITHMS

ABOUT_SOME = (
    *("colonnade.algorithms", "colonnade.reproductions", "colonnade.benchmarks"),
    *("colonnade.cli.demo", "colonnade.cli.names"),
)
ELSEWHERE = [name for name in MODULES if name != "colonnade" and not is_in(name, ABOUT_SOME)]
SETTINGS = {row.settings.__name__ for row in ALGORITHMS.values()}
ASKED_FOR = {*SETTINGS, "DirectionSettings", "directions_used"}
FILES = {row.settings.__module__ for row in ALGORITHMS.values()}
# Also words of their own: columns are split, and `split` is the name of a setting of [data].
ORDINARY = {"split", "zoo"}
NAMED = re.compile(rf"(?<![\w-])({'|'.join(sorted(set(ALGORITHMS) - ORDINARY, key=len, reverse=True))})(?![\w-])")


def docstrings(nodes: Iterable[ast.AST]) -> set[int]:
    """The nodes of a tree's docstrings, by identity: their examples are those of a user, who names an algorithm."""
    found = set()
    for node in nodes:
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(id(body[0].value))
    return found


def test_there_is_something_to_look_at() -> None:
    assert {"colonnade.costs.noise", "colonnade.trials.audit", "colonnade.cli.attack"} <= set(ELSEWHERE)
    assert NAMED.search("Choose another algorithm, such as vafl.") and NAMED.search("zoo-sync")
    assert not NAMED.search("the VAFL paper") and not NAMED.search("centralised_accuracy")


@pytest.mark.parametrize("module", ELSEWHERE)
def test_no_file_of_an_algorithm_is_imported(module: str) -> None:
    assert not imports_of(module) & FILES


@pytest.mark.parametrize("module", ELSEWHERE)
def test_no_settings_of_an_algorithm_are_asked_for(module: str) -> None:
    for node in nodes_of(MODULES[module]):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        assert name not in ASKED_FOR, f"line {node.lineno}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ELSEWHERE)
def test_no_string_names_an_algorithm(module: str) -> None:
    nodes = nodes_of(MODULES[module])
    skipped = docstrings(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            found = NAMED.search(node.value)
            assert found is None, f"line {node.lineno} names {found[1]}"
            ordinary = node.value in ORDINARY and not is_in(module, ("colonnade.data",))
            assert not ordinary, f"line {node.lineno} names {node.value}"


@pytest.mark.parametrize("module", ELSEWHERE)
def test_no_comment_and_no_docstring_quotes_an_algorithm(module: str) -> None:
    text = MODULES[module].read_text(encoding="utf-8")
    assert not [name for name in re.findall(r"`([\w-]+)`", text) if name in {*ALGORITHMS, *SETTINGS} - ORDINARY]
