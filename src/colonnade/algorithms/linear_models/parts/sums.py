"""Sums over all parties along a tree: one party's side of every sum under way, whoever is its root.

A request goes down the root's tree; every party answers at once from its current weights and adds what comes from
below, hidden as sum_schemes.py says. A lost party: its parent takes the last known sum from there if the scheme is
`plain` and it is young enough, and counts it; otherwise the sum is abandoned or waits, and nobody unmasks anybody. With
a time limit the same becomes of a sum for which a party's answer does not come in time, whatever its link looks like.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.last_known import LastKnown
from colonnade.algorithms.linear_models.parts.open_sums import NO_ROWS, Key, OpenSum, OpenSums
from colonnade.algorithms.linear_models.parts.patience import Patience
from colonnade.algorithms.linear_models.parts.settings import REMEMBERED
from colonnade.algorithms.linear_models.parts.sum_schemes import SumScheme
from colonnade.algorithms.parts.bounds import MOST_TOLD, check_all, is_within
from colonnade.errors import ProtocolError, RunError
from colonnade.messages import (
    Abandoned,
    EvaluationAbandoned,
    EvaluationMaskedSum,
    EvaluationProductRequest,
    EvaluationProductSum,
    MaskedSum,
    ProductRequest,
    ProductSum,
    SearchRequest,
)
from colonnade.party import Effect, Send
from colonnade.state import Remembering, included, value

ROWS_A_SUM = 16_384
"""SumLimits a frame's size; an evaluation of more rows takes several sums."""


@dataclass(frozen=True)
class Completed:
    """A sum that this party asked for, and its own part of it."""

    number: int
    total: NDArray[np.float64]
    own: NDArray[np.float64]


@dataclass(frozen=True)
class SumLimits:
    """What an honest party can send at most: known to all from the settings."""

    rows: int  # of a sum for training
    test_rows: int
    outputs: int
    product: float  # the magnitude of one party's part
    kept_bytes: int  # for one peer
    validation_rows: int = 0  # they come before the test rows

    @property
    def most_scored(self) -> int:
        """Rows of one sum for scoring."""
        return max(1, min(max(self.test_rows, self.validation_rows), ROWS_A_SUM))

    def may_score(self, first_row: int, row_count: int) -> bool:
        """Whether an evaluation asks for just these rows: a whole piece of the validation or of the test rows."""
        start, rows = (
            (0, self.validation_rows)
            if first_row < self.validation_rows
            else (
                self.validation_rows,
                self.test_rows,
            )
        )
        whole = min(ROWS_A_SUM, start + rows - first_row)
        return (first_row - start) % ROWS_A_SUM == 0 and 0 < row_count == whole


class Sums(Remembering):
    """The sums under way at one party. `products` gives its own part for some rows, `evaluate` for an evaluation.

    `oldest`: how many requests ago a lost child's last known sum may have come; 0: none is kept. `abandons`: whether a
    sum that lacks a party is given up (and asked for again later) or waits for its return.

    A schedule with a time limit says so to `patience`, tells it of whom it hears, and calls `look_at_the_time` when the
    timer runs out.
    """

    MEMORY = (
        value("_number", "_evaluations", "_failed", "waits_for_lost", "stale_products", "abandoned"),
        value("lost", restored=set),
        included("_scheme"),
        included("_open"),
        included("_last_known"),
        included("patience"),
    )

    def __init__(
        self,
        name: str,
        scheme: SumScheme,
        rows: int,
        oldest: int,
        abandons: bool,
        products: Callable[[NDArray[np.uint32]], NDArray[np.float64]],
        evaluate: Callable[[int, int, int], NDArray[np.float64]],
        bounds: SumLimits,
    ) -> None:
        self._name = name
        self._scheme = scheme
        self._rows = rows
        self.bounds = bounds
        self._abandons = abandons
        self._products = products
        self._evaluate = evaluate
        self.offer: Callable[[], NDArray[np.float64]] | None = None  # this party's part of a joint search, if any
        self._number = 0
        self._evaluations = 0
        self._failed: list[int] = []
        self._open = OpenSums(name, scheme.has_two_trees, bounds.kept_bytes)
        self._last_known = LastKnown(rows, oldest if scheme.is_plain else 0)
        self.patience = Patience(name)
        self.lost: set[str] = set()
        self.waits_for_lost = not abandons
        self.stale_products = 0
        self.abandoned = 0

    # --- as the root ---

    def begin(self, rows: NDArray[np.uint32]) -> tuple[int, list[Effect], Completed | None]:
        """Ask for the sum of the products of these rows; complete at once if nobody else takes part."""
        self._number += 1
        return (self._number, *self._answer(ProductRequest(self._name, self._number, rows)))

    def begin_evaluation(self, first_row: int, row_count: int) -> tuple[int, list[Effect], Completed | None]:
        self._evaluations += 1
        request = EvaluationProductRequest(self._name, self._evaluations, first_row, row_count)
        return (-self._evaluations, *self._answer(request))

    def begin_search(self, after: int, values: NDArray[np.float64]) -> tuple[int, list[Effect], Completed | None]:
        """Ask for the products of all rows at everybody's points (searching.py)."""
        self._number += 1
        return (self._number, *self._answer(SearchRequest(self._name, self._number, after, values)))

    @property
    def asked(self) -> int:
        """Sums for training of which this party is the root, so far."""
        return self._number

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
        return self._take_part((root, number), rows, None, self._products(rows) if own is None else own)

    def forget_last_known(self) -> None:
        """Everybody has gone back to earlier weights."""
        self._last_known.forget()

    def extend(self) -> None:
        """A training goes on after its end: what was under way then is gone. Numbers go on, and with them the masks."""
        self._open.forget()
        self._failed = []
        self.patience.begin_anew()

    def let_parts_overtake(self) -> None:
        """Requests do not come down the tree: a part from below may be here before the request for it."""
        self._open.may_overtake = True

    @property
    def has_failures(self) -> bool:
        return bool(self._failed)

    def failed(self, evaluations: bool = False) -> list[int]:
        """The numbers of this party's own sums, of training or of evaluation, abandoned since the last such call."""
        failed = [number for number in self._failed if (number < 0) == evaluations]
        self._failed = [number for number in self._failed if (number < 0) != evaluations]
        return failed

    # --- as a part of the tree ---

    def receive(self, sender: str, message: Any) -> tuple[list[Effect], Completed | None]:
        """A request, a sum, which `check` lets pass, or word that there will be none.

        The rest is judged before anything is changed.
        """
        if isinstance(message, Abandoned):  # not before: a party may be told of another's sum, too
            self.check(sender, message)
        self._check_due(sender, message)
        match message:
            case ProductRequest() | EvaluationProductRequest() | SearchRequest():
                return self._answer(message)
            case Abandoned() | EvaluationAbandoned():
                number = _number_here(message)
                if self._open.close((self._name, number)):
                    self._failed.append(number)
                return [], None
            case _:
                return self._add(sender, message, _tree_of(message))

    # --- what is refused ---

    def check(self, sender: str, message: Any) -> None:
        """Refuse what could not be right at any time, so that it need not be kept until its time has come."""
        if message.number < 1:
            raise ProtocolError(f"{sender} sent {type(message).__name__} of a sum without a number.")
        if message.root not in self._scheme.parties:
            raise ProtocolError(f"{sender} spoke of a sum of {message.root!r}, who is not in the federation.")
        match message:
            case ProductRequest():
                self._check_parent(sender, message.root)
                self.check_rows(sender, message.rows)
                if message.rows.size == 0:
                    raise ProtocolError(f"{sender} asked for the sum of no row.")
            case EvaluationProductRequest():
                self._check_parent(sender, message.root)
                self._check_scored(sender, message.first_row, message.row_count)
            case SearchRequest() if self.offer is not None:
                self._check_parent(sender, message.root)
            case ProductSum() | EvaluationProductSum() if self._scheme.is_plain:
                self._check_part(sender, message)
            case MaskedSum() | EvaluationMaskedSum() if not self._scheme.is_plain:
                self._check_part(sender, message)
            case Abandoned() | EvaluationAbandoned():
                last = self._evaluations if message.off_clock else self._number
                # Farther down, who passes requests on may have made one up, and the sender believed it.
                next_to_root = self._scheme.trees_of(message.root)[0].parent.get(sender) == self._name
                if message.root != self._name or (message.number > last and next_to_root):
                    raise ProtocolError(
                        f"{sender} abandoned the sum {message.number} of {message.root}, for which {self._name} has "
                        "not asked."
                    )
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no part of a sum here.")

    def check_rows(self, sender: str, rows: NDArray[np.uint32]) -> None:
        if rows.size and int(rows.max()) >= self._rows:
            raise ProtocolError(f"{sender} asked for a row that does not exist; there are {self._rows}.")
        if rows.size > self.bounds.rows:
            raise ProtocolError(f"{sender} asked for {rows.size} rows at once; {self.bounds.rows} are the most.")

    def check_turn(self, sender: str, root: str, number: int, numbers: int) -> None:
        """Refuse a request for a sum that is open, or of `numbers` numbers under a mask that is used up."""
        self._open.check_ask(sender, (root, number))
        self._scheme.check_mask(sender, root, number, numbers)

    def _check_parent(self, sender: str, root: str) -> None:
        if self._scheme.trees_of(root)[0].parent.get(self._name) != sender:
            raise ProtocolError(f"{sender} passed on a request of {root}, but is not above {self._name} in its tree.")

    def _check_scored(self, sender: str, first_row: int, row_count: int) -> None:
        if (first_row or row_count) and not self.bounds.may_score(first_row, row_count):
            raise ProtocolError(
                f"{sender} asked for an evaluation of {row_count} test rows from {first_row} on; there are "
                f"{self.bounds.test_rows}, asked for {ROWS_A_SUM} at a time."
            )

    def _check_part(self, sender: str, message: Any) -> None:
        tree, trees = _tree_of(message), self._scheme.trees_of(message.root)
        if not 0 <= tree < len(trees) or trees[tree].parent.get(sender) != self._name:
            raise ProtocolError(f"{sender} sent a part of a sum of {message.root} that does not run through here.")
        rows, width = message.total.shape
        bounds = self.bounds
        most = bounds.most_scored if message.off_clock else bounds.rows
        widths = {bounds.outputs, 2} if message.off_clock else {bounds.outputs}  # 2: penalty and gradient
        if not 0 < rows <= most or width not in widths:
            raise ProtocolError(
                f"{sender} sent a part of a sum of shape {rows}×{width}; 1 to {most} rows of {bounds.outputs} are "
                "asked for."
            )
        if self._scheme.is_plain:
            # So much for each of those whose products are in it, or who adds its own to a lie would pass for a liar.
            members = len(trees[tree].members(sender))
            largest = MOST_TOLD if message.off_clock else bounds.product
            check_all(sender, "products", message.total, members * largest)

    def _check_due(self, sender: str, message: Any) -> None:
        """Refuse what does not fit the sum that it belongs to."""
        match message:
            case ProductRequest():
                self.check_turn(sender, message.root, message.number, message.rows.size * self.bounds.outputs)
            case EvaluationProductRequest():
                numbers = message.row_count * self.bounds.outputs or 2
                self.check_turn(sender, message.root, _number_here(message), numbers)
            case SearchRequest():
                numbers = (self._rows + REMEMBERED) * self.bounds.outputs
                self.check_turn(sender, message.root, message.number, numbers)
            case ProductSum() | EvaluationProductSum() | MaskedSum() | EvaluationMaskedSum():
                key = (message.root, _number_here(message))
                open_ = self._open.of_part(key)
                if open_ is None:
                    if self._open.is_early(key):
                        self._open.check_early(sender, message.total)
                    return
                so_far: Any = open_.totals[_tree_of(message)]
                if message.total.shape != so_far.shape:
                    raise ProtocolError(
                        f"{sender} sent a part of a sum of shape {message.total.shape}; the other parts have the "
                        f"shapes {so_far.shape}."
                    )
                if open_.evaluation == (0, 0) and self._scheme.is_plain and message.total.min() < 0:
                    raise ProtocolError(f"{sender} told a penalty or the square of a norm below 0.")

    def _answer(
        self, request: ProductRequest | EvaluationProductRequest | SearchRequest
    ) -> tuple[list[Effect], Completed | None]:
        tree = self._scheme.trees_of(request.root)[0]
        forwarded: list[Effect] = [Send(child, request) for child in tree.children(self._name)]
        if isinstance(request, EvaluationProductRequest):
            scored = (request.first_row, request.row_count)
            key = (request.root, _number_here(request))
            effects, completed = self._take_part(key, NO_ROWS, scored, self._evaluate(*scored, request.number))
        elif isinstance(request, SearchRequest):
            assert self.offer is not None
            effects, completed = self.contribute(request.root, request.number, NO_ROWS, self.offer())
        else:
            effects, completed = self.contribute(request.root, request.number, request.rows)
        forwarded += effects
        return forwarded, completed

    def _take_part(
        self, key: Key, rows: NDArray[np.uint32], evaluation: tuple[int, int] | None, own: NDArray[np.float64]
    ) -> tuple[list[Effect], Completed | None]:
        """Start with this party's own products, masked if the scheme says so, and wait for what comes from below."""
        root, number = key
        if self._scheme.is_plain and evaluation is None and not is_within(own, self.bounds.product):
            raise RunError(
                f"A product of {self._name} has a magnitude beyond {self.bounds.product:.2g}, which no peer takes: the "
                "training has diverged. Scale its columns, or take a smaller step."
            )
        if evaluation is None:
            self._last_known.count_request()
        trees = self._scheme.trees_of(root)
        mine = own.copy() if root == self._name else None  # before others' parts are added to it
        open_ = self._open.ask(key, trees, self._scheme.parts(root, number, own))
        open_.rows, open_.evaluation = rows, evaluation
        if mine is not None:
            open_.own = mine
        if self.lost and not self.waits_for_lost and not self._replace(open_, self.lost):
            return self._abandon_or_wait(key, open_), None
        if self.patience.silent:
            self._replace(open_, self.patience.silent)  # where that cannot be, they may still answer in time
        effects, completed = self._send_up_if_complete(key, open_)
        if self.patience.timeout_seconds and any(open_.awaited):
            effects += self.patience.wait(root, trees, open_)
        return effects, completed

    def _add(self, sender: str, message: Any, tree: int) -> tuple[list[Effect], Completed | None]:
        key = (message.root, _number_here(message))
        if self._open.is_early(key):
            self._open.keep_early(key, tree, sender, message.total)
        open_ = self._open.of_part(key)
        if open_ is None or sender not in open_.awaited[tree]:
            return [], None
        open_.awaited[tree].discard(sender)
        open_.add(tree, message.total)
        self._last_known.remember(sender, open_, message.total)
        return self._send_up_if_complete(key, open_)

    def _send_up_if_complete(self, key: Key, open_: OpenSum) -> tuple[list[Effect], Completed | None]:
        root, number = key
        is_complete = open_.complete
        if is_complete:
            self._open.close(key)
        if root == self._name:
            done = Completed(number, self._scheme.opened(open_.totals), open_.own) if is_complete else None
            return [], done
        effects: list[Effect] = []
        trees = self._scheme.trees_of(root)
        for tree in open_.to_send():
            open_.sent.add(tree)
            message = self._scheme.message(root, number, tree, open_.totals[tree])
            effects.append(Send(trees[tree].parent[self._name], message))
        return effects, None

    # --- a party that cannot be reached, or does not answer ---

    def lose(self, peer: str) -> tuple[list[Effect], list[Completed]]:
        """A peer is lost: go on with what it sent last, or abandon the sums that wait for it."""
        self.lost.add(peer)
        return ([], []) if self.waits_for_lost else self.go_on_without_lost()

    def go_on_without_lost(self) -> tuple[list[Effect], list[Completed]]:
        effects: list[Effect] = []
        completed: list[Completed] = []
        for key, open_ in self._open.items():
            if not self._replace(open_, self.lost):
                effects += self._abandon_or_wait(key, open_)
                continue
            more, done = self._send_up_if_complete(key, open_)
            effects += more
            completed += [done] if done else []
        return effects, completed

    def look_at_the_time(self) -> tuple[list[Effect], list[Completed]]:
        """The timer has run out: sums that have waited long enough go on with what they had last, or are abandoned."""
        effects: list[Effect] = []
        completed: list[Completed] = []
        in_vain = False
        for key, open_ in self._open.items():
            if not self.patience.is_over(open_):
                continue
            late = set().union(*open_.awaited)
            self.patience.silent |= late
            if not self._replace(open_, late):
                effects += self._abandon(key)
                in_vain = True
                continue
            more, done = self._send_up_if_complete(key, open_)
            effects += more
            completed += [done] if done else []
        return [*effects, *self.patience.look_again(self._open, in_vain)], completed

    def _replace(self, open_: OpenSum, away: set[str]) -> bool:
        """Take last known sums for the children among these; False if there are none that are young enough."""
        replaced = self._last_known.replace(open_, away)
        self.stale_products += replaced or 0
        return replaced is not None

    def _abandon_or_wait(self, key: Key, open_: OpenSum) -> list[Effect]:
        may_go_without = open_.evaluation is not None or (open_.rows.size == 0 and self.offer is not None)
        return self._abandon(key) if self._abandons or may_go_without else []

    def _abandon(self, key: Key) -> list[Effect]:
        self._open.close(key)
        self.abandoned += 1
        root, number = key
        if root == self._name:
            self._failed.append(number)
            return []
        return [Send(root, (Abandoned if number > 0 else EvaluationAbandoned)(root, abs(number)))]

    def counts(self) -> dict[str, int]:
        """What this party made of the absence of others."""
        return {"late_rows": self.stale_products, "abandoned_sums": self.abandoned}


def _tree_of(message: Any) -> int:
    """The place of the tree up which a part comes."""
    return int(message.tree) - 1 if hasattr(message, "tree") else 0


def _number_here(message: Any) -> int:
    """The number of a sum as open_sums.py counts."""
    number: int = message.number
    return -number if message.off_clock else number
