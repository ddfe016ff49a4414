"""What must not grow back: wide calls, long functions, long files, of tests and tools too, and classes of many methods.

Every exception is named with its reason. One that is no longer needed fails, so that the lists only get shorter.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

import pytest
from tree import BESIDE, MODULES, parsed

from colonnade import train
from colonnade.launch.run_options import RunKeywords, RunOptions

MOST_PARAMETERS = 10
MOST_FUNCTION_LINES = 60
MOST_FILE_LINES = 600
MOST_TRAIN_LINES = 40  # fewer than these, its docstring not counted

WIDE = {
    # scikit-learn reads an estimator's parameters from this signature, so each has to be there by name.
    "colonnade.estimators._VerticalEstimator.__init__",
    # Compiled loops take arrays and numbers: an object would have to be unpacked for every call.
    "colonnade.models.linear_rows.dense_window",
    "colonnade.models.linear_rows.sparse_window",
}
MOST_METHODS = 40
MANY_METHODS = {
    # A party in real time and a block of weights: all that a carrier, or a party, may ask of one, mostly in two lines.
    "colonnade.runtimes.station.Station",
    "colonnade.models.linear.LinearBlock",
    # What every schedule of a linear federation shares.
    "colonnade.algorithms.linear_models.parts.linear_party.LinearParty",
}
LONG: set[str] = set()
LARGE: set[str] = set()

Function = ast.FunctionDef | ast.AsyncFunctionDef


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Its own, one level down: no function is defined within an expression."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        found = getattr(node, block, ())
        yield from found if isinstance(found, list) else ()


def functions(node: ast.AST, within: str) -> Iterator[tuple[str, Function]]:
    """Every function of a module, nested ones too, under its whole name."""
    for child in statements_in(node):
        inside = within
        if isinstance(child, Function | ast.ClassDef):
            inside = f"{within}.{child.name}"
        if isinstance(child, Function):
            yield inside, child
        yield from functions(child, inside)


@cache
def all_functions() -> list[tuple[str, Function]]:
    """Not at the top: every process that collects tests would parse the whole package for it."""
    return [found for module, path in (MODULES | BESIDE).items() for found in functions(parsed(path), module)]


def parameters(function: Function) -> list[str]:
    given = function.args
    several = [one for one in (given.vararg, given.kwarg) if one is not None]
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several)]
    return [name for name in named if name not in ("self", "cls")]


def is_typer_command(function: Function) -> bool:
    """A verb: its parameters are the options of a command line, each declared where it is given."""
    said = [ast.unparse(one.annotation) for one in function.args.args if one.annotation is not None]
    return any("typer.Option" in words or "typer.Argument" in words for words in said)


def lines_of(function: Function) -> int:
    """How long a function is, without its docstring, and without the declared options of a Typer command."""
    first = function.body[0]
    start = first.lineno if is_typer_command(function) else function.lineno
    whole = (function.end_lineno or function.lineno) - start + 1
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        whole -= (first.end_lineno or first.lineno) - first.lineno + 1
    return whole


def test_there_is_something_to_measure() -> None:
    names = [name for name, _ in all_functions()]
    assert "colonnade.launch.experiment.train" in names
    assert "colonnade.runtimes.station.Station.__init__" in names
    assert "tests.agreement.test_sizes.test_there_is_something_to_measure" in names
    assert any(name.startswith("tools.") for name in names) and any(name.startswith("examples.") for name in names)
    assert [
        name for name, function in all_functions() if is_typer_command(function) and name == "colonnade.cli.run.run"
    ]


def test_no_call_is_wide() -> None:
    """Typer commands are exempt: they are command lines, which may have many options."""
    wide = {
        name for name, one in all_functions() if len(parameters(one)) > MOST_PARAMETERS and not is_typer_command(one)
    }
    assert wide == WIDE


def test_no_function_is_long() -> None:
    long = {name for name, one in all_functions() if lines_of(one) > MOST_FUNCTION_LINES}
    assert long == LONG


def test_no_class_has_many_methods() -> None:
    methods = Counter(name.rpartition(".")[0] for name, _ in all_functions())
    classes = {
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    }
    assert {name for name in classes if methods[name] > MOST_METHODS} == MANY_METHODS


def test_no_file_is_large() -> None:
    sizes = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in (MODULES | BESIDE).items()}
    assert {module for module, size in sizes.items() if size > MOST_FILE_LINES} == LARGE


# --- train ------------------------------------------------------------------------------------------------------


def test_train_is_short() -> None:
    (whole,) = (one for name, one in all_functions() if name == "colonnade.launch.experiment.train")
    assert lines_of(whole) < MOST_TRAIN_LINES


def test_the_keywords_of_train_are_the_fields_of_run_options() -> None:
    described = {field.name: field.type for field in fields(RunOptions)}
    assert RunKeywords.__annotations__ == described
    assert all(f"- `{name}`:" in (train.__doc__ or "") for name in described)


def test_a_keyword_that_train_does_not_have_is_named() -> None:
    with pytest.raises(TypeError, match=r"train\(\) got an unexpected keyword argument 'sead'"):
        train(None, sead=1)  # type: ignore[call-arg, arg-type]
