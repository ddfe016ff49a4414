"""TOML files of users, read and written; what is wrong with one is a sentence that names it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from colonnade.errors import SettingsError


def read_toml(path: Path, wanted: str) -> dict[str, Any]:
    """The values of a file; `wanted` says what path to give instead: "a federation.toml"."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"There is no file {path}. Give the path of {wanted}.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}. Give the path of {wanted}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not valid TOML: it is not UTF-8 text. Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None


def write_toml(values: Mapping[str, Any]) -> str:
    return tomli_w.dumps(values)
