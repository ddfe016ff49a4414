"""`[alignment]`: by which columns rows are matched, how ids are written alike, and what is told of sizes.

All of it stands in the federation's file, since two parties that write an id differently never meet in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from colonnade.errors import SettingsError, unknown_name

METHODS = ("ecdh", "hashed")
ROWS = ("all", "any")
MOST_IDS = 8_000_000
"""Of one party, or `pad_to`: what a link keeps for a peer that is away for a moment."""


@dataclass(frozen=True)
class IdRules:
    """`[alignment.rules.COLUMN]`: how one column of ids is written alike by all parties, in this order."""

    unicode: Literal["NFC", "NFKC", "keep"] = "NFC"
    """normal form: `NFC`, `NFKC` or `keep`"""
    spaces: Literal["strip", "single", "remove", "keep"] = "strip"
    """`strip` those around it; `single`: also make runs inside one; `remove` all; `keep` all"""
    form: Literal["text", "email", "phone"] = "text"
    """`email`: small letters, no `mailto:`; `phone`: digits with the calling code in front. What is no such thing
    counts as malformed"""
    country: str = ""
    """with `phone`: the calling code of numbers that begin with a single 0, such as `"49"`"""
    case: Literal["keep", "lower", "upper"] = "keep"
    """`keep`, `lower` or `upper`"""
    zeros: Literal["keep", "strip"] = "keep"
    """`strip` leading zeros of ids that are digits alone, or `keep` them"""
    pad: int = 0
    """then zeros in front, up to so many digits"""

    def __post_init__(self) -> None:
        if not 0 <= self.pad <= 64:
            raise SettingsError(f"alignment.rules: pad is {self.pad}; it must be from 0 to 64 digits.")
        if self.country and not (self.country.isascii() and self.country.isdigit() and len(self.country) <= 3):
            raise SettingsError("alignment.rules: country must be a calling code of one to three digits, such as '49'.")
        if self.country and self.form != "phone":
            raise SettingsError("alignment.rules: country is for form = 'phone': leave it out.")


@dataclass(frozen=True)
class AlignmentSettings:
    """`[alignment]`."""

    method: str = "ecdh"
    """`ecdh`: nobody sees an id that not all hold; `hashed`: salted hashes, which let the label party test every id
    that it can guess"""
    columns: tuple[str, ...] = ()
    """the columns whose values together are the id; empty: the one of `data.id`"""
    rules: Mapping[str, IdRules] = field(default_factory=dict)
    """`[alignment.rules.COLUMN]`: how that column's ids are written alike"""
    pad_to: int = 0
    """every party says that it has so many ids, and fills up with random ones; 0: it says how many it has"""
    rows: str = "all"
    """`all`: the rows that all parties hold; `any`: all rows of the label party, and each feature party learns which of
    them it holds ([rows that some lack](how-to/missing-rows.md))"""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method of alignment (alignment.method)", self.method, METHODS)
        if self.rows not in ROWS:
            raise unknown_name("choice of rows (alignment.rows)", self.rows, ROWS)
        if not 0 <= self.pad_to <= MOST_IDS:
            raise SettingsError(f"alignment.pad_to is {self.pad_to}; it must be from 0 to {MOST_IDS}.")
        if len(set(self.columns)) < len(self.columns):
            raise SettingsError("alignment.columns names a column twice: name each once.")

    def key_columns(self, id: str) -> tuple[str, ...]:
        """The columns whose values together are the id; `id` is data.id."""
        columns = self.columns or (id,)
        for name in self.rules:
            if name not in columns:
                raise unknown_name("column of ids (alignment.rules)", name, columns)
        return columns
