"""TOML files of users, read and written; what is wrong with one is a sentence that names it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from colonnade.errors import RunError, SettingsError
from colonnade.files import read_whole, toml_of

MOST_BYTES = 16 << 20
"""Of a TOML file: hundreds of thousands of column names, and far more than anybody writes."""


def read_toml(path: Path, wanted: str) -> dict[str, Any]:
    """The values of a file; `wanted` says what path to give instead: "a federation.toml"."""
    try:
        content = read_whole(path, MOST_BYTES, links=True)
    except FileNotFoundError:
        raise SettingsError(f"There is no file {path}. Give the path of {wanted}.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}. Give the path of {wanted}.") from None
    except RunError as error:  # no file, or too large
        raise SettingsError(f"{error} Give the path of {wanted}.") from None
    return parse_toml(content, str(path))


def parse_toml(content: bytes, where: str) -> dict[str, Any]:
    """The values of a TOML text; `where` it stands is said if it is not one."""
    try:
        return toml_of(content)
    except UnicodeDecodeError:
        raise SettingsError(f"{where} is not valid TOML: it is not UTF-8 text. Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{where} is not valid TOML: {error}.") from None
    except ValueError as error:
        raise SettingsError(f"{where} cannot be read: {_in_words(error)}. No setting needs that: mend it.") from None


def _in_words(error: ValueError) -> str:
    """Python refuses numbers of thousands of digits with words about itself."""
    return "a number has too many digits" if "digits" in str(error) else str(error)


def write_toml(values: Mapping[str, Any]) -> str:
    return tomli_w.dumps(values)
