"""The sums that are open at one party: what has come in, and whom each of them still waits for.

A sum is known by its root and its number there. Evaluations are counted apart, so that how often one is made does not
change what the training sends: on the wire 1, 2, … of a kind of their own, here −1, −2, …
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.sum_schemes import Total
from colonnade.algorithms.linear_models.parts.trees import Tree
from colonnade.errors import ProtocolError
from colonnade.state import Remembering, State, custom, plain, value

Key = tuple[str, int]
"""A sum's root and its number there."""
NO_ROWS = np.zeros(0, np.uint32)
_NOTHING = np.zeros((0, 0))


@dataclass
class OpenSum:
    """A sum that waits for parties below this one."""

    rows: NDArray[np.uint32]  # whose products are summed; none for an evaluation
    evaluation: tuple[int, int] | None  # first test row and how many of them, if it is for scoring
    asked: bool  # whether the request has come: masks from below may come first
    totals: list[Total | None]  # one per tree
    awaited: list[set[str]]  # one per tree: children that have not sent their sum
    own: NDArray[np.float64]  # at the root: its own products
    sent: set[int] = field(default_factory=set)  # trees whose sum has gone up
    due: float = inf  # when it has waited long enough

    def add(self, tree: int, part: Any) -> None:
        so_far: Any = self.totals[tree]
        if so_far is None:
            # A decoded array is a view of its frame, which is not ours to write to.
            self.totals[tree] = part if part.flags.owndata else part.copy()
        elif so_far.shape == part.shape:
            so_far += part
        else:
            raise ProtocolError(f"The parts of a sum have the shapes {so_far.shape} and {part.shape}; they must agree.")

    @property
    def complete(self) -> bool:
        return self.asked and not any(self.awaited)

    def to_send(self) -> list[int]:
        """Trees whose sum can go up now. Each goes alone: in another tree a child may wait for this very part."""
        return [
            tree for tree, missing in enumerate(self.awaited) if self.asked and not missing and tree not in self.sent
        ]


class OpenSums(Remembering):
    """The open sums of the party of this name.

    `may_overtake`: whether a part from below may come before the request. Then the latest requests are remembered, to
    tell such a part from one of a sum that is over.
    """

    def __init__(self, name: str, may_overtake: bool) -> None:
        self._name = name
        self._may_overtake = may_overtake
        self._open: dict[Key, OpenSum] = {}
        self._asked_up_to: dict[str, list[int]] = {}  # root → the latest sums of training and of evaluation known here

    def ask(self, key: Key, trees: tuple[Tree, ...]) -> OpenSum:
        """The request for a sum has come. It stays open if there is somebody to wait for."""
        open_ = self._open.get(key)
        if open_ is None:
            open_ = self._opened(trees)
            if any(open_.awaited):
                self._open[key] = open_
        root, number = key
        if open_.asked:
            raise ProtocolError(f"The sum {number} of {root} was asked for twice.")
        open_.asked = True
        if self._may_overtake:
            latest = self._asked_up_to.setdefault(root, [0, 0])
            latest[number < 0] = max(latest[number < 0], abs(number))
        return open_

    def of_part(self, key: Key, trees: tuple[Tree, ...]) -> OpenSum | None:
        """The sum that a part from below belongs to; None if that was abandoned, or went on without it."""
        open_ = self._open.get(key)
        root, number = key
        if open_ is None and self._may_overtake and abs(number) > self._asked_up_to.get(root, (0, 0))[number < 0]:
            open_ = self._open[key] = self._opened(trees)
        return open_

    def close(self, key: Key) -> bool:
        """Nothing is waited for any more; whether the sum was open."""
        return self._open.pop(key, None) is not None

    def items(self) -> list[tuple[Key, OpenSum]]:
        return list(self._open.items())

    def next_due(self) -> float:
        return min((open_.due for open_ in self._open.values()), default=inf)

    def _opened(self, trees: Iterable[Tree]) -> OpenSum:
        awaited = [set(tree.children(self._name)) for tree in trees]
        return OpenSum(NO_ROWS, None, False, [None] * len(awaited), awaited, _NOTHING)

    def _save_open(self, state: State) -> None:
        state.values["open"] = []
        for place, ((root, number), open_) in enumerate(self._open.items()):
            state.put(f"{place}.rows", open_.rows)
            state.put(f"{place}.own", open_.own)
            for tree, total in enumerate(open_.totals):
                if total is not None:
                    state.put(f"{place}.{tree}", total)
            kinds = [None if total is None else total.dtype.str for total in open_.totals]
            about = [root, number, open_.evaluation, open_.asked, kinds, open_.awaited, open_.sent, open_.due]
            state.values["open"].append(plain(about))

    def _load_open(self, state: State) -> None:
        self._open = {}
        for place, (root, number, evaluation, asked, kinds, awaited, sent, due) in enumerate(state.values["open"]):
            rows, own = state.take(f"{place}.rows", np.uint32), state.take(f"{place}.own")
            totals = [kind and state.take(f"{place}.{tree}", kind) for tree, kind in enumerate(kinds)]
            scored = None if evaluation is None else (evaluation[0], evaluation[1])
            waiting = [set(parties) for parties in awaited]
            self._open[root, number] = OpenSum(rows, scored, asked, totals, waiting, own, set(sent), due)

    MEMORY = (value("_asked_up_to"), custom("_open", save=_save_open, load=_load_open))
