"""What the package says of itself is true: names, docstrings, examples in docstrings, versions, words."""

import ast
import doctest
import importlib
import re
import tomllib
from dataclasses import replace
from importlib import metadata

import pytest
from tree import MODULES, PACKAGE, ROOT, nodes_of, parsed, repository_files

import colonnade
from colonnade import algorithms

IMPORTABLE = [name for name in MODULES if not name.endswith("__main__")]  # that one is the command itself
WITH_EXAMPLES = [name for name in IMPORTABLE if ">>> " in MODULES[name].read_text(encoding="utf-8")]


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(set(colonnade.__all__)) == colonnade.__all__
    for name in colonnade.__all__:
        assert (getattr(colonnade, name).__doc__ or "").strip(), name


def test_every_name_on_the_page_for_python_has_an_example() -> None:
    """Which runs, by the test of examples below. The settings of algorithms are described on the algorithms' pages."""
    of_algorithms = {row.settings.__name__ for row in algorithms.ALGORITHMS.values()}
    names = [name for name in colonnade.__all__ if name not in of_algorithms]
    assert [name for name in names if ">>> " not in (getattr(colonnade, name).__doc__ or "")] == []


def test_everything_imported_for_the_public_is_public_and_comes_from_where_types_say() -> None:
    imported = {
        alias.name: node.module
        for node in nodes_of(PACKAGE / "__init__.py")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("colonnade")
        for alias in node.names
    }
    settings = {row.settings.__name__: row.settings.__module__ for row in algorithms.ALGORITHMS.values()}
    assert imported == {**colonnade._HOMES, **settings}
    assert sorted(imported) == colonnade.__all__
    assert not set(settings) & set(colonnade._HOMES)


def test_the_version_is_written_once_and_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert colonnade.__version__ == metadata.version("colonnade") == project["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(project['version'])}\b", changes, re.MULTILINE)


def test_torch_is_pinned_to_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.fullmatch(r"torch==\d+\.\d+\.\d+", line)]
    assert len([line for line in lines if re.match(r"torch\b", line)]) == 1


def test_every_file_opens_with_its_promise() -> None:
    trees = {module: parsed(path) for module, path in MODULES.items()}
    # An empty __init__.py promises nothing.
    promises = {module: ast.get_docstring(tree) or "" for module, tree in trees.items() if tree.body}
    assert {module for module, promise in promises.items() if not 1 <= len(promise.splitlines()) <= 20} == set()


def test_every_module_can_be_imported() -> None:
    for module in IMPORTABLE:
        importlib.import_module(module)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings_run(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert failed == 0 and tried > 0


def test_there_are_examples_in_docstrings() -> None:
    modules = [importlib.import_module(name) for name in ("colonnade.launch.experiment", "colonnade.errors")]
    assert all(any(test.examples for test in doctest.DocTestFinder().find(module)) for module in modules)


# --- algorithms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_an_algorithm_is_written_where_its_name_says(name: str) -> None:
    row = algorithms.ALGORITHMS[name]
    assert (row.name, algorithms.name_of(row.settings())) == (name, name)
    room = "linear_models" if row.family is algorithms.Family.LINEAR else "split_models"
    assert row.settings.__module__ == f"colonnade.algorithms.{room}.{name.replace('-', '_')}"
    assert row.summary and not row.summary.endswith(".")


@pytest.mark.parametrize("name", algorithms.ALGORITHMS)
def test_an_algorithms_file_declares_its_row_and_cites_its_paper(name: str) -> None:
    row = algorithms.ALGORITHMS[name]
    module = importlib.import_module(row.settings.__module__)
    assert module.ALGORITHM is row
    promise = " ".join((module.__doc__ or "").split())
    if row.paper is not None:
        assert row.paper.title in promise and row.paper.where in promise


@pytest.mark.parametrize("family", algorithms.Family)
def test_one_row_of_a_family_at_most_is_to_begin_with(family: algorithms.Family) -> None:
    marked = algorithms.which(lambda row: row.family is family and row.to_begin_with)
    assert len(marked) == (0 if family is algorithms.Family.ALONE else 1)


def test_a_row_that_contradicts_itself_is_refused() -> None:
    row = algorithms.find(algorithms.DEFAULT)
    with pytest.raises(ValueError, match="is LINEAR: give linear_party"):
        replace(row, family=algorithms.Family.LINEAR)
    with pytest.raises(ValueError, match="conversation is missing"):
        replace(row, conversation=None)
    with pytest.raises(ValueError, match="Where was 'A Title' published"):
        algorithms.Paper("A. Author", "A Title", 2020)


def test_every_algorithm_file_is_in_the_table() -> None:
    files = {path.stem for path in (PACKAGE / "algorithms").glob("*_models/*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in algorithms.ALGORITHMS}


# --- words ------------------------------------------------------------------------------------------------------

VAGUE_FILES = {"old", "new", "util", "utils", "helper", "helpers", "misc", "common", "stuff", "manager", "impl"}
VAGUE_CLASSES = re.compile(r"(Manager|Helper|Utils?|Base|Impl|Wrapper|Factory)$|^(Base|Abstract)[A-Z]")


def test_names_say_what_a_thing_is() -> None:
    assert [module for module in MODULES if VAGUE_FILES & set(re.split(r"[._]", module))] == []
    classes = [
        (module, node.name)
        for module, path in MODULES.items()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    ]
    assert [(module, name) for module, name in classes if VAGUE_CLASSES.search(name)] == []


def test_no_test_is_vague_either() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert not VAGUE_FILES & set(path.stem.split("_")), path.name


def test_test_modules_have_names_of_their_own() -> None:
    # There are no packages in tests/, so two files of one name would be one module.
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


# Absolute paths of somebody's machine, and places where it keeps things.
PRIVATE_PLACES = re.compile(r"(?<![\w.-])/(root|work|home|Users)/\w|shared/(seeds)\b|\bopt/(pypi)\b")


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    files = repository_files()
    if not files:
        pytest.skip("not a git checkout")
    for path in files:
        if b"\0" in (content := path.read_bytes()):
            continue  # an image
        found = PRIVATE_PLACES.search(content.decode("utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"
