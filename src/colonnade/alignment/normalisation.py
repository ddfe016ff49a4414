"""Ids written alike: each column by its rules, several joined to one key; what cannot be used is counted.

Keys, counts and likely causes are for the party that owns the ids. No sentence made here holds an id.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.jacobi import AreSquares, are_squares
from colonnade.alignment.order import blocks_of
from colonnade.alignment.points import POINT_BYTES, Points, hashed_to_curve
from colonnade.alignment.settings import IdRules
from colonnade.data.id_columns import listed

LONGEST_CHARACTERS = 256
_BLOCK = 1 << 14  # rows
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")
_PUNCTUATION = re.compile(r"[\s()./–-]")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Keys:
    """The points of a party's usable keys, each once, and how many rows were left out."""

    rows: NDArray[np.int64]  # of its own table, one per key
    points: Points
    held: int  # rows of its table
    missing: int
    malformed: int
    repeated: int  # rows whose key another row has too: none of them is used, for which one is meant nobody knows

    def counts(self) -> dict[str, int]:
        """For the owner."""
        return {
            "held": self.held,
            "usable": len(self.rows),
            "missing": self.missing,
            "malformed": self.malformed,
            "repeated": self.repeated,
        }


def keys_of(
    columns: Sequence[Sequence[str]], rules: Sequence[IdRules], domain: bytes = b"", squares: AreSquares = are_squares
) -> Keys:
    """The keys of a table: the i-th row's are the i-th text of every column, "" where there is none.

    >>> keys_of([["07", " 7", "8", ""]], [IdRules(zeros="strip")]).counts()
    {'held': 4, 'usable': 1, 'missing': 1, 'malformed': 0, 'repeated': 2}
    """
    held, missing, malformed, count = len(columns[0]), 0, 0, 0
    rows, points = np.empty(held, np.int64), np.empty((held, POINT_BYTES), np.uint8)
    for start in range(0, held, _BLOCK):  # keys themselves are never held all at once
        texts = [listed(column[start : start + _BLOCK]) for column in columns]
        parts = [all_written_alike(column, rule) for column, rule in zip(texts, rules, strict=True)]
        keys: list[bytes] = []
        for row, values in enumerate(zip(*parts, strict=True), start):
            if "" in values:
                missing += 1
            elif None in values:
                malformed += 1
            else:
                rows[count + len(keys)] = row
                keys.append(_joined([value for value in values if value is not None]))
        points[count : count + len(keys)] = hashed_to_curve(keys, domain, squares)
        count += len(keys)
    rows, points = rows[:count], points[:count]
    once = _once(points)
    if not once.all():
        rows, points = rows[once], points[once]
    return Keys(rows, points, held, missing, malformed, count - len(rows))


def _once(points: Points) -> NDArray[np.bool_]:
    """Which points are there once."""
    blocks = blocks_of(points)
    order = np.lexsort((blocks[:, 1], blocks[:, 0]))
    ordered = blocks[order]
    like_next = np.zeros(len(points) + 1, np.bool_)
    like_next[1:-1] = (ordered[1:] == ordered[:-1]).all(axis=1)
    once = np.empty(len(points), np.bool_)
    once[order] = ~(like_next[1:] | like_next[:-1])
    return once


def _joined(values: Sequence[str]) -> bytes:
    """One key of several values: lengths go first, so that no two rows with other values have the same."""
    encoded = [value.encode() for value in values]
    if len(encoded) == 1:
        return encoded[0]
    return b"".join(len(value).to_bytes(2, "big") + value for value in encoded)


def all_written_alike(texts: Sequence[str], rules: IdRules) -> list[str | None]:
    """`written_alike` of each. Where no rule changes plain ids, one look at all of them together tells that they are.

    >>> all_written_alike(["a1", " a2", ""], IdRules()), all_written_alike(["a1", "a2"], IdRules())
    (['a1', 'a2', ''], ['a1', 'a2'])
    """
    keeps = (rules.form, rules.case, rules.zeros, rules.pad) == ("text", "keep", "keep", 0)
    if keeps and all(texts) and max(map(len, texts), default=0) <= LONGEST_CHARACTERS:
        whole = "".join(texts)
        if whole.isascii() and whole.isprintable() and " " not in whole:
            return list(texts)
    return [written_alike(text, rules) for text in texts]


def written_alike(text: str, rules: IdRules) -> str | None:
    """An id by its rules; "" if there is none, None if it is no such id.

    >>> written_alike(" Ann.Lee@Example.ORG ", IdRules(form="email"))
    'ann.lee@example.org'
    >>> written_alike("0171 / 234-5678", IdRules(form="phone", country="49"))
    '+491712345678'
    >>> written_alike("0042", IdRules(zeros="strip", pad=3))
    '042'
    """
    if rules.unicode != "keep" and not text.isascii():
        text = unicodedata.normalize(rules.unicode, text)
    if rules.spaces != "keep":
        text = text.strip()
        if rules.spaces != "strip":
            text = _SPACES.sub("" if rules.spaces == "remove" else " ", text)
    if not text:
        return ""
    if len(text) > LONGEST_CHARACTERS or not text.isprintable():
        return None
    if rules.form == "email":
        text = text.lower().removeprefix("mailto:")
        if not _EMAIL.fullmatch(text):
            return None
    elif rules.form == "phone":
        return _phone(text, rules.country)
    if rules.case != "keep":
        text = text.lower() if rules.case == "lower" else text.upper()
    if text.isascii() and text.isdigit():
        if rules.zeros == "strip":
            text = text.lstrip("0") or "0"
        text = text.zfill(rules.pad)
    return text


def _phone(text: str, country: str) -> str | None:
    """Digits with the calling code in front; a single 0 in front stands for the country's own."""
    digits = _PUNCTUATION.sub("", text)
    if digits.startswith("00"):
        digits = "+" + digits[2:]
    elif digits.startswith("0") and country:
        digits = f"+{country}{digits[1:]}"
    plain = digits.removeprefix("+")
    return digits if plain.isascii() and plain.isdigit() and 6 <= len(plain) <= 15 else None


# --- why so few match --------------------------------------------------------------------------------------------


def likely_causes(texts: Sequence[str], rules: IdRules) -> list[str]:
    """What about this party's own ids most often keeps them from matching, the likeliest first. No id is named."""
    some = [text for text in texts[:100_000] if text]
    if not some:
        return []
    found = []
    digits = [text.strip() for text in some if text.strip().isascii() and text.strip().isdigit()]
    lengths = Counter(map(len, digits))
    if digits and rules.zeros == "keep" and not rules.pad and rules.form == "text":
        if any(text.startswith("0") for text in digits):
            found.append("ids begin with zeros, which other files may have lost: set zeros = 'strip' in the rules")
        elif len(lengths) > 1:
            found.append(
                f"ids are numbers of {min(lengths)} to {max(lengths)} digits and none begins with a zero: leading "
                "zeros may be lost here; set zeros = 'strip' in the rules"
            )
    if any(text.endswith(".0") for text in some):
        found.append("ids look like decimals (they end in .0): store them as text or whole numbers")
    if rules.case == "keep" and rules.form != "email":
        if any(text != text.lower() for text in some):
            found.append("ids have capital letters: set case = 'lower' in the rules")
        elif any(text != text.upper() for text in some):
            found.append("ids have small letters, which others may write as capitals: set case = 'lower' in the rules")
    if rules.spaces in ("strip", "keep") and any(_SPACES.search(text.strip()) for text in some):
        found.append("ids have spaces inside: set spaces = 'single' or 'remove' in the rules")
    if rules.form == "text" and sum("@" in text for text in some) > len(some) // 2:
        found.append("ids look like e-mail addresses: set form = 'email' in the rules")
    return found
