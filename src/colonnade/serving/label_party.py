"""The label party's side of serving: requests that come at the same time are merged into one batch for all parties.

A batch is sent at once while few are under way, and gathers what comes while they are: no request waits for others,
and under load each message carries many rows. A party that is away, or does not answer in time, is stood in for.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, ProtocolError
from colonnade.messages import Message
from colonnade.prediction.own_rows import IdForm
from colonnade.prediction.saved_model import SavedModel
from colonnade.prediction.seat import Names
from colonnade.serving.answers import Answers, Part, Scorer, answers_of
from colonnade.serving.cache import AnswerCache
from colonnade.serving.live_rows import LiveRows
from colonnade.serving.messages import ServedEmbedding, ServedProduct, ServedStandIn, ServedVersions, ServingRequest
from colonnade.serving.metrics import ServingMetrics
from colonnade.serving.station import LiveStation
from colonnade.serving.versions import Versions, version_of

IN_FLIGHT = 2
"""Batches under way; what comes meanwhile is merged into the next."""
ROWS_A_BATCH = 1024
_MOST_VERSIONS = 8
_LATE = "did not answer in time"
_BETWEEN_TRIES_SECONDS = 1.0
"""Of a party that did not answer in time: until it answers again, nobody waits for it."""


class BusyError(Exception):
    """More waits than may."""


@dataclass(frozen=True)
class ServingLimits:
    """How much is taken, and how long it is waited for."""

    most_ids: int = 1000  # of one request
    most_waiting: int = 10_000  # rows, of all requests
    party_seconds: float = 0.5  # for a feature party's answer; then the answer is given without it
    cache_seconds: float = 0.0  # how old an embedding may be that is used again; 0: none is


@dataclass
class _Asked:
    """One request, waiting to be merged."""

    ids: list[str]
    done: "asyncio.Future[Answers]"


@dataclass
class _Batch:
    """Rows under way."""

    number: int
    requests: list[_Asked]
    ids: list[str]
    names: Names
    scorer: Scorer
    own: tuple[frozenset[int], NDArray[Any]] | None
    awaited: set[str]
    absent: dict[str, str]
    parts: dict[str, Part] = field(default_factory=dict)
    asked: dict[str, NDArray[np.uint32]] = field(default_factory=dict)  # the rows that a party was asked for
    shadow_of: Answers | None = None  # what was answered, if this is only compared with it
    places: list[int] | None = None  # of all ids that were asked for, where some were more than once
    timer: asyncio.TimerHandle | None = None

    @property
    def version(self) -> str:
        return self.scorer.version

    def add(self, party: str, part: Part) -> None:
        """What a party has answered, to what was known of it already."""
        before = self.parts.get(party)
        if before is not None:
            rows, values = np.concatenate([before.rows, part.rows]), np.concatenate([before.values, part.values])
            part = Part(rows, values, part.refused)
        self.parts[party] = part


class ServingLabelParty:
    """Merges requests, asks the feature parties, and answers; in one event loop, with its carrier."""

    def __init__(
        self,
        name: str,
        versions: Versions,
        rows: LiveRows | None,
        form: IdForm,
        limits: ServingLimits,
        metrics: ServingMetrics,
        shadow: Versions | None = None,
    ) -> None:
        """`shadow`: a model that scores the same rows, of which only the difference is told, as a metric."""
        self.name = name
        self.station: LiveStation | None = None
        self.metrics = metrics
        self.limits = limits
        self._versions = versions
        self._rows = rows
        self._form = form
        self._shadow = shadow
        self._cache = AnswerCache(limits.cache_seconds)
        self._scorers: dict[str, Scorer] = {}
        self._silent: dict[str, float] = {}  # parties that did not answer in time, and when they were asked last
        self._told: dict[str, tuple[str, ...]] = {}  # which versions each party that is there has
        self._waiting: deque[_Asked] = deque()
        self._waiting_rows = 0
        self._batches: dict[int, _Batch] = {}
        self._number = 0
        self.version = ""
        self.choose_version()
        if rows is not None:
            rows.check(versions.newest)
        away = dict.fromkeys(self.feature_parties, "is away")
        answers_of(self._scorer(), ["warm"], {}, away, self._own_part(self._scorer(), self._form.names(["warm"])[0]))

    # --- what is asked ---

    async def predict(self, ids: Sequence[str]) -> Answers:
        """One answer per id."""
        if self._waiting_rows + len(ids) > self.limits.most_waiting:
            raise BusyError
        asked = _Asked(list(ids), asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._waiting_rows += len(ids)
        self._pump()
        return await asked.done

    @property
    def feature_parties(self) -> tuple[str, ...]:
        return self._scorer().feature_parties

    def present(self) -> list[str]:
        return [] if self.station is None else self.station.present

    # --- versions ---

    def choose_version(self) -> None:
        """The newest that everybody who is there has, and this party too."""
        own = [*self._versions.models]
        common = [one for one in own if all(one in told for told in self._told.values())]
        chosen = common[-1] if common else self.version if self.version in own else own[-1]
        if chosen != self.version:
            self.version = chosen
            self.metrics.version.clear()
            self.metrics.version.labels(chosen).set(1)

    def _scorer(self, version: str = "") -> Scorer:
        version = version or self.version
        if version not in self._scorers:
            models = self._models()
            self._scorers = {one: held for one, held in self._scorers.items() if one in models}
            self._scorers[version] = Scorer(models[version], version)
        return self._scorers[version]

    def _models(self) -> dict[str, SavedModel]:
        return {**({} if self._shadow is None else self._shadow.models), **self._versions.models}

    # --- the parties ---

    def notice(self, peer: str, has_come: bool) -> Sequence[Message]:
        """A feature party has come or gone; nobody waits for one that has gone."""
        self.metrics.connected.labels(peer).set(has_come)
        self._silent.pop(peer, None)
        if not has_come:
            self._told.pop(peer, None)
            for batch in [*self._batches.values()]:
                self._give_up(batch, peer, "is away")
        return []

    def handle(self, sender: str, message: Message) -> Sequence[Message]:
        match message:
            case ServedVersions(versions):
                self._told[sender] = tuple(versions.split(" ")[-_MOST_VERSIONS:])
                self.choose_version()
            case ServedStandIn(version, values):
                if version in self._models():
                    self._scorer(version).learn(sender, values)
            case ServedEmbedding(number, rows, refused, values):
                self._take(sender, number, Part(rows, values, frozenset(refused.tolist())))
            case ServedProduct(number, rows, values):
                self._take(sender, number, Part(rows, values))
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no answer to a request.")
        return []

    def _take(self, sender: str, number: int, part: Part) -> None:
        if not 0 < number <= self._number:
            raise ProtocolError(f"{sender} answered the request {number}; {self._number} were made.")
        self._silent.pop(sender, None)
        batch = self._batches.get(number)
        if batch is None or sender not in batch.awaited:
            return  # too late
        asked = batch.asked[sender]
        known = np.sort(np.concatenate([part.rows, np.array([*part.refused], np.uint32)]))
        fits = part.values.shape[1] == batch.scorer.width_of(sender) and bool((known[1:] != known[:-1]).all())
        if not fits or (len(known) and known[-1] >= len(asked)):
            raise ProtocolError(f"{sender} answered for rows, or with numbers, that were not asked for.")
        if self.limits.cache_seconds:
            self._cache.put(batch.version, sender, batch.names[asked[part.rows]], part.values)
        refused = frozenset(asked[[*part.refused]].tolist()) if part.refused else part.refused
        batch.add(sender, Part(asked[part.rows], part.values, refused))
        batch.awaited.discard(sender)
        self._finish_if_done(batch)

    def _give_up(self, batch: _Batch, peer: str, why: str) -> None:
        if peer in batch.awaited:
            batch.awaited.discard(peer)
            batch.absent[peer] = why
            self._finish_if_done(batch)

    # --- batches ---

    def _pump(self) -> None:
        while self._waiting and sum(one.shadow_of is None for one in self._batches.values()) < IN_FLIGHT:
            requests = [self._waiting.popleft()]
            size = len(requests[0].ids)
            while self._waiting and size + len(self._waiting[0].ids) <= ROWS_A_BATCH:
                requests.append(self._waiting.popleft())
                size += len(requests[-1].ids)
            self._waiting_rows -= size
            # Nobody waits for one that has timed out: its rows are not released for nothing.
            requests = [one for one in requests if not one.done.done()]
            if requests:
                self._begin(requests)

    def _begin(self, requests: list[_Asked]) -> None:
        """A row that several ask for at once is released once."""
        ids = [one for request in requests for one in request.ids]
        self.metrics.batch_rows.observe(len(ids))
        places = None
        if len(once := dict.fromkeys(ids)) < len(ids):
            place = {one: number for number, one in enumerate(once)}
            ids, places = [*once], [place[one] for one in ids]
        self._send(requests, ids, self._form.names(ids)[0], self._scorer(), places=places)

    def _send(
        self,
        requests: list[_Asked],
        ids: list[str],
        names: Names,
        scorer: Scorer,
        shadow_of: Answers | None = None,
        places: list[int] | None = None,
    ) -> None:
        self._number += 1
        present = set(self.present())
        awaited = {name for name in scorer.feature_parties if name in present}
        absent = {name: "is away" for name in scorer.feature_parties if name not in present}
        try:
            own = self._own_part(scorer, names)
        except DataError as error:
            for request in requests:
                if not request.done.done():
                    request.done.set_exception(error)
            return
        batch = _Batch(self._number, requests, ids, names, scorer, own, awaited, absent)
        batch.shadow_of, batch.places = shadow_of, places
        self._batches[batch.number] = batch
        loop = asyncio.get_running_loop()
        batch.timer = loop.call_later(self.limits.party_seconds, self._time_out, batch)
        for name in [one for one in scorer.feature_parties if one in awaited]:
            self._ask(batch, name)
            if name in self._silent and name in batch.awaited:
                batch.awaited.discard(name)
                batch.absent[name] = _LATE
        self._finish_if_done(batch)

    def _ask(self, batch: _Batch, party: str) -> None:
        """For the rows that are not in the cache."""
        kept = self._cache.get(batch.version, party, batch.names)
        rows = np.arange(len(batch.ids), dtype=np.uint32)
        rows = np.delete(rows, [*kept]) if kept else rows
        batch.asked[party] = rows
        if kept:
            self.metrics.cached.labels(party).inc(len(kept))
            batch.add(party, Part(np.array([*kept], np.uint32), np.stack([*kept.values()])))
        if not len(rows):
            batch.awaited.discard(party)
            return
        assert self.station is not None
        now = time.monotonic()
        if now - self._silent.get(party, -_BETWEEN_TRIES_SECONDS) < _BETWEEN_TRIES_SECONDS:
            return  # it is tried now and then, and not waited for
        if party in self._silent:
            self._silent[party] = now
        self.station.ask(party, ServingRequest(batch.number, batch.version, batch.names[rows]))

    def _own_part(self, scorer: Scorer, names: Names) -> tuple[frozenset[int], NDArray[Any]] | None:
        """The label party's own rows: zeros of prepared columns, which is the average, for those that it lacks."""
        if not scorer.has_columns or self._rows is None:
            return None
        found = self._rows.find(names, self._models()[scorer.version])
        assert found.columns is not None
        columns = scorer.lacked_rows(len(names), tuple(found.columns.shape[1:]))
        columns[found.places.astype(np.int64)] = found.columns
        return frozenset(found.places.tolist()), scorer.own_part(columns)

    def _time_out(self, batch: _Batch) -> None:
        for name in sorted(batch.awaited):
            self.metrics.late.labels(name).inc()
            self._silent.setdefault(name, time.monotonic())
            self._give_up(batch, name, _LATE)

    def _finish_if_done(self, batch: _Batch) -> None:
        if batch.awaited or batch.number not in self._batches:
            return
        del self._batches[batch.number]
        if batch.timer is not None:
            batch.timer.cancel()
        answers = answers_of(batch.scorer, batch.ids, batch.parts, batch.absent, batch.own)
        if batch.shadow_of is not None:
            self._compare(batch.shadow_of, answers)
            return
        told = answers if batch.places is None else answers.at(batch.places)
        at = 0
        for request in batch.requests:
            if not request.done.done():
                request.done.set_result(told.part(at, len(request.ids)))
            at += len(request.ids)
        for outcome, count in told.outcomes().items():
            self.metrics.rows.labels(outcome).inc(count)
        if self._shadow is not None and self.version == batch.version:
            self._send([], batch.ids, batch.names, self._scorer(version_of(self._shadow.newest)), answers)
        self._pump()

    def _compare(self, answered: Answers, shadowed: Answers) -> None:
        """What the shadow would have said otherwise: the largest difference of a probability, or of the value."""
        for one, other in zip(answered, shadowed, strict=True):
            if one.error or other.error or other.degraded:
                continue
            pairs = [(one.prediction, other.prediction)]
            if one.probabilities is not None and other.probabilities is not None:
                pairs = [(one.probabilities[name], other.probabilities.get(name, 0.0)) for name in one.probabilities]
            self.metrics.shadow_rows.inc()
            self.metrics.shadow_difference.inc(max(abs(first - second) for first, second in pairs))
