"""Settings from plain values: every name must exist, every value must have its type, nothing falls back silently."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

from colonnade.errors import SettingsError, unknown_name

T = TypeVar("T")


def build(cls: type[T], values: Any, where: str) -> T:
    """A settings object from a table of a TOML file; `where` is the table's name, for errors.

    >>> from colonnade.algorithms.vafl import Vafl
    >>> build(Vafl, {"wait_for": 2}, "algorithm").wait_for
    2
    """
    if not isinstance(values, Mapping):
        raise SettingsError(f"[{where}] must be a table of settings, not {type(values).__name__}.")
    check_names(cls, values, where)
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        setting = where + place.rstrip("`") if place else where
        raise SettingsError(f"The setting {setting} is wrong: {what}.") from None


def check_names(cls: type[Any], values: Mapping[str, Any], where: str) -> None:
    """Refuse a name that the settings do not have, offering the nearest."""
    known = [field.name for field in fields(cls)]
    for name in values:
        if name not in known:
            raise unknown_name(f"setting in [{where}] named", name, known)


def as_values(settings: Any) -> Any:
    """The plain values of a settings object, None left out: what a TOML file can hold."""
    if is_dataclass(settings) and not isinstance(settings, type):
        named = {field.name: as_values(getattr(settings, field.name)) for field in fields(settings)}
        return {name: value for name, value in named.items() if value is not None}
    if isinstance(settings, Mapping):
        return {str(name): as_values(value) for name, value in settings.items() if value is not None}
    if isinstance(settings, tuple | list):
        return [as_values(value) for value in settings]
    return settings
