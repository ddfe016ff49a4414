"""The tree as the agreement tests see it: modules of the package, who imports whom, pages of documentation."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "colonnade"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def module_name(path: Path) -> str:
    """`colonnade.data.sources` for its file; a package for its __init__.py."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


FOLDERS = ("tests", "tools", "examples")
BESIDE = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}
"""What is no part of the package: `tests.wire.test_codec` for its file."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a file, its tree walked once for all who look at it."""
    return tuple(ast.walk(parsed(path)))


@cache
def imports_of(module: str) -> frozenset[str]:
    """Everything a module imports, at its top or inside a function; submodules by their own name."""
    found: set[str] = set()
    for node in nodes_of(MODULES[module]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively; write the whole name"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
    return frozenset(found)


@cache
def reached_from(module: str) -> frozenset[str]:
    """All modules of ours that importing this one needs, itself not counted."""
    reached: set[str] = set()
    left = [module]
    while left:
        for name in imports_of(left.pop()):
            if name in MODULES and name not in reached:
                reached.add(name)
                left.append(name)
    return frozenset(reached - {module})


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@cache
def repository_files() -> list[Path]:
    """Every file that is, or would be, in the repository; nothing if this is no checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
