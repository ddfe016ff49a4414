"""The sums that are open at one party: what has come in, and whom each of them still waits for.

A sum is known by its root and its number there. Evaluations are counted apart, so that how often one is made does not
change what the training sends: on the wire 1, 2, … of a kind of their own, here −1, −2, …

A part that comes before its request is kept as it came, and added when the request says how many rows the sum has. What
is kept for one child, and what is open for one root, is bounded in bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.sum_schemes import Total
from colonnade.algorithms.linear_models.parts.trees import Tree
from colonnade.algorithms.parts.bounds import MOST_KEPT_BYTES
from colonnade.errors import ProtocolError
from colonnade.state import Remembering, State, custom, plain, value

Key = tuple[str, int]
"""A sum's root and its number there."""
NO_ROWS = np.zeros(0, np.uint32)
_NOTHING = np.zeros((0, 0))
_A_SUM = 500  # bytes of an open sum beside its arrays


@dataclass
class OpenSum:
    """A sum that waits for parties below this one."""

    rows: NDArray[np.uint32]  # whose products are summed; none for an evaluation
    evaluation: tuple[int, int] | None  # first test row and how many of them, if it is for scoring
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
        else:
            so_far += part

    @property
    def complete(self) -> bool:
        return not any(self.awaited)

    def to_send(self) -> list[int]:
        """Trees whose sum can go up now. Each goes alone: in another tree a child may wait for this very part."""
        return [tree for tree, missing in enumerate(self.awaited) if not missing and tree not in self.sent]

    @property
    def size_bytes(self) -> int:
        totals = sum(0 if total is None else total.nbytes for total in self.totals)
        return _A_SUM + self.rows.nbytes + self.own.nbytes + totals


class OpenSums(Remembering):
    """The open sums of the party of this name.

    `may_overtake`: whether a part from below may come before the request. Then the latest requests are remembered, to
    tell such a part from one of a sum that is over. `most_bytes`: what is kept for one peer.
    """

    DERIVED = ("_early_bytes",)

    def __init__(self, name: str, may_overtake: bool, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._name = name
        self.may_overtake = may_overtake
        self._most_bytes = most_bytes
        self._open: dict[Key, OpenSum] = {}
        self._early: dict[Key, dict[tuple[int, str], Any]] = {}  # parts without a request, by tree and child
        self._early_bytes: dict[str, int] = {}  # how much of it is whose
        self._asked_up_to: dict[str, list[int]] = {}  # root → the latest sums of training and of evaluation known here

    # --- requests ---

    def check_ask(self, sender: str, key: Key) -> None:
        """Refuse a request that is under way already, or beyond what is kept for its root."""
        root, number = key
        if key in self._open:
            raise ProtocolError(f"{sender} asked for the sum {number} of {root} twice.")
        held = sum(open_.size_bytes for (other, _), open_ in self._open.items() if other == root)
        if held > self._most_bytes:
            raise ProtocolError(
                f"{sender} asked for another sum of {root}; {held} bytes of its sums are open here already, and at "
                f"most {self._most_bytes} are kept."
            )

    def ask(self, key: Key, trees: tuple[Tree, ...], parts: Iterable[Total]) -> OpenSum:
        """The request for a sum has come; `parts` are this party's own. It stays open if there is somebody to wait for.

        What came before the request counts if it has the shape that the request says. Otherwise it is left out, and
        its sender is waited for: it cannot be told from here which of the two did not tell the truth.
        """
        awaited = [set(tree.children(self._name)) for tree in trees]
        open_ = OpenSum(NO_ROWS, None, [None] * len(awaited), awaited, _NOTHING)
        for tree, part in enumerate(parts):
            open_.add(tree, part)
        for (tree, child), part in self._taken_early(key).items():
            own: Any = open_.totals[tree]
            if part.shape == own.shape:
                open_.add(tree, part)
                open_.awaited[tree].discard(child)
        if any(awaited):
            self._open[key] = open_
        root, number = key
        if self.may_overtake:
            latest = self._asked_up_to.setdefault(root, [0, 0])
            latest[number < 0] = max(latest[number < 0], abs(number))
        return open_

    # --- parts from below ---

    def of_part(self, key: Key) -> OpenSum | None:
        """The sum that a part from below belongs to; None if it was abandoned, went on without it, or is not asked."""
        return self._open.get(key)

    def is_early(self, key: Key) -> bool:
        """Whether a part of this sum has come before its request."""
        root, number = key
        unknown = key not in self._open and self.may_overtake
        return unknown and abs(number) > self._asked_up_to.get(root, (0, 0))[number < 0]

    def check_early(self, child: str, part: NDArray[Any]) -> None:
        """Refuse what would be too much to keep for one child."""
        if self._early_bytes.get(child, 0) + _A_SUM + part.nbytes > self._most_bytes:
            self._forget_overtaken(child)
        held = self._early_bytes.get(child, 0)
        if held + _A_SUM + part.nbytes > self._most_bytes:
            raise ProtocolError(
                f"{child} has sent {held} bytes of sums that nobody has asked for, and sends more; at most "
                f"{self._most_bytes} are kept."
            )

    def keep_early(self, key: Key, tree: int, child: str, part: NDArray[Any]) -> None:
        held = self._early.setdefault(key, {})
        if (tree, child) not in held:
            held[tree, child] = part.copy()
            self._early_bytes[child] = self._early_bytes.get(child, 0) + _A_SUM + part.nbytes

    def _taken_early(self, key: Key) -> dict[tuple[int, str], Any]:
        parts = self._early.pop(key, {})
        for (_, child), part in parts.items():
            self._early_bytes[child] -= _A_SUM + part.nbytes
        return parts

    def _forget_overtaken(self, child: str) -> None:
        """Drop a child's parts of sums whose successors were asked for: those requests got lost with somebody."""
        for (root, number), parts in [*self._early.items()]:
            if abs(number) < self._asked_up_to.get(root, (0, 0))[number < 0]:
                for tree, other in [*parts]:
                    if other == child:
                        self._early_bytes[child] -= _A_SUM + parts.pop((tree, other)).nbytes
                if not parts:
                    del self._early[root, number]

    def close(self, key: Key) -> bool:
        """Nothing is waited for any more; whether the sum was open."""
        return self._open.pop(key, None) is not None

    def forget(self) -> None:
        """No sum is under way any more, nor is a part of one."""
        self._open.clear()
        self._early.clear()
        self._early_bytes.clear()

    def items(self) -> list[tuple[Key, OpenSum]]:
        return list(self._open.items())

    def next_due(self) -> float:
        return min((open_.due for open_ in self._open.values()), default=inf)

    # --- memory ---

    def _save_open(self, state: State) -> None:
        state.values["open"] = []
        for place, ((root, number), open_) in enumerate(self._open.items()):
            state.put(f"{place}.rows", open_.rows)
            state.put(f"{place}.own", open_.own)
            for tree, total in enumerate(open_.totals):
                if total is not None:
                    state.put(f"{place}.{tree}", total)
            kinds = [None if total is None else total.dtype.str for total in open_.totals]
            about = [root, number, open_.evaluation, True, kinds, open_.awaited, open_.sent, open_.due]
            state.values["open"].append(plain(about))

    def _load_open(self, state: State) -> None:
        self._open = {}
        for place, (root, number, evaluation, asked, kinds, awaited, sent, due) in enumerate(state.values["open"]):
            if not asked:
                continue  # of a run from before, when parts without a request were added up: it is asked for again
            rows, own = state.take(f"{place}.rows", np.uint32), state.take(f"{place}.own")
            totals = [kind and state.take(f"{place}.{tree}", kind) for tree, kind in enumerate(kinds)]
            scored = None if evaluation is None else (evaluation[0], evaluation[1])
            waiting = [set(parties) for parties in awaited]
            self._open[root, number] = OpenSum(rows, scored, totals, waiting, own, set(sent), due)

    def _save_early(self, state: State) -> None:
        if not self._early:
            return
        state.values["before_request"] = []
        for (root, number), parts in self._early.items():
            for (tree, child), part in parts.items():
                place = len(state.values["before_request"])
                state.values["before_request"].append([root, number, tree, child, part.dtype.str])
                state.put(f"before_request.{place}", part)

    def _load_early(self, state: State) -> None:
        self._early, self._early_bytes = {}, {}
        for place, (root, number, tree, child, kind) in enumerate(state.values.get("before_request", [])):
            self.keep_early((root, number), tree, child, state.take(f"before_request.{place}", kind))

    MEMORY = (
        value("_asked_up_to"),
        custom("_open", save=_save_open, load=_load_open),
        custom("_early", save=_save_early, load=_load_early),
    )
