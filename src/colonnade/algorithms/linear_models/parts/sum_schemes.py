"""How the parts of a sum are hidden while they are added up, and along which trees they run.

`plain`: products as they are. `pairwise`: masks that every two parties agree on, which cancel in the sum. `two-tree`:
masks of each party's own, whose sum runs up a second, different tree.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.trees import Tree, balanced, different_pair
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import EvaluationMaskedSum, EvaluationProductSum, MaskedSum, Message, ProductSum
from colonnade.privacy.masking import OwnMasks, PairwiseMasks
from colonnade.privacy.ring import FixedPoint
from colonnade.state import Remembering, part

Floats = NDArray[np.float64]
Total = Floats | NDArray[np.uint64]
"""A sum on its way: of products, or in the ring where masks are added."""


class SumScheme(Remembering):
    """One party's way to hide its parts. Numbers of sums are as in open_sums.py: those of evaluations are negative."""

    MEMORY = (part("_masks"),)  # which are agreed on before they are restored
    DERIVED = ("_trees",)

    def __init__(self, kind: str, parties: Sequence[str], arity: int, point: FixedPoint) -> None:
        self.is_plain = kind == "plain"
        self.has_two_trees = kind == "two-tree"
        self._parties = tuple(parties)
        self._arity = arity
        self._point = point
        self._trees: dict[str, tuple[Tree, ...]] = {}
        self._masks: PairwiseMasks | OwnMasks | None = None

    def mask_with(self, masks: PairwiseMasks | OwnMasks) -> None:
        self._masks = masks

    @property
    def parties(self) -> tuple[str, ...]:
        return self._parties

    def check_mask(self, sender: str, root: str, number: int, count: int) -> None:
        """Refuse a sum of so many numbers whose mask is used up."""
        if self._masks is None:
            return
        try:
            self._masks.check(root, abs(number), count, _kind(number))
        except ProtocolError as error:
            raise ProtocolError(f"{sender} passed on a request that cannot be answered. {error}") from None

    def trees_of(self, root: str) -> tuple[Tree, ...]:
        """The trees of this root's sums: down the first go its requests."""
        trees = self._trees.get(root)
        if trees is None:
            if root not in self._parties:
                raise ProtocolError(f"A sum was asked for in the name of {root!r}, who is not in the federation.")
            if self.has_two_trees:
                trees = different_pair(self._parties, root)
            else:
                trees = (balanced(self._parties, root, self._arity),)
            self._trees[root] = trees
        return trees

    def parts(self, root: str, number: int, own: Floats) -> tuple[Total, ...]:
        """What this party adds to the sum, one part for each tree."""
        if self.is_plain:
            return (own,)
        assert self._masks is not None, "masks are agreed on before the first sum"
        hidden = self._point.encode(own)  # first: a number that cannot be hidden uses no mask up
        mask = self._masks.mask(root, abs(number), own.size, _kind(number)).reshape(own.shape)
        hidden += mask
        return (hidden, mask) if self.has_two_trees else (hidden,)

    def message(self, root: str, number: int, tree: int, total: Any) -> Message:
        """What goes up a tree."""
        if self.is_plain:
            return (ProductSum if number > 0 else EvaluationProductSum)(root, abs(number), total)
        return (MaskedSum if number > 0 else EvaluationMaskedSum)(root, abs(number), tree + 1, total)

    def opened(self, totals: Sequence[Any]) -> Floats:
        """At the root: the sum without masks."""
        if self.is_plain:
            plain: Floats = totals[0]
            return plain
        return self._point.decode(totals[0] - totals[1] if self.has_two_trees else totals[0])


def _kind(number: int) -> str:
    return "training" if number > 0 else "evaluation"


def check_scheme(scheme: str, parties: int, allow_two_parties: bool) -> None:
    """Refuse masks where a sum of so many parties' products hides nothing from one of them."""
    if scheme == "plain" or parties > 2:
        return
    if parties < 2:
        raise SettingsError(f'algorithm.sums = "{scheme}" hides a sum\'s parts from other parties: there are none.')
    if scheme == "two-tree":
        raise SettingsError(
            f'algorithm.sums = "two-tree" needs at least 3 parties with columns, and there are {parties}. Use '
            '"pairwise" with algorithm.allow_two_parties, or "plain".'
        )
    if not allow_two_parties:
        raise SettingsError(
            f"Masked sums of {parties} parties with columns hide nothing: whoever learns the sum, or the residuals, "
            "knows the other's product. Add a party, or say that you know with algorithm.allow_two_parties = true."
        )
