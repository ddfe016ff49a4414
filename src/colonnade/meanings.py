"""What every setting means: the sentence under its declaration, in the one place where its name and default stand.

    batch_size: int = 64
    \"\"\"(rows) of an upload\"\"\"

Words in brackets at the beginning are the unit. The page of settings, `colonnade settings` and the Python reference are
made of these sentences; their links are those of a page in docs/.
"""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Setting:
    """One setting of a section."""

    name: str
    kind: str  # in words; "": any value
    default: Any  # as a TOML file has it; None: nothing, MISSING: it must be given, or is a section of its own
    unit: str
    meaning: str
    explained_by: type[Any]  # the class that has the sentence; one that extends it may have another default

    @property
    def plain_meaning(self) -> str:
        """Without links, and without those that only lead to more words."""
        text = re.sub(r" ?\(\[explained\]\([^)]*\)\)|\.? ?\[Explained\]\([^)]*\)", "", self.meaning)
        return re.sub(r"\[(\[?[^][]+\]?)\]\([^)]*\)", r"\1", text)


def settings_of(cls: type[Any]) -> list[Setting]:
    """The settings of a section, in their order.

    >>> from colonnade.algorithms.training import Training
    >>> [(one.name, one.kind, one.default, one.unit) for one in settings_of(Training)][1]
    ('batch_size', 'a whole number or "auto"', 'auto', 'rows')
    """
    kinds = get_type_hints(cls)
    return [_setting(cls, one, kinds[one.name]) for one in fields(cls)]


def _setting(cls: type[Any], field: Field[Any], kind: Any) -> Setting:
    owner = next((one for one in cls.__mro__ if field.name in _sentences(one)), None)
    if owner is None:
        raise LookupError(f"{cls.__name__}.{field.name} has no sentence under its declaration.")
    unit, meaning = re.fullmatch(r"(?:\((.+?)\) )?(.*)", _sentences(owner)[field.name]).groups(default="")  # type: ignore[union-attr]
    return Setting(field.name, in_words(kind), _default(field), unit, meaning, owner)


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        made = field.default_factory()
        return None if isinstance(made, Mapping) else MISSING
    return list(field.default) if isinstance(field.default, tuple) else field.default


@cache
def _sentences(cls: type[Any]) -> Mapping[str, str]:
    """What stands under the fields that a class itself declares, on one line each."""
    if not is_dataclass(cls):
        return {}
    (declared,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for above, below in zip(declared.body, declared.body[1:], strict=False):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[above.target.id] = " ".join(str(below.value.value).split())
    return found


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def in_words(kind: Any) -> str:
    """A type as somebody who writes TOML calls it.

    >>> in_words(float | Literal["auto"]), in_words(tuple[str, ...]), in_words(bool | None)
    ('a number or "auto"', 'a list', 'true or false')
    """
    if get_origin(kind) is Literal:
        return " or ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in get_args(kind))
    if get_origin(kind) is tuple:
        return "a list"
    if get_origin(kind) is Mapping or is_dataclass(kind):
        return "a table"
    parts = [in_words(part) for part in get_args(kind) if part is not type(None)]
    return (
        " or ".join(parts) if isinstance(kind, type(int | str)) or get_origin(kind) is Union else _WORDS.get(kind, "")
    )
