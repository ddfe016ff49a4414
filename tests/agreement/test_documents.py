"""What the documents say of the program is so: paths, links, verbs, flags, algorithms, settings."""

import re
import runpy
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from tree import MODULES, PACKAGE, PAGES, ROOT

import colonnade
from colonnade import algorithms
from colonnade.cli.application import app
from colonnade.data.settings import PartyData
from colonnade.errors import SettingsError
from colonnade.federation.sections import OF_FEDERATION, OF_PARTY_ALONE
from colonnade.meanings import settings_of
from colonnade.settings import build


def text_of(name: str) -> str:
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    return path.read_text(encoding="utf-8")


# --- ARCHITECTURE.md --------------------------------------------------------------------------------------------


def layout() -> set[str]:
    """The paths in the layout, relative to the package; a line may name several files."""
    block = text_of("ARCHITECTURE.md").split("## Layout", 1)[1].split("\n## ", 1)[0]
    named: set[str] = set()
    folders: list[tuple[int, str]] = []
    for line in block.splitlines():
        if not line.startswith("    ") or line.strip() == "src/colonnade/":
            continue
        indent = len(line) - len(line.lstrip())
        folders = [(depth, name) for depth, name in folders if depth < indent]
        above = "".join(name for _, name in folders)
        for word in line.split():
            if not re.fullmatch(r"[\w]+(/|\.py)", word):
                break  # the words that explain it begin
            named.add(above + word)
            if word.endswith("/"):
                folders.append((indent, word))
    return named


def test_the_layout_names_what_there_is() -> None:
    assert len(layout()) > 40
    assert not [path for path in sorted(layout()) if not (PACKAGE / path).exists()]


def test_what_there_is_the_layout_names() -> None:
    of_algorithms = {row.settings.__module__ for row in algorithms.ALGORITHMS.values()}  # the table names them
    files = {str(path.relative_to(PACKAGE)) for name, path in MODULES.items() if name not in of_algorithms}
    described = {name for name in files if Path(name).stem not in ("__init__", "__main__")}
    packages = {f"{Path(name).parent}/" for name in files if Path(name).name == "__init__.py"} - {"./"}
    whole = {f"{parts[0]}/" + "".join(f"{part}/" for part in parts[1:]) for parts in map(split_path, packages)}
    assert sorted({*described, *whole} - layout()) == []


def split_path(folder: str) -> list[str]:
    return folder.strip("/").split("/")


# Paths in running text, such as `runtimes/driver.py` or `docs/privacy.md`.
NAMED_PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:\.py|\.md|\.toml|/))`")
# Files of a run or of a reader, which are not in the tree.
ELSEWHERE = re.compile(r"^(runs?|site|checkpoints|journal|trace|colonnade-demo|dist|build)/|^(federation|party)\.toml$")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_paths_in_the_text_exist(page: str) -> None:
    for named in NAMED_PATH.findall(text_of(page)):
        if ELSEWHERE.search(named):
            continue
        near = (ROOT / named, PACKAGE / named, PACKAGE.parent / named)
        new = named.endswith(("signvafl.py", "signvafl.md"))  # the example that a reader writes
        assert new or any(path.exists() for path in near), f"{page} names {named}"


def test_every_folder_of_tests_is_explained() -> None:
    page = text_of("CONTRIBUTING.md")
    folders = [path for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert not [path.name for path in folders if f"`tests/{path.name}`" not in page]


# --- links ------------------------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(([^)\s]+)\)")


def heading_anchor(heading: str) -> str:
    plain = re.sub(r"[`*_]|\[|\]\([^)]*\)", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {heading_anchor(line) for line in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {link}"
        assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{page.name} links to {link}"


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


# --- the command line -------------------------------------------------------------------------------------------

COMMAND: Any = typer.main.get_command(app)
# `colonnade run …` in backticks, at the start of a line of an indented or fenced block, or after a prompt.
CALL = re.compile(r"(?:`|^ {4,}(?:\$ )?|^(?:\$ )?)colonnade((?: [^`\n#]*)?)", re.MULTILINE)


def calls(page: Path) -> list[list[str]]:
    """The words after `colonnade` of every call on a page; a backslash goes on on the next line."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    return [
        words for found in CALL.findall(text) if (words := found.split()) and re.fullmatch(r"[a-z]+|--\w+", words[0])
    ]


def verbs(command: Any, above: str = "") -> dict[str, Any]:
    """Every verb, `data list` for one under another, with its command."""
    found: dict[str, Any] = {}
    for name, inner in getattr(command, "commands", {}).items():
        whole = f"{above} {name}".strip()
        found |= verbs(inner, whole) if hasattr(inner, "commands") else {whole: inner}
    return found


def test_there_are_verbs_and_calls_of_them() -> None:
    assert {"run", "demo", "report", "compare", "data list"} <= set(verbs(COMMAND))
    assert ["run", "federation.toml"] in calls(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_calls_in_documents_are_calls_that_exist(page: Path) -> None:
    known = verbs(COMMAND)
    for words in calls(page):
        if words[0].startswith("--"):
            known_here = {"--help", *(option for parameter in COMMAND.params for option in parameter.opts)}
            assert words[0] in known_here, f"{page.name}: colonnade {' '.join(words)}"
            continue
        verb = next((name for name in (" ".join(words[:2]), words[0]) if name in known), None)
        group = words[0] in getattr(COMMAND, "commands", {}) and len(words) == 1  # `colonnade data` on its own
        assert verb or group, f"{page.name}: colonnade {' '.join(words)}"
        if verb is None:
            continue
        options = {
            option for parameter in known[verb].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words:
            flag = word.split("=")[0].strip("[](),.;:")
            assert not flag.startswith("--") or flag in {*options, "--help"}, f"{page.name}: {verb} has no {flag}"


def test_every_verb_is_documented() -> None:
    written = {" ".join(words) for page in PAGES for words in calls(page)}
    called = {verb for verb in verbs(COMMAND) for line in written if line == verb or line.startswith(f"{verb} ")}
    assert sorted(set(verbs(COMMAND)) - called) == []


# --- algorithms and settings ------------------------------------------------------------------------------------


def names(settings: Any) -> list[str]:
    return [field.name for field in fields(settings)]


def unnamed(settings: Any, page: str) -> list[str]:
    """The settings that a page does not name in code: `wait_for`, `algorithm.wait_for`, wait_for = 2."""
    code = " ".join(re.findall(r"`[^`\n]+`|^```.*?^```|^ {4,}.*$", page, re.MULTILINE | re.DOTALL))
    return [name for name in names(settings) if not re.search(rf"(?<![\w-]){name}(?![\w-])", code)]


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_an_algorithm_has_a_page_that_names_its_settings(name: str) -> None:
    assert unnamed(algorithms.ALGORITHMS[name].settings, text_of(f"docs/algorithms/{name}.md")) == []


def test_every_page_of_an_algorithm_has_its_algorithm() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "algorithms").glob("*.md")} - {"index"}
    assert pages == set(algorithms.ALGORITHMS)


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_an_algorithms_page_cites_its_paper(name: str) -> None:
    page, paper = " ".join(text_of(f"docs/algorithms/{name}.md").split()), algorithms.ALGORITHMS[name].paper
    assert paper is None or (paper.title in page and paper.where in page)


def test_what_is_written_from_the_table_is_not_stale() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "algorithm_tables.py"))
    assert tool["stale"]() == {}, "run `make tables`"
    row = r"^\| \[`vafl`\]\(docs/algorithms/vafl\.md\) \|"
    assert re.search(row, text_of("README.md"), re.MULTILINE)


def test_the_page_of_commands_is_what_their_help_says() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "command_reference.py"))
    assert not tool["stale"](), "run `make tables`"
    page = text_of("docs/reference/commands.md")
    assert "## colonnade data list" in page and "`--resume`" in page


def test_every_public_name_is_on_the_page_for_python() -> None:
    """Those of the algorithms are on their own pages."""
    shown = re.findall(r"^::: colonnade\.(\w+)$", text_of("docs/reference/python.md"), re.MULTILINE)
    of_algorithms = {row.settings.__name__ for row in algorithms.ALGORITHMS.values()}
    assert sorted(shown) == sorted({*colonnade.__all__, "testing"} - of_algorithms)


def test_the_tables_of_settings_are_what_is_declared() -> None:
    """Every setting of every section, with its default; the tool refuses a setting without a sentence."""
    tool = runpy.run_path(str(ROOT / "tools" / "settings_tables.py"))
    assert tool["stale"]() == []
    page, known = text_of("docs/settings.md"), tool["declaring"]()
    assert tool["written"](page.replace("| `epochs` | 20.0 |", "| `epochs` | 19.0 |"), known) == page
    assert "Training" in tool["without_table"](page.replace("<!-- settings: Training -->", ""), known)
    assert "| `max_delay` | 0; `fdml`: 1,000 | exchanges |" in page and "| `least_curvature` | 0.0001 |" in page


def test_a_setting_without_a_sentence_is_refused() -> None:
    @dataclass(frozen=True)
    class Untold:
        told: int = 1
        """(rows) of a batch"""
        untold: int = 2

    with pytest.raises(LookupError, match=r"Untold\.untold has no sentence"):
        settings_of(Untold)


# --- blocks of settings -----------------------------------------------------------------------------------------

TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def wrong_settings(text: str) -> list[str]:
    """What is refused of the blocks of settings on a page: names, words and values, as in a federation.toml."""
    found = []
    for block in TOML.findall(text):
        for name, values in tomllib.loads(block).items():
            kind = {**OF_FEDERATION, **OF_PARTY_ALONE}.get(name)
            kind = PartyData if name == "data" and "file" in values else kind  # of a party.toml
            if name == "algorithm" and "name" in values:
                kind = algorithms.find(values.pop("name")).settings
            try:
                if kind is not None:
                    build(kind, values, name)
            except SettingsError as error:
                found.append(str(error))
    return found


def test_settings_in_documents_are_taken() -> None:
    assert wrong_settings("```toml\n[training]\nepoch = 3\n```") != []
    assert {page.name: wrong for page in PAGES if (wrong := wrong_settings(page.read_text(encoding="utf-8")))} == {}
