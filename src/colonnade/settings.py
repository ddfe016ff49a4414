"""Settings from plain values: every name must exist, every value must have its type, nothing falls back silently."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from colonnade.errors import SettingsError, unknown_name

T = TypeVar("T")


def build(cls: type[T], values: Any, where: str) -> T:
    """A settings object from a table of a TOML file; `where` is the table's name, for errors.

    >>> from colonnade.algorithms.training import Training
    >>> build(Training, {"batch_size": 2}, "training").batch_size
    2
    """
    check_table(values, where)
    check_names(cls, values, where)
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        setting = where + place.rstrip("`") if place else where
        what = re.sub("`([^`]*)`", lambda found: " or ".join(_WORDS.get(t, t) for t in found[1].split(" | ")), what)
        what = what.replace("got a number", "got a number with decimals")  # so that it differs from a whole one
        raise SettingsError(f"The setting {setting} is wrong: {what[0].lower()}{what[1:]}.") from None


# What msgspec calls the types, in the words of a TOML file.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def check_table(values: Any, where: str) -> None:
    if not isinstance(values, Mapping):
        raise SettingsError(f"[{where}] must be a table of settings, such as [{where}] on a line of its own.")


def check_names(cls: type[Any], values: Mapping[str, Any], where: str) -> None:
    """Refuse a name, or a word, that the settings or tables inside them do not have, offering the nearest."""
    known = [field.name for field in fields(cls)]
    kinds = get_type_hints(cls)
    for name, value in values.items():
        if name not in known:
            raise unknown_name(f"setting in [{where}] named", name, known)
        words = _choices(kinds[name])
        if words and isinstance(value, str) and value not in words:
            raise unknown_name(f"value of {where}.{name}", value, words)
        kind, is_mapping = _inner_settings(kinds[name])
        if kind is None or not isinstance(value, Mapping):
            continue
        if not is_mapping:
            check_names(kind, value, f"{where}.{name}")
            continue
        for key, inner in value.items():
            build(kind, inner, f"{where}.{name}.{key}")  # an error says which key


def _choices(kind: Any) -> list[str]:
    """The words of a setting that takes certain words alone, besides values of other types; none if it takes any."""
    kinds = [kind] if get_origin(kind) is Literal else get_args(kind)
    words = [word for part in kinds if get_origin(part) is Literal for word in get_args(part)]
    return [] if str in kinds else [word for word in words if isinstance(word, str)]


def _inner_settings(kind: Any) -> tuple[type[Any] | None, bool]:
    """The settings that a field of this type holds, and whether it holds several of them by name."""
    if is_dataclass(kind) and isinstance(kind, type):
        return kind, False
    is_mapping = get_origin(kind) is Mapping
    for part in get_args(kind):
        if is_dataclass(part) and isinstance(part, type):
            return part, is_mapping
    return None, False


def as_values(settings: Any) -> Any:
    """The plain values of a settings object, None left out: what a TOML file can hold."""
    if type(settings) in _PLAIN:  # most are
        return settings
    if is_dataclass(settings) and not isinstance(settings, type):
        named = {name: getattr(settings, name) for name in _names_of(type(settings))}
        return {name: as_values(value) for name, value in named.items() if value is not None}
    if isinstance(settings, Mapping):
        return {str(name): as_values(value) for name, value in settings.items() if value is not None}
    if isinstance(settings, tuple | list):
        return [as_values(value) for value in settings]
    return settings


_PLAIN = frozenset((str, float, int, bool, type(None)))


@cache
def _names_of(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
