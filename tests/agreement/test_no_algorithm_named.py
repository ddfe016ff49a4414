"""Outside `algorithms/` no algorithm is named: whoever needs to know something of one asks its row.

Reproductions, benchmarks and the demo are about certain algorithms; the package's exports and the names in help texts
are written from the table.
"""

import ast
import re
from collections.abc import Iterable

from tree import MODULES, PACKAGE, imports_of, is_in, nodes_of

from colonnade.algorithms import ALGORITHMS

ABOUT_SOME = (
    *("colonnade.algorithms", "colonnade.reproductions", "colonnade.benchmarks"),
    *("colonnade.cli.demo", "colonnade.cli.names"),
)
ELSEWHERE = [name for name in MODULES if name != "colonnade" and not is_in(name, ABOUT_SOME)]
SETTINGS = {row.settings.__name__ for row in ALGORITHMS.values()}
SHARED = {base.__name__ for row in ALGORITHMS.values() for base in row.settings.__mro__[1:-1]} - SETTINGS
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
    assert named_in("colonnade.cli.run", "such as vafl") == "vafl" and named_in("colonnade.cli.run", "split") == "split"
    assert named_in("colonnade.data.loading", "split") is None
    assert named_by("vafl_noise") and named_by("is_zoo_sync") and not named_by("cascade")
    assert identifiers(ast.walk(ast.parse("def one(two): three.four = five(six=seven)"))) == {
        *("one", "two", "three", "four", "five", "six", "seven")
    }


def identifiers(nodes: Iterable[ast.AST]) -> set[str]:
    """Of functions, classes, parameters, variables and attributes."""
    found = set()
    for node in nodes:
        for name in ("name", "id", "attr", "arg"):
            if isinstance(said := getattr(node, name, None), str) and not isinstance(node, ast.alias):
                found.add(said)
    return found


def named_by(identifier: str) -> bool:
    return any(f"_{name.replace('-', '_')}_" in f"_{identifier.lower()}_" for name in set(ALGORITHMS) - ORDINARY)


def named_in(module: str, value: str) -> str | None:
    """The algorithm that a string of a module names."""
    if found := NAMED.search(value):
        return found[1]
    return value if value in ORDINARY and not is_in(module, ("colonnade.data",)) else None


def test_no_file_of_an_algorithm_is_imported() -> None:
    assert {module: found for module in ELSEWHERE if (found := imports_of(module) & FILES)} == {}


def test_no_settings_of_an_algorithm_are_asked_for() -> None:
    asked_for = [
        (module, node.lineno, name)
        for module in ELSEWHERE
        for node in nodes_of(MODULES[module])
        if isinstance(node, ast.Name | ast.Attribute)
        and (name := node.id if isinstance(node, ast.Name) else node.attr) in ASKED_FOR
    ]
    assert asked_for == []


def test_no_settings_that_several_share_are_imported() -> None:
    """Such as those of a schedule. An audit alone sets a schedule back to its defaults."""
    imported = [
        (module, alias.name)
        for module in ELSEWHERE
        for node in nodes_of(MODULES[module])
        if isinstance(node, ast.ImportFrom) and is_in(node.module or "", ("colonnade.algorithms",))
        for alias in node.names
        if alias.name in SHARED
    ]
    assert "Linear" in SHARED and imported == [("colonnade.trials.own_audit", "Asynchronous")]


def test_no_string_names_an_algorithm() -> None:
    named = []
    for module in ELSEWHERE:
        nodes = nodes_of(MODULES[module])
        skipped = docstrings(nodes)
        named += [
            (module, node.lineno, found)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped
            if (found := named_in(module, node.value)) is not None
        ]
    assert named == []


def test_no_identifier_names_an_algorithm() -> None:
    named = {
        module: found
        for module in ELSEWHERE
        if (found := {one for one in identifiers(nodes_of(MODULES[module])) if named_by(one)})
    }
    assert named == {}


def test_no_file_beside_the_code_names_an_algorithm() -> None:
    """Pages and their scripts. What reproductions have recorded is of certain algorithms."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix in (".js", ".css", ".html", ".svg")]
    assert files
    assert [path.name for path in files if NAMED.search(path.read_text(encoding="utf-8"))] == []


def test_no_comment_and_no_docstring_quotes_an_algorithm() -> None:
    names = {*ALGORITHMS, *SETTINGS} - ORDINARY
    quoted = {
        module: found
        for module in ELSEWHERE
        if (found := names.intersection(re.findall(r"`([\w-]+)`", MODULES[module].read_text(encoding="utf-8"))))
    }
    assert quoted == {}
