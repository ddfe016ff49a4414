"""The label party's choice among the models of a linear federation that evaluations scored.

A party copies its block when it adds its products of the first validation rows to the sum; further rows of the same
evaluation are multiplied with that copy. So what was scored is what can be gone back to, bit for bit. A sum that lacks
a party is not scored at all.
"""

from collections.abc import Sequence
from typing import Any

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.parts.best import BestScore, check_they_can_choose
from colonnade.algorithms.parts.divergence import worst_scores
from colonnade.algorithms.parts.losses import headline
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import GoBack, GoOn, Keep, WentBack
from colonnade.party import Effect, Send
from colonnade.state import Remembering, part, value


class LinearRecall(Remembering):
    """Who has gone back to an earlier version of its block, as the label party asked."""

    MEMORY = (value("_number"), value("_went", restored=set), value("_void"))

    def __init__(self, block_party: BlockParty) -> None:
        self._block_party = block_party
        self._number = 0  # of the last GoBack
        self._went: set[str] = set()  # of the peers, who has answered it
        self._void: dict[str, int] = {}  # requests of a peer up to this one are of weights that are gone

    def call(self, version: int, step: float, sums: int = 0) -> list[Effect]:
        """Ask all peers to take that version up; `sums`: how many were asked for before, of weights that are gone."""
        self._number += 1
        self._went = set()
        return [Send(peer, GoBack(self._number, version, sums, step)) for peer in self._block_party.peers]

    def went_back(self, peer: str, answer: WentBack) -> bool:
        """A peer says so; False if it means an earlier call."""
        if not 0 < answer.number <= self._number or answer.uploads < 0:
            raise ProtocolError(
                f"{peer} went back to a model that nobody asked for: request {answer.number} of {self._number}."
            )
        if answer.number < self._number:
            return False
        self._went.add(peer)
        self._void[peer] = answer.uploads
        return True

    def extend(self) -> None:
        """What a peer that was away would have answered is gone: nobody is waited for."""
        self._went = {*self._block_party.peers}

    @property
    def all_are_back(self) -> bool:
        """Those who are away are not waited for."""
        return self._number == 0 or {*self._block_party.peers} - self._block_party.sums.lost <= self._went

    def is_void(self, peer: str, request: int) -> bool:
        """Whether a request was made before its sender went back."""
        return self.is_behind(peer) or request <= self._void.get(peer, 0)

    def is_behind(self, peer: str) -> bool:
        """Whether a peer has still to go back."""
        return self._number > 0 and peer not in self._went

    def go_on(self, peers: Sequence[str] | None = None) -> list[Effect]:
        """Tell those who are back, or these, that all are."""
        return [Send(peer, GoOn(self._number)) for peer in (sorted(self._went) if peers is None else peers)]


class LinearSelection(Remembering):
    """Which evaluation was the best, and whether everybody was asked to go back to it."""

    MEMORY = (value("version", "chosen"), part("best"))

    def __init__(self, block_party: BlockParty, recall: LinearRecall) -> None:
        seat = block_party.seat
        metric = headline(seat.task, seat.training.metric)
        if metric == "log_loss" and block_party.loss.name != "auto":
            raise SettingsError(
                f"training.metric = 'log_loss' is not for algorithm.loss = {block_party.loss.name!r}, whose outputs "
                "are no log odds: choose another metric."
            )
        self._block_party = block_party
        assert seat.labels is not None
        named = block_party.loss.name != "auto"
        worst = {} if named else worst_scores(seat.task, seat.labels.train, seat.labels.deviation)
        self.best = BestScore(metric, seat.training.early_stopping, worst)
        if block_party.versions is not None or seat.training.early_stopping:
            check_they_can_choose(seat.labels)
        self.version = 0  # of the evaluation under way
        self.chosen = False  # everybody has been asked for the model that is used in the end
        self._recall = recall

    def judge(self, epoch: float, metrics: dict[str, float]) -> list[Effect]:
        """The evaluation under way is scored: tell everybody which one to keep."""
        self.best.judge(self.version, epoch, metrics)
        versions = self._block_party.versions
        if versions is None:
            return []
        keep = Keep(self.best.version, self.version)
        versions.judge(self._block_party.seat.name, keep)
        return [Send(peer, keep) for peer in self._block_party.peers]

    def choose(self) -> list[Effect]:
        """The training is over: everybody takes the best model up, unless it is the last one."""
        self.chosen = True
        version = self.good_version
        if version in (0, self.version):
            return []
        self._block_party.go_back(version)
        return self._recall.call(version, 0.0)

    @property
    def has_gone_back(self) -> bool:
        """Whether everybody has taken up an earlier version than the last."""
        return self.chosen and self.good_version not in (0, self.version)

    @property
    def good_version(self) -> int:
        """The best one, where it is kept; else 0, no weights yet."""
        return 0 if self._block_party.versions is None else self.best.version

    def counts(self) -> dict[str, Any]:
        return self.best.counts(kept="best" if self.good_version else "last")
