"""The conversation of a joint search (joint_search.py): who offers a point when, and who has taken what was found.

    label party                                      everybody
    SearchRequest              →  down its tree      offers a point, and steps no more
                               ←  up the tree        products of all rows at that point, hidden as all sums are
    SearchStep                 →                     takes up the best weights
                               ←                     SearchReply
    SearchStop, or what the schedule does next

Nobody steps between its offer and the end, so that all blocks move at once. A search that lacks a party is given up: it
costs what was sent, and the training goes on as before. Searches are spread so that one is the end of the training.

A search is a barrier, which lasts as long as the slowest party takes. It counts as an epoch. Where nobody waits for
anybody otherwise and the last one took longer than an epoch of mini-batches, there are more of these before the next.
"""

from collections import Counter
from collections.abc import Callable
from math import floor, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty, searches_every
from colonnade.algorithms.linear_models.parts.joint_search import JointSearch, Points
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear
from colonnade.errors import ProtocolError
from colonnade.messages import SearchReply, SearchRequest, SearchStep, SearchStop
from colonnade.party import Effect, Send
from colonnade.state import Remembering, optional_part, part, value

Floats = NDArray[np.float64]
OF_A_SEARCH = (SearchRequest, SearchStep, SearchReply, SearchStop)
_MOST_APART = 0.25
"""Of the planned epochs: so many, at most, lie between two searches however long one takes."""


def next_search(epoch: float, epochs: float, every: float) -> float:
    """When the next of all searches is that end with the training; infinite after the last.

    Each counts as an epoch, and there is none before something was learnt. One that is late, by half of what lies
    between two at most (or of an epoch), is still made: sums under way are waited for.

    >>> [next_search(epoch, 10.0, 0.5) for epoch in (0.0, 2.7, 4.5, 8.0, 10.0)]
    [1.5, 3.0, 4.5, 9.0, inf]
    """
    last, apart, late = epochs - 1, 1 + every, min(every, 1.0) / 2
    left = floor((last - max(epoch, 1 + every) + late) / apart + 1e-9)
    return last - left * apart if left >= 0 else inf


class SearchTime(Remembering):
    """How long the last search took, in epochs of the mini-batches before it.

    >>> time = SearchTime()
    >>> for epoch, now in ((0.0, 0.0), (1.0, 2.0), (1.25, 3.0)): time.look(epoch, now)
    >>> time.begin(1.25, 3.0), time.end(2.25, 5.0, found=True)  # an epoch takes 4 seconds, the search took 2
    (None, None)
    >>> time.begin(2.5, 6.0), time.end(2.5, 36.0, found=False)  # one that is given up says nothing of the others
    (None, None)
    >>> time.search_epochs
    0.5
    """

    MEMORY = (value("search_epochs", "_since", "_epoch_seconds", "_began"),)

    def __init__(self) -> None:
        self.search_epochs = 0.0
        self._since: list[float] = []  # the epoch and the time at which mini-batches began
        self._epoch_seconds = 0.0
        self._began = 0.0

    def look(self, epoch: float, now: float) -> None:
        """Mini-batches are made; a first pass, of few messages, is over after an epoch."""
        if not self._since and epoch >= 1:
            self._since = [epoch, now]

    def begin(self, epoch: float, now: float) -> None:
        self._began = now
        if self._since and epoch > self._since[0]:
            self._epoch_seconds = (now - self._since[1]) / (epoch - self._since[0])

    def end(self, epoch: float, now: float, found: bool) -> None:
        self._since = [epoch, now]
        if found and self._epoch_seconds > 0:
            self.search_epochs = max(0.0, now - self._began) / self._epoch_seconds


def searching_of(block_party: BlockParty, known: Callable[[], Floats]) -> "SearchSchedule | None":
    """A party's side of joint searches, if there are any. `known`: residuals of all rows, as far as they are kept."""
    return SearchSchedule(block_party, known) if searches_every(block_party.seat) else None


class SearchSchedule(Remembering):
    """One party's side of the searches; the label party leads."""

    MEMORY = (
        value("done", "under_way", "_void", "_over"),
        value("_next_at", saved=lambda epoch: epoch if epoch < inf else None, restored=lambda epoch: epoch or inf),
        value("_awaited", restored=set),
        value("_ask_again", saved=dict, restored=Counter),
        part("points"),
        optional_part("_time"),
        optional_part("_search"),
    )

    def __init__(self, block_party: BlockParty, known: Callable[[], Floats]) -> None:
        self._block_party = block_party
        self._seat = block_party.seat
        self.points = Points(block_party, known)
        self._search: JointSearch | None = None
        if self._seat.is_label_party:
            assert block_party.targets is not None
            at_zero = self._seat.start is None
            self._search = JointSearch(block_party.loss, block_party.targets, block_party.weights, at_zero)
        self.done = 0  # searches whose step was taken here
        self.under_way = 0  # the number of the sum of the search that this party has offered a point for; 0: none
        self._void = 0  # the last sum from before everybody went back to earlier weights
        self._over = 0  # the last search that is known to be over
        self._awaited: set[str] = set()  # at the label party: who has not taken the step yet
        self._ask_again: Counter[str] = Counter()  # and how often each may ask for something again
        self._next_at = 0.0
        is_asynchronous = isinstance(self._seat.settings, AsynchronousLinear)
        self._time = SearchTime() if is_asynchronous and self._seat.is_label_party else None
        self.plan(0.0)
        block_party.sums.offer = self.points.offer

    # --- when ---

    def plan(self, epoch: float) -> None:
        """What is the next, from now on."""
        epochs, every = self._seat.training.epochs, searches_every(self._seat)
        if self._time is not None:
            every = max(every, min(self._time.search_epochs - 1, _MOST_APART * epochs))
        self._next_at = next_search(epoch, epochs, every)

    def is_due(self, epoch: float) -> bool:
        """None that would lack a party is begun."""
        sums = self._block_party.sums
        if self._time is not None:
            self._time.look(epoch, sums.patience.now)
        return epoch >= self._next_at - 1e-9 and not self.under_way and not (sums.lost or sums.patience.silent)

    # --- the label party ---

    def begin(self, values: Floats, epoch: float) -> Any:
        """Ask everybody; what `Sums` gives for a sum that was begun."""
        if self._time is not None:
            self._time.begin(epoch, self._block_party.sums.patience.now)
        number, effects, completed = self._block_party.sums.begin_search(self.done, values)
        self.under_way = number
        return effects, completed

    def find(self, told: Floats) -> tuple[SearchStep, Floats, float]:
        """The step for everybody, the outputs there, and their mean loss."""
        assert self._search is not None
        shares, outputs, residuals, loss = self._search.find(told)
        self._awaited = {*self._block_party.peers} - self._block_party.sums.lost
        return SearchStep(self.done + 1, self.under_way, shares, residuals), outputs, loss

    def awaits(self, number: int) -> bool:
        """Whether that is the sum of the search under way, and nothing was found yet. Others have a sum so numbered."""
        return self._search is not None and number == self.under_way > 0 and not self._awaited

    @property
    def waits(self) -> bool:
        """Whether somebody has not taken the step yet."""
        return bool(self._awaited)

    def taken(self, party: str) -> bool:
        """A party has taken the step, or cannot be reached; True if it was the last one waited for."""
        if party not in self._awaited:
            return False
        self._awaited.discard(party)
        return not self._awaited

    def end(self, epoch: float, found: bool) -> list[Effect]:
        """The search is over, or given up."""
        number, self.under_way = self.under_way, 0
        self._over = max(self._over, number)
        self._awaited = set()
        self._ask_again.update(self._block_party.peers)
        if self._time is not None:
            self._time.end(epoch, self._block_party.sums.patience.now, found)
        self.plan(epoch)
        return [Send(peer, SearchStop(number)) for peer in self._block_party.peers]

    def may_ask_again(self, party: str) -> bool:
        """Whether its request before may be one that it gave up for a search: each search overtakes one at most."""
        may = self._ask_again[party] > 0
        self._ask_again[party] -= may
        return may

    # --- everybody ---

    def check(self, sender: str, message: Any) -> None:
        """Refuse what could not be right at any time."""
        seat = self._seat
        match message:
            case SearchRequest():
                if message.after < 0 or message.root != seat.label_party:
                    raise ProtocolError(f"{sender} asked for a point after {message.after} searches, which cannot be.")
            case SearchReply():
                if not seat.is_label_party:
                    raise ProtocolError(f"{sender} told {seat.name}, which leads no search, of one.")
                if message.search > self.done:
                    raise ProtocolError(f"{sender} took the step of the search {message.search}, which was never made.")
            case SearchStep():
                if message.residuals.shape != (seat.rows, seat.outputs) or message.search < 1:
                    raise ProtocolError(f"{sender} sent the search {message.search} of {message.residuals.shape}.")

    def is_early(self, message: SearchRequest | SearchStep) -> bool:
        """Whether a step before it has not come yet."""
        return (message.after if isinstance(message, SearchRequest) else message.search - 1) > self.done

    def offered(self, request: SearchRequest) -> bool:
        """A point was offered; whether this party is to wait for what comes of it."""
        if request.number <= max(self._void, self._over):
            return False
        self.under_way = request.number
        return True

    def take(self, sender: str, step: SearchStep) -> Floats | None:
        """Take up what was found; the residuals there. None if it is of weights that are gone."""
        if step.search != self.done + 1:
            raise ProtocolError(f"{sender} sent the search {step.search} after the search {self.done}.")
        self.done = step.search
        if step.number <= self._void:
            return None
        if step.number != self.under_way or len(step.shares) != self.points.count:
            raise ProtocolError(f"{sender} sent what {len(step.shares)} points of the sum {step.number} gave.")
        self.points.check(sender, step.shares)
        residuals = np.array(step.residuals)
        self.points.take(step.shares, residuals.copy())
        return residuals

    def is_over(self, number: int) -> bool:
        """The label party says so; whether this party waited for it."""
        self._over = max(self._over, number)
        waited = self.under_way == number
        if waited:
            self.under_way = 0
        return waited

    def forget(self, void: int, epoch: float) -> None:
        """Everybody goes back to other weights: the sums up to that one are of weights that are gone."""
        self.plan(epoch + 1)
        self._void = max(self._void, void)
        self.under_way, self._awaited = 0, set()
        self.points.forget()
        if self._search is not None:
            self._search.forget()

    def extend(self, epoch: float) -> None:
        """The training goes on after its end; what was under way then is gone."""
        self.forget(self._block_party.sums.asked if self._search else self.under_way, epoch)
