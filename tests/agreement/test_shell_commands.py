"""Every shell command of the documents: it is taken by the command line, its settings are settings, and it is run.

Runs are short, on small tables. What is not run here stands in NOT_RUN, with who runs it or why nobody does.
"""

import re
import runpy
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import colonnade, draw_no_more
from shell_commands import calls, calls_in
from tree import PAGES, ROOT

from colonnade.cli.application import command
from colonnade.errors import SettingsError
from colonnade.federation.file import _apply, parse_federation

TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = {
    page: [words[1:] for words in calls(page) if words[0] == "colonnade"]
    for page in PAGES
    if page.stem not in ("CHANGELOG", "commands")
}
OTHERS = {" ".join(words[:2]) for page in COMMANDS for words in calls(page) if words[0] != "colonnade"}
NOT_RUN = {
    # commands of Colonnade, as `colonnade` is followed by them
    r"reproduce (?!list).*": "minutes to hours; tests/reproductions runs each of them on a few rows",
    r"run mnist\.toml .*|data get mnist": "downloads; its settings are checked here",
    r"compare (slow|runs)/split .*": "of runs on MNIST",
    r"attack (?!model-completion f|embedding-inversion f).*": "minutes; tests/attacks and tests/cli run small ones",
    r"audit .*": "hundreds of trainings; tests/cli/test_audit_verb.py has few",
    r"(align|join|predict|explain|serve|leave) federation\.toml --party .*": (
        "every organisation's, at the same time; in tests/network, the page of three organisations word for word"
    ),
    r"serve runs/\S+ --keys keys\.txt": "until Ctrl-C; tests/serving",
    r"watch .*|run federation\.toml --watch": "until Ctrl-C; tests/watching",
    r"run federation\.toml --runtime ray .*": "needs a cluster; tests/runtimes/test_ray.py begins one",
    r"run federation\.toml --runtime processes": "processes of their own; tests/runtimes/test_processes.py",
    r"export runs/\S+ --to onnx .*": "loads what takes seconds; tests/exports",
    r"run federation\.toml --device (cuda|party1=cuda).*": "needs a GPU",
    r"run federation\.toml --track .*": "tests/tracking tells the programs themselves",
    r"sweep .*": "twelve processes; tests/cli/test_sweep_verb.py",
    r"tune .*": "dozens of trainings; tests/cli/test_tune_verb.py",
    r"plan .*": "measures this machine; tests/cli/test_plan_verb.py",
    r"card runs/loans-bank .*|card .*--verify .*": "of a network run; tests/launch/test_card.py",
    r"--install-completion": "writes into the shell's own files",
    # other programs
    r"make (demo|test)": "all that there is; `make test` is what CI runs",
    r"pip install": "what is installed is there already",
    r"python examples/.*": "test_examples.py and tests/network/test_three_organisations.py",
    r"(source|cd|ln|install|mv|python3\.11) .*": "the reader's own shell, and files",
    r"curl .*": "needs a server; tests/serving and tests/network ask theirs",
    r"jupyter .*": "test_examples.py runs the notebook in a kernel",
    r"(ray|kubectl|helm) .*": "needs a cluster; `make deployment` renders the chart",
}


def reasons(said: str) -> list[str]:
    return [pattern for pattern in NOT_RUN if re.fullmatch(pattern, said)]


def settings_of_page(page: Path) -> dict[str, dict[str, Any]]:
    """The federations that a page shows; one that it does not show is the tutorial's."""
    shown = [tomllib.loads(block) for block in TOML.findall(page.read_text(encoding="utf-8"))]
    whole = [values for values in shown if "data" in values and "file" not in values["data"]]
    return {"page": whole[0]} if whole else {}


def test_there_are_commands_and_none_is_missed() -> None:
    found = [words for page in COMMANDS for words in COMMANDS[page]]
    assert len(found) > 150
    written = sum(
        len(re.findall(r"^ {4,}colonnade \w|^\w*\$ colonnade \w", page.read_text(encoding="utf-8"), re.MULTILINE))
        for page in COMMANDS
    )
    assert len(found) >= written
    loop = "    for seed in 0 1; do colonnade run f.toml --out runs/$seed; done\n"
    assert calls_in(loop, "a page") == [("colonnade", "run", "f.toml", "--out", f"runs/{seed}") for seed in (0, 1)]


def taken(words: tuple[str, ...]) -> dict[str, Any]:
    """What the command line makes of the words, as far as it goes without running anything."""
    verb: Any = command()
    context = verb.context_class(verb, info_name="colonnade", **verb.context_settings)  # verbs keep its flags for help
    rest = list(words)
    while hasattr(verb, "commands"):
        if rest[0].startswith("--"):
            assert rest[0] in [option for parameter in verb.params for option in parameter.opts], words
            return {}
        name = rest.pop(0)
        verb = verb.commands[name]
        if not hasattr(verb, "commands"):
            context = verb.make_context(name, rest, parent=context)
    return dict(context.params)


@pytest.mark.parametrize("page", [page for page in COMMANDS if COMMANDS[page]], ids=lambda page: page.stem)
def test_commands_in_documents_are_taken(page: Path) -> None:
    """Verbs, options and values, by the command line itself; changes of settings, on the federation of the page."""
    for words in COMMANDS[page]:
        given = taken(words)
        values = {"data": {"set": "digits", "parties": 8}, **settings_of_page(page).get("page", {})}
        for change in given.get("changes") or []:
            _apply(values, change)
        parse_federation(values)


def test_what_is_wrong_is_not_taken() -> None:
    for wrong in ("run", "run f.toml --epochs 3", "run f.toml --threads many", "attack label-inference --epochs x"):
        with pytest.raises(Exception, match=r"Missing|No such option|not a valid|unable to parse"):
            taken(tuple(wrong.split()))
    with pytest.raises(KeyError):
        taken(("train", "f.toml"))
    values: dict[str, Any] = {"data": {"set": "digits"}}
    _apply(values, "training.epoch=3")
    with pytest.raises(SettingsError):
        parse_federation(values)


def test_what_is_not_run_has_a_reason_and_no_reason_is_idle() -> None:
    every = {" ".join(words) for page in COMMANDS for words in COMMANDS[page]} | OTHERS
    assert [said for said in sorted(OTHERS) if len(reasons(said)) != 1] == []
    assert [said for said in sorted(every) if len(reasons(said)) > 1] == []
    named = re.findall(r"tests/[\w/.]*\w|test_\w+\.py", " ".join(NOT_RUN.values()))
    folders = (ROOT, Path(__file__).parent)
    assert [one for one in named if not any((folder / one).exists() for folder in folders)] == []
    assert [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, said) for said in every)] == []


# --- what is run ------------------------------------------------------------------------------------------------

SHORT = ("--set", "training.epochs=1")
MORE = {"run": SHORT, "attack": ("--trials", "1", *SHORT)}
TRACED = "NAME"
RUNS = (TRACED, "loans-vafl-0", "loans-split-0", "loans-fcg-0")
ALIKE = ("ONE", "OTHER", "long", "current", "credit-vafl-0")
"""As pages call a run of their reader's."""


def to_run(page: Path) -> list[tuple[str, ...]]:
    return [words for words in COMMANDS[page] if not reasons(" ".join(words))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's files with few customers, and short runs of them under the names that pages use."""
    folder = tmp_path_factory.mktemp("world")
    tutorial = runpy.run_path(str(ROOT / "examples" / "three_parties_csv.py"))
    tutorial["main"](folder / "loans", customers=600)
    with pytest.MonkeyPatch.context() as monkeypatch:
        draw_no_more(monkeypatch)
        for name in RUNS:
            change = f"algorithm.name={'vafl' if name == TRACED else name.split('-')[1]}"
            options = ("--no-report", "--out", folder / "runs" / name, "--set", change, *SHORT)
            more = ("--trace",) if name == TRACED else ()
            assert colonnade("run", folder / "loans" / "federation.toml", *options, *more).code == 0
    for name in ALIKE:
        shutil.copytree(folder / "runs" / RUNS[1], folder / "runs" / name)
    shutil.copytree(folder / "runs" / RUNS[1] / "model" / "bank", folder / "bank-model")
    shutil.copytree(folder / "loans", folder, dirs_exist_ok=True)
    shutil.copy(folder / "federation.toml", folder / "f.toml")
    (page,) = [page for page in COMMANDS if page.stem == "which-algorithm"]
    (digits,) = TOML.findall(page.read_text(encoding="utf-8"))
    (folder / "digits.toml").write_text(digits.replace('set = "digits"', 'set = "digits"\nmax_rows = 200'))
    shop = pd.read_csv(folder / "shop.csv")
    for name in ("november", "shop-november"):
        shop.to_parquet(folder / f"{name}.parquet")
    (folder / "ids.txt").write_text("\n".join(shop["customer"][:20]))
    return folder


@pytest.mark.parametrize("page", [page for page in COMMANDS if to_run(page)], ids=lambda page: page.stem)
def test_the_documents_commands_run(page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in one folder."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    draw_no_more(monkeypatch)
    for words in to_run(page):
        given = taken(words)
        more = () if given.get("resume") else MORE.get(words[0], ())
        more += ("--set", "data.validation=0.2") if given.get("accept_if_better") else ()
        if words[0] == "run" and more:
            shutil.rmtree(made_by(words, given), ignore_errors=True)
        answer = colonnade(*words, *more)
        assert answer.code == 0, f"{page.name}: colonnade {shlex.join(words)}\n{answer.err}"


def made_by(words: tuple[str, ...], given: dict[str, Any]) -> Path:
    """Where a run writes, of which an earlier one must not stand in the way."""
    algorithm = next((one.split("=")[1] for one in words if one.startswith("algorithm.name=")), "vafl")
    return given["out"] or Path(f"runs/loans-{algorithm}-0")
