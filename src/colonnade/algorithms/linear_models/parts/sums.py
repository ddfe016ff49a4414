"""Sums over all parties along a tree: one party's side of every sum under way, whoever is its root.

A request goes down the root's tree; every party answers at once from its current weights and adds what comes from
below. Schemes: `plain` (products as they are), `pairwise` (masks per pair that cancel in the sum), `two-tree` (own
masks, whose sum runs up a second, different tree). A lost party: with `plain` its parent takes the last known sum from
there if it is young enough, and counts it; otherwise the sum is abandoned or waits, and nobody unmasks anybody. With
a time limit the same becomes of a sum for which a party's answer does not come in time, whatever its link looks like.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.trees import Tree, balanced, different_pair
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import (
    Abandoned,
    EvaluationAbandoned,
    EvaluationMaskedSum,
    EvaluationProductRequest,
    EvaluationProductSum,
    MaskedSum,
    ProductRequest,
    ProductSum,
)
from colonnade.party import Effect, Send, SetTimer
from colonnade.privacy.masking import OwnMasks, PairwiseMasks
from colonnade.privacy.ring import FixedPoint
from colonnade.state import State

# A sum's root and its number there. Evaluations are counted apart, so that how often one is made does not change what
# the training sends: on the wire 1, 2, … of a kind of their own, in these books −1, −2, …
Key = tuple[str, int]
Totals = NDArray[np.float64] | NDArray[np.uint64]
_NO_ROWS = np.zeros(0, np.uint32)
_NOTHING = np.zeros((0, 0))
TIMER = "request"
"""The name of the timer after which `look_at_the_time` is to be called."""
_MOMENT_SECONDS = 1e-6  # a timer may run out so much too soon, by rounding


@dataclass
class _Open:
    """A sum that waits for parties below this one."""

    rows: NDArray[np.uint32]  # whose products are summed; none for an evaluation
    evaluation: tuple[int, int] | None  # first test row and how many of them, if it is for scoring
    asked: bool  # whether the request has come: masks from below may come first
    totals: list[Totals | None]  # one a tree
    awaited: list[set[str]]  # one a tree: children that have not sent their sum
    own: NDArray[np.float64]  # at the root: its own products
    sent: set[int] = field(default_factory=set)  # trees whose sum has gone up
    due: float = inf  # when it has waited long enough

    def to_send(self) -> list[int]:
        """Trees whose sum can go up now. Each goes alone: in another tree a child may wait for this very part."""
        return [
            tree for tree, missing in enumerate(self.awaited) if self.asked and not missing and tree not in self.sent
        ]


@dataclass(frozen=True)
class Completed:
    """A sum that this party asked for, and its own part of it."""

    number: int
    total: NDArray[np.float64]
    own: NDArray[np.float64]


@dataclass
class _LastKnown:
    """What a child sent last, row by row, and when."""

    total: NDArray[np.float64]
    when: NDArray[np.int64] = field(repr=False)


class Sums:
    """The sums under way at one party. `products` gives its own part for some rows, `evaluate` for an evaluation.

    `oldest`: how many requests ago a lost child's last known sum may have come; 0: none is kept. `abandons`: whether a
    sum that lacks a party is given up (and asked for again later) or waits for its return.

    `timeout_seconds`, which a schedule may set, is how long the root waits for an answer; who passes a request on waits
    for less, so that whoever is next to a party that does not answer is the first to go on without it. A schedule with
    a time limit keeps `now`, says of whom it hears, and calls `look_at_the_time` when the timer runs out.
    """

    def __init__(
        self,
        name: str,
        parties: Sequence[str],
        scheme: str,
        arity: int,
        point: FixedPoint,
        rows: int,
        oldest: int,
        abandons: bool,
        products: Callable[[NDArray[np.uint32]], NDArray[np.float64]],
        evaluate: Callable[[int, int], NDArray[np.float64]],
    ) -> None:
        self._name = name
        self._parties = tuple(parties)
        self._scheme = scheme
        self._arity = arity
        self._point = point
        self._rows = rows
        self._oldest = oldest if scheme == "plain" else 0
        self._abandons = abandons
        self._products = products
        self._evaluate = evaluate
        self._trees: dict[str, tuple[Tree, ...]] = {}
        self._masks: PairwiseMasks | OwnMasks | None = None
        self._number = 0
        self._evaluations = 0
        self._answered = 0  # requests so far: the clock of last known products
        self._open: dict[Key, _Open] = {}
        self._last_known: dict[str, _LastKnown] = {}
        self._last_scored: dict[tuple[str, int, int], NDArray[np.float64]] = {}  # (child, first test row, count)
        self._failed: list[int] = []
        self.timeout_seconds = 0.0  # 0: waits for ever
        self.now = 0.0
        self._patience: dict[str, float] = {}  # root → which part of that this party waits for its children there
        # Doubled whenever waiting was in vain: a limit shorter than answers take would never let one through.
        self._leniency = 1.0
        self._looks_at = inf  # when the timer runs out
        self._asked_up_to: dict[str, list[int]] = {}  # root → the latest sums of training and of evaluation known here
        self._silent: set[str] = set()  # did not answer in time, and have not been heard of since
        self.lost: set[str] = set()
        self.waits_for_lost = not abandons
        self.stale_products = 0
        self.abandoned = 0

    def mask_with(self, masks: PairwiseMasks | OwnMasks) -> None:
        self._masks = masks

    # --- as the root ---

    def begin(self, rows: NDArray[np.uint32]) -> tuple[int, list[Effect], Completed | None]:
        """Ask for the sum of the products of these rows; complete at once if nobody else takes part."""
        self._number += 1
        return (self._number, *self._answer(ProductRequest(self._name, self._number, rows)))

    def begin_evaluation(self, first_row: int, row_count: int) -> tuple[int, list[Effect], Completed | None]:
        self._evaluations += 1
        request = EvaluationProductRequest(self._name, self._evaluations, first_row, row_count)
        return (-self._evaluations, *self._answer(request))

    def next_number(self) -> int:
        """For a sum that is announced by other means than a request."""
        self._number += 1
        return self._number

    def contribute(
        self, root: str, number: int, rows: NDArray[np.uint32], own: NDArray[np.float64] | None = None
    ) -> tuple[list[Effect], Completed | None]:
        """Take part in a sum, be it without a request: the steps of a synchronous schedule are known to all.

        `own`: what to add instead of the products of these rows.
        """
        return self._take_part(root, number, rows, None, self._products(rows) if own is None else own)

    def failed(self, evaluations: bool = False) -> list[int]:
        """The numbers of this party's own sums, of training or of evaluation, abandoned since the last such call."""
        failed = [number for number in self._failed if (number < 0) == evaluations]
        self._failed = [number for number in self._failed if (number < 0) != evaluations]
        return failed

    # --- as a part of the tree ---

    def receive(self, sender: str, message: Any) -> tuple[list[Effect], Completed | None]:
        """A request, a sum, or word that there will be none."""
        match message:
            case ProductRequest():
                self._check_parent(sender, message.root)
                self.check_rows(sender, message.rows)
                return self._answer(message)
            case EvaluationProductRequest():
                self._check_parent(sender, message.root)
                return self._answer(message)
            case ProductSum() | EvaluationProductSum() if self._scheme == "plain":
                return self._add(sender, message, 0)
            case MaskedSum() | EvaluationMaskedSum() if self._scheme != "plain":
                if message.tree not in (1, 2):
                    raise ProtocolError(f"{sender} sent a sum of tree {message.tree}; there are 1 and 2.")
                return self._add(sender, message, message.tree - 1)
            case Abandoned() | EvaluationAbandoned():
                number = _booked(message)
                if self._open.pop((self._name, number), None) is not None:
                    self._failed.append(number)
                return [], None
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no part of a sum.")

    def check_rows(self, sender: str, rows: NDArray[np.uint32]) -> None:
        if rows.size and int(rows.max()) >= self._rows:
            raise ProtocolError(f"{sender} asked for a row that does not exist; there are {self._rows}.")

    def _answer(self, request: ProductRequest | EvaluationProductRequest) -> tuple[list[Effect], Completed | None]:
        tree = self._trees_of(request.root)[0]
        forwarded: list[Effect] = [Send(child, request) for child in tree.children(self._name)]
        if isinstance(request, EvaluationProductRequest):
            scored = (request.first_row, request.row_count)
            effects, completed = self._take_part(
                request.root, _booked(request), _NO_ROWS, scored, self._evaluate(*scored)
            )
        else:
            effects, completed = self.contribute(request.root, request.number, request.rows)
        forwarded += effects
        return forwarded, completed

    def _take_part(
        self,
        root: str,
        number: int,
        rows: NDArray[np.uint32],
        evaluation: tuple[int, int] | None,
        own: NDArray[np.float64],
    ) -> tuple[list[Effect], Completed | None]:
        """Start with the own products, masked if the scheme says so, and wait for what comes from below."""
        if evaluation is None:
            self._answered += 1
        trees = self._trees_of(root)
        key = (root, number)
        open_ = self._open.get(key)
        if open_ is None:
            open_ = self._opened(trees)
            if any(open_.awaited):
                self._open[key] = open_
        elif open_.asked:
            raise ProtocolError(f"The sum {number} of {root} was asked for twice.")
        if self._scheme == "two-tree":
            latest = self._asked_up_to.setdefault(root, [0, 0])
            latest[number < 0] = max(latest[number < 0], abs(number))
        open_.rows, open_.evaluation, open_.asked = rows, evaluation, True
        if root == self._name:
            open_.own = own.copy()
        for tree, part in enumerate(self._own_parts(key, own)):
            _accumulate(open_, tree, part)
        if self.lost and not self.waits_for_lost and not self._replace(open_, self.lost):
            if self._abandons or evaluation is not None:
                return self._abandon(key, evaluation), None
            return [], None
        if self._silent:
            self._replace(open_, self._silent)  # where that cannot be, they may still answer in time
        effects, completed = self._send_up_if_complete(key, open_)
        if self.timeout_seconds and any(open_.awaited):
            effects += self._wait_for(root, open_)
        return effects, completed

    def _opened(self, trees: tuple[Tree, ...]) -> _Open:
        awaited = [set(tree.children(self._name)) for tree in trees]
        return _Open(_NO_ROWS, None, False, [None] * len(trees), awaited, _NOTHING)

    def _own_parts(self, key: Key, own: NDArray[np.float64]) -> tuple[Totals, ...]:
        if self._scheme == "plain":
            return (own,)
        assert self._masks is not None, "masks are agreed on before the first sum"
        root, number = key
        kind = "training" if number > 0 else "evaluation"
        mask = self._masks.mask(root, abs(number), own.size, kind).reshape(own.shape)
        hidden = self._point.encode(own)
        hidden += mask
        return (hidden,) if self._scheme == "pairwise" else (hidden, mask)

    def _add(self, sender: str, message: Any, tree: int) -> tuple[list[Effect], Completed | None]:
        key = (message.root, _booked(message))
        trees = self._trees_of(message.root)
        if tree >= len(trees) or trees[tree].parent.get(sender) != self._name:
            raise ProtocolError(f"{sender} sent a part of a sum of {message.root} that does not run through here.")
        open_ = self._open.get(key)
        if open_ is None:
            if self._scheme != "two-tree":
                return [], None  # of a sum that was abandoned, or went on without it
            if abs(key[1]) <= self._asked_up_to.get(message.root, (0, 0))[key[1] < 0]:
                return [], None  # the same: its request has come and gone
            open_ = self._open[key] = self._opened(trees)  # what runs up one tree may overtake the request
        if sender not in open_.awaited[tree]:
            return [], None
        open_.awaited[tree].discard(sender)
        _accumulate(open_, tree, message.total)
        if self._oldest:
            self._remember(sender, open_, message.total)
        return self._send_up_if_complete(key, open_)

    def _send_up_if_complete(self, key: Key, open_: _Open) -> tuple[list[Effect], Completed | None]:
        root, number = key
        totals: list[Any] = open_.totals
        complete = open_.asked and not any(open_.awaited)
        if complete:
            self._open.pop(key, None)
        if root == self._name:
            if not complete:
                return [], None
            if self._scheme == "plain":
                return [], Completed(number, totals[0], open_.own)
            exact = totals[0] if self._scheme == "pairwise" else totals[0] - totals[1]
            return [], Completed(number, self._point.decode(exact), open_.own)
        effects: list[Effect] = []
        trees = self._trees_of(root)
        for tree in open_.to_send():
            open_.sent.add(tree)
            parent = trees[tree].parent[self._name]
            if self._scheme == "plain":
                plain = ProductSum if open_.evaluation is None else EvaluationProductSum
                effects.append(Send(parent, plain(root, abs(number), totals[tree])))
            else:
                masked = MaskedSum if open_.evaluation is None else EvaluationMaskedSum
                effects.append(Send(parent, masked(root, abs(number), tree + 1, totals[tree])))
        return effects, None

    def _trees_of(self, root: str) -> tuple[Tree, ...]:
        trees = self._trees.get(root)
        if trees is None:
            if root not in self._parties:
                raise ProtocolError(f"A sum was asked for in the name of {root!r}, who is not in the federation.")
            if self._scheme == "two-tree":
                trees = different_pair(self._parties, root)
            else:
                trees = (balanced(self._parties, root, self._arity),)
            self._trees[root] = trees
        return trees

    def _check_parent(self, sender: str, root: str) -> None:
        if self._trees_of(root)[0].parent.get(self._name) != sender:
            raise ProtocolError(f"{sender} passed on a request of {root}, but is not above {self._name} in its tree.")

    # --- a party that cannot be reached ---

    def lose(self, peer: str) -> tuple[list[Effect], list[Completed]]:
        """A peer is lost: go on with what it sent last, or abandon the sums that wait for it."""
        self.lost.add(peer)
        return ([], []) if self.waits_for_lost else self.go_on_without_lost()

    def go_on_without_lost(self) -> tuple[list[Effect], list[Completed]]:
        effects: list[Effect] = []
        completed: list[Completed] = []
        for key, open_ in list(self._open.items()):
            if not open_.asked:
                continue  # seen to when the request comes
            if not self._replace(open_, self.lost):
                given_up = self._abandons or open_.evaluation is not None
                effects += self._abandon(key, open_.evaluation) if given_up else []
                continue
            more, done = self._send_up_if_complete(key, open_)
            effects += more
            completed += [done] if done else []
        return effects, completed

    def _replace(self, open_: _Open, away: set[str]) -> bool:
        """Take last known sums for the children among these; False if there are none that are young enough."""
        missing = [awaited & away for awaited in open_.awaited]
        if not any(missing):
            return True
        if self._scheme != "plain":
            return False
        known = {child: self._known(child, open_) for child in missing[0]}
        if any(total is None for total in known.values()):
            return False
        for child, total in known.items():
            open_.awaited[0].discard(child)
            _accumulate(open_, 0, total)
            self.stale_products += open_.rows.size
        return True

    def _known(self, child: str, open_: _Open) -> NDArray[np.float64] | None:
        """What a lost child sent last for these rows, if all of it is young enough."""
        if open_.evaluation is not None:
            return self._last_scored.get((child, *open_.evaluation))
        known = self._last_known.get(child)
        if known is None:
            return None
        when = known.when[open_.rows]
        young = when.size == 0 or (int(when.min()) > 0 and self._answered - int(when.min()) <= self._oldest)
        return known.total[open_.rows] if young else None

    def _abandon(self, key: Key, evaluation: tuple[int, int] | None) -> list[Effect]:
        self._open.pop(key, None)
        self.abandoned += 1
        root, number = key
        if root == self._name:
            self._failed.append(number)
            return []
        return [Send(root, (Abandoned if evaluation is None else EvaluationAbandoned)(root, abs(number)))]

    def _remember(self, child: str, open_: _Open, total: NDArray[np.float64]) -> None:
        if open_.evaluation is not None:
            self._last_scored[child, *open_.evaluation] = total.copy()
            return
        known = self._last_known.get(child)
        if known is None:
            shape = (self._rows, total.shape[1])
            known = self._last_known[child] = _LastKnown(np.zeros(shape), np.zeros(self._rows, np.int64))
        known.total[open_.rows] = total
        known.when[open_.rows] = self._answered

    # --- a party that does not answer ---

    def hear(self, peer: str) -> None:
        """A peer has said something: it is there, and its answers are waited for again."""
        self._silent.discard(peer)

    def _wait_for(self, root: str, open_: _Open) -> list[Effect]:
        """Note how long a sum may wait, and set the timer if it runs out too late for that."""
        patience = self._patience.get(root)
        if patience is None:
            heights = [(_height(tree, self._name), _height(tree, root)) for tree in self._trees_of(root)]
            patience = self._patience[root] = max(own / whole for own, whole in heights)
        open_.due = self.now + self.timeout_seconds * self._leniency * patience
        return self._set_timer(open_.due)

    def _set_timer(self, due: float) -> list[Effect]:
        # One timer for all sums, which are many: it is set again when it has run out, not with every sum.
        if due >= self._looks_at:
            return []
        self._looks_at = due
        return [SetTimer(TIMER, max(0.0, due - self.now))]

    def look_at_the_time(self) -> tuple[list[Effect], list[Completed]]:
        """The timer has run out: sums that have waited long enough go on with what they had last, or are abandoned."""
        self._looks_at = inf
        effects: list[Effect] = []
        completed: list[Completed] = []
        in_vain = False
        for key, open_ in list(self._open.items()):
            if open_.due > self.now + _MOMENT_SECONDS:
                continue
            late = {party for parties in open_.awaited for party in parties}
            self._silent |= late
            if not self._replace(open_, late):
                effects += self._abandon(key, open_.evaluation)
                in_vain = True
                continue
            more, done = self._send_up_if_complete(key, open_)
            effects += more
            completed += [done] if done else []
        self._leniency *= 2 if in_vain else 1
        return [*effects, *self._set_timer(min((open_.due for open_ in self._open.values()), default=inf))], completed

    # --- state ---

    def counts(self) -> dict[str, int]:
        """What this party made of the absence of others."""
        return {"late_rows": self.stale_products, "abandoned_sums": self.abandoned}

    def state(self) -> State:
        state = State(
            values={
                "number": self._number,
                "evaluations": self._evaluations,
                "answered": self._answered,
                "failed": list(self._failed),
                "lost": sorted(self.lost),
                "silent": sorted(self._silent),
                "looks_at": self._looks_at,
                "leniency": self._leniency,
                "asked_up_to": {root: list(latest) for root, latest in self._asked_up_to.items()},
                "waits_for_lost": self.waits_for_lost,
                "stale_products": self.stale_products,
                "abandoned": self.abandoned,
                "masks": None if self._masks is None else self._masks.state(),
                "last_known": sorted(self._last_known),
                "last_scored": [list(what) for what in self._last_scored],
                "open": [],
            }
        )
        for child, known in self._last_known.items():
            state.tensors[f"last of {child}"] = torch.from_numpy(known.total.copy())
            state.tensors[f"when of {child}"] = torch.from_numpy(known.when.copy())
        for place, total in enumerate(self._last_scored.values()):
            state.tensors[f"scored.{place}"] = torch.from_numpy(total.copy())
        for place, ((root, number), open_) in enumerate(self._open.items()):
            state.tensors[f"{place}.rows"] = torch.from_numpy(open_.rows.view(np.int32).copy())
            state.tensors[f"{place}.own"] = torch.from_numpy(open_.own.copy())
            kinds: list[str | None] = []
            for tree, sum_ in enumerate(open_.totals):
                kinds.append(None if sum_ is None else sum_.dtype.str)
                if sum_ is not None:
                    bits = sum_.view(np.int64) if sum_.dtype == np.uint64 else sum_
                    state.tensors[f"{place}.{tree}"] = torch.from_numpy(bits.copy())
            awaited = [sorted(parties) for parties in open_.awaited]
            evaluation = None if open_.evaluation is None else list(open_.evaluation)
            state.values["open"].append(
                [root, number, evaluation, open_.asked, kinds, awaited, sorted(open_.sent), open_.due]
            )
        return state

    def restore(self, state: State) -> None:
        values = state.values
        self._number, self._evaluations = values["number"], values["evaluations"]
        self._answered = values["answered"]
        self._failed, self.lost = list(values["failed"]), set(values["lost"])
        self._silent, self._looks_at = set(values["silent"]), values["looks_at"]
        self._leniency = values["leniency"]
        self._asked_up_to = {root: list(latest) for root, latest in values["asked_up_to"].items()}
        self.waits_for_lost = values["waits_for_lost"]
        self.stale_products, self.abandoned = values["stale_products"], values["abandoned"]
        if values["masks"] is not None:
            assert self._masks is not None, "masks are agreed on before the state is restored"
            self._masks.restore(values["masks"])
        self._last_known = {
            child: _LastKnown(
                state.tensors[f"last of {child}"].numpy().copy(), state.tensors[f"when of {child}"].numpy().copy()
            )
            for child in values["last_known"]
        }
        self._last_scored = {
            (child, first, count): state.tensors[f"scored.{place}"].numpy().copy()
            for place, (child, first, count) in enumerate(values["last_scored"])
        }
        self._open = {}
        for place, (root, number, evaluation, asked, kinds, awaited, sent, due) in enumerate(values["open"]):
            rows = state.tensors[f"{place}.rows"].numpy().view(np.uint32)
            totals = [
                None if kind is None else state.tensors[f"{place}.{tree}"].numpy().view(kind).copy()
                for tree, kind in enumerate(kinds)
            ]
            scored = None if evaluation is None else (evaluation[0], evaluation[1])
            own = state.tensors[f"{place}.own"].numpy()
            waiting = [set(parties) for parties in awaited]
            self._open[root, number] = _Open(rows, scored, asked, totals, waiting, own, set(sent), due)


def _height(tree: Tree, name: str) -> int:
    """How many messages follow one another from the lowest party below this one."""
    return max((1 + _height(tree, child) for child in tree.children(name)), default=0)


def _booked(message: Any) -> int:
    """The number of a sum in the books."""
    number: int = message.number
    return -number if message.off_clock else number


def _accumulate(open_: _Open, tree: int, part: Any) -> None:
    so_far: Any = open_.totals[tree]
    if so_far is None:
        # A decoded array is a view of its frame, which is not ours to write to.
        open_.totals[tree] = part if part.flags.owndata else part.copy()
    elif so_far.shape == part.shape:
        so_far += part
    else:
        raise ProtocolError(f"The parts of a sum have the shapes {so_far.shape} and {part.shape}; they must agree.")


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
