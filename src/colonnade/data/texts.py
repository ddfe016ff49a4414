"""Texts as rows of token numbers, what a transformer takes: a column of a party's own table, and sets of reviews.

A text is cut after so many tokens, or filled up with zeros. The tokenizer is that of models/pretrained.py.
"""

import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.data.catalogue import TOKENS
from colonnade.models.pretrained import tokenizer

LETTERS = 12
"""Of a token and the space before it, at most on average: what lies behind so many times the tokens is not read."""
NAMES = tuple(f"token{1 + place}" for place in range(TOKENS))
_AT_ONCE = 4096
"""Texts: Python's lists of their numbers take more memory than the numbers."""


def token_numbers(texts: Sequence[str], tokens: int = TOKENS) -> NDArray[np.int32]:
    """[texts, tokens]."""
    short = [text[: LETTERS * tokens] for text in texts]
    if not short:
        return np.zeros((0, tokens), np.int32)
    found = tokenizer()(short, truncation=True, max_length=tokens, padding="max_length")["input_ids"]
    return np.array(found, np.int32)


@dataclass(frozen=True)
class TokenEncoder:
    """Token numbers of a text, as they are; a gap is a text without words."""

    KIND: ClassVar[str] = "tokens"

    tokens: int

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column} {1 + place}" for place in range(self.tokens))

    def encode(self, values: Sequence[Any], out: NDArray[np.float32]) -> None:
        for start in range(0, len(values), _AT_ONCE):
            some = ["" if text is None else str(text) for text in values[start : start + _AT_ONCE]]
            out[start : start + len(some)] = token_numbers(some, self.tokens)


def labelled_lines(lines: Iterable[bytes]) -> dict[str, tuple[list[str], list[int]]]:
    """Texts and labels by part, from lines of JSON with `split`, `label` and `text`."""
    parts: dict[str, tuple[list[str], list[int]]] = {"train": ([], []), "test": ([], [])}
    for line in lines:
        review = json.loads(line)
        texts, labels = parts[review["split"]]
        texts.append(str(review["text"]))
        labels.append(int(review["label"]))
    return parts


def labelled_archive(whole: IO[bytes]) -> tuple[list[str], list[int]]:
    """Title and text of every review of a tar of `…/DOMAIN/positive.review` and `negative.review`, and 1 or 0."""
    texts: list[str] = []
    labels: list[int] = []
    with tarfile.open(fileobj=whole, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None:  # a folder
                continue
            found = _reviews(content.read().decode("utf-8", "replace"))
            texts += found
            labels += [int(member.name.endswith("positive.review"))] * len(found)
    return texts, labels


def _reviews(text: str) -> list[str]:
    pieces = text.split("<review>")[1:]
    return [f"{_between(one, 'title')} {_between(one, 'review_text')}" for one in pieces]


def _between(review: str, name: str) -> str:
    return review.split(f"<{name}>", 1)[1].split(f"</{name}>", 1)[0].strip()
