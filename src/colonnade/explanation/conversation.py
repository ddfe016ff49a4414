"""An explanation between parties: everybody embeds its own rows, and the label party tells what they are worth.

    feature party                                        label party
    ExplainedRows(embeddings of the rows as they are) →  loss, Shapley values
                                                      ←  ExplanationStarted
    PathEmbedding(step)                               →
                                                      ←  OutputGradient(step)
    ShuffledColumn(number)                            →
                                                      ←  ColumnWorth(number)
                                                      ←  ExplanationTotals, Stop

Pure parties, as those of a training: event in, effects out. Both ends are those of an explanation in one place
(`ends.py`), so that both come to the same.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.explanation.account import protected
from colonnade.explanation.ends import Totals
from colonnade.explanation.explaining import chosen_columns, importances, mean_embedding, sizes_of
from colonnade.explanation.gradients import Walk
from colonnade.explanation.messages import (
    ColumnWorth,
    ExplainedRows,
    ExplanationStarted,
    ExplanationTotals,
    OutputGradient,
    PathEmbedding,
    ShuffledColumn,
)
from colonnade.explanation.own_columns import column_owner, scorer_of
from colonnade.explanation.results import ColumnImportance
from colonnade.explanation.seat import ExplanationSeat
from colonnade.explanation.shapley import Importance, Values
from colonnade.messages import Message, Stop
from colonnade.party import Checkpoint, Effect, Event, Finish, Observe, Received, Send, Spend, Started
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import Memory, Remembering, State, array, custom, generator, value

_MEETING, _WALKING, _SHUFFLING, _ENDED = "meeting", "walking", "shuffling", "ended"


class ExplainingParty(Remembering):
    """What both roles have: columns of their own, perhaps, what they are worth, and the totals in the end."""

    def __init__(self, seat: ExplanationSeat) -> None:
        self.seat = seat
        privacy = seat.privacy
        self._gaussian = SecretGaussian(seat.secret, seat.name, "explanation")
        self._noise: LayerNoise | None = None
        if seat.name != seat.label_party and (privacy.noise or privacy.clip):
            settings = PerturbationSettings(noise=privacy.noise, clip=privacy.clip)
            self._noise = LayerNoise(settings, torch.Generator(), self._gaussian)
        self._owner = None
        if seat.rows is not None:
            bottom, lacks = seat.model.modules["bottom"], seat.model.description.expects_absence
            self._owner = column_owner(seat.name, seat.rows, seat.groups, bottom, self._noise, lacks)
        self._walk = None if self._owner is None else Walk(self._owner, seat.steps)
        self._stage = _MEETING
        self._step = 0  # of the way
        self.walked = False  # along integrated gradients
        self.tells = seat.tells
        self._growths: list[list[float]] = []  # of its own columns, in the order in which they were shuffled
        self._totals: list[Any] = []  # loss, loss without, coalitions, four figures of each party

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started():
                return self._begin()
            case Received(_, sender, message):
                return self._hear(sender, message)
            case _:
                return []  # what was sent to a peer is kept until it is back; an explanation has no epochs

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        done = self._step + len(self._growths)
        return {"exchanges": done, "steps": done}

    def _begin(self) -> Sequence[Effect]:
        return []

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        raise NotImplementedError

    # --- what it has found ---

    @property
    def totals(self) -> Totals | None:
        """None: it has not been told, and is not to be where labels are protected."""
        if not self._totals:
            return None
        loss, without, coalitions, figures = self._totals
        worths = {name: Importance(*one[:2]) for name, one in zip(self.seat.order, figures, strict=True)}
        shuffled = {name: Importance(*one[2:]) for name, one in zip(self.seat.order, figures, strict=True)}
        return Totals(loss, without, worths, shuffled, coalitions)

    def columns(self) -> list[ColumnImportance]:
        """Its own, the most important first."""
        found = [Importance(*one) for one in self._growths]
        return importances(self.seat.groups, self._chosen()[: len(found)], found, self._sizes())

    @property
    def left_out(self) -> int:
        return len(self.seat.groups) - len(self._growths)

    def _sizes(self) -> Values | None:
        return sizes_of(self._walk.accounted_for()) if self.walked and self._walk is not None else None

    def _chosen(self) -> list[int]:
        return chosen_columns(self.seat.groups, self._sizes(), self.seat.asked.columns)

    # --- memory ---

    def _save_walk(self, state: State) -> None:
        if self._walk is not None and self._walk.added is not None:
            state.put("added", self._walk.added.numpy())

    def _load_walk(self, state: State) -> None:
        if self._owner is None:
            return
        self._walk = Walk(self._owner, self.seat.steps)
        if "added" in state.tensors:
            self._walk.added = torch.from_numpy(state.take("added"))

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        value("_stage", "_step", "walked", "tells", "_growths", "_totals"),
        custom("_walk", save=_save_walk, load=_load_walk),
        generator("_gaussian"),
    )
    DERIVED: ClassVar[tuple[str, ...]] = ("_owner", "_noise")


# --- a feature party --------------------------------------------------------------------------------------------


class ExplainingFeatureParty(ExplainingParty):
    """Embeds its rows as they are, on the way from their mean, and with one column after the other shuffled."""

    def _begin(self) -> Sequence[Effect]:
        assert self._owner is not None
        seat = self.seat
        embedding = _sent(self._owner.embedding())
        learnt = None if seat.privacy.noise else seat.model.stand_in()
        stand_in = embedding[:0] if learnt is None else _sent(learnt[None])
        columns = min(len(seat.groups), seat.asked.columns)
        rows = ExplainedRows(embedding, stand_in, columns, int(self._owner.has_gradients))
        return [*self._spent(1), Send(seat.label_party, rows)]

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        if sender != self.seat.label_party:
            raise ProtocolError(f"{sender} sent {type(message).__name__} to {self.seat.name}, which is not its part.")
        match message:
            case ExplanationStarted(walks, tells) if self._stage == _MEETING:
                return self._go(sender, bool(walks), bool(tells))
            case OutputGradient(step, gradient) if self._stage == _WALKING and step == self._step:
                return self._walk_on(sender, gradient)
            case ColumnWorth(number, growth, error) if self._stage == _SHUFFLING and number == len(self._growths):
                self._growths.append([growth, error])
                return self._shuffle()
            case ExplanationTotals() if self._stage == _ENDED and self.tells and not self._totals:
                return self._keep(sender, message)
            case Stop():
                return [Checkpoint(), Finish()]
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__} where an explanation has none.")

    def _go(self, sender: str, walks: bool, tells: bool) -> Sequence[Effect]:
        assert self._owner is not None and self._walk is not None
        if walks and not (tells and self.seat.steps and self._owner.has_gradients):
            raise ProtocolError(f"{sender} wants integrated gradients, which all have agreed to do without.")
        self.tells = tells
        if not walks:
            return self._shuffle()
        self._stage = _WALKING
        return [Send(sender, PathEmbedding(0, _sent(self._walk.embedding(0))))]

    def _walk_on(self, sender: str, gradient: NDArray[np.float64]) -> Sequence[Effect]:
        seat, walk = self.seat, self._walk
        assert walk is not None
        if gradient.shape != (len(seat.places), seat.width(seat.name)):
            raise ProtocolError(f"{sender} sent gradients of shape {gradient.shape}, which fits no embedding.")
        walk.answered(self._step, torch.from_numpy(gradient.astype(seat.dtype)))
        self._step += 1
        if self._step < seat.steps:
            return [Send(sender, PathEmbedding(self._step, _sent(walk.embedding(self._step))))]
        self.walked = True
        return self._shuffle()

    def _shuffle(self) -> Sequence[Effect]:
        """The next of its columns; the label party does not hear which."""
        assert self._owner is not None
        seat, number, chosen = self.seat, len(self._growths), self._chosen()
        if not self.tells or number == len(chosen):
            self._stage = _ENDED
            return []
        self._stage = _SHUFFLING
        variants = self._owner.variants(seat.groups[chosen[number]], seat.asked, seat.seed)
        shuffled = ShuffledColumn(number, _sent(torch.cat(variants)))
        return [*self._spent(len(variants)), Send(seat.label_party, shuffled)]

    def _keep(self, sender: str, message: ExplanationTotals) -> Sequence[Effect]:
        if message.worths.shape != (len(self.seat.order), 4):
            raise ProtocolError(
                f"{sender} sent the worth of {len(message.worths)} other parties than those that take part."
            )
        self._totals = [message.loss, message.loss_without, message.coalitions, message.worths.tolist()]
        return []

    def _spent(self, releases: int) -> list[Effect]:
        seat = self.seat
        if self._noise is None:
            return []
        protects = protected(seat.name, seat.asked.part)
        event = self._noise.event(len(seat.places), protects, (seat.label_party,), seat.places)
        return [] if event is None else [Spend(event)] * releases


# --- the label party --------------------------------------------------------------------------------------------


class ExplainingLabelParty(ExplainingParty):
    """Scores what it is given, and tells means; of its own columns it asks nobody."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        array("_values"),
        array("_stand_ins"),
        array("_path"),
        value("_here", "_learnt", "_columns", "_differentiable", "_done", "evaluations"),
    )
    DERIVED: ClassVar[tuple[str, ...]] = ("_scorer",)

    def __init__(self, seat: ExplanationSeat) -> None:
        super().__init__(seat)
        assert seat.labels is not None
        described = seat.model.description
        self._scorer = scorer_of(seat.order, seat.model.modules["top"], described.task, seat.labels)
        ends = np.cumsum([seat.width(party) for party in seat.feature_parties]).tolist()
        self._slices = {
            party: slice(end - seat.width(party), end) for party, end in zip(seat.feature_parties, ends, strict=True)
        }
        self._values = np.zeros((len(seat.places), ends[-1]), seat.dtype)
        self._stand_ins = np.zeros((1, ends[-1]), seat.dtype)
        self._path = np.zeros_like(self._values)  # of the present step
        self._here: list[str] = []  # whose embeddings have come: of the rows as they are, or of the present step
        self._learnt: list[str] = []  # whose models have learnt what stands in for a row that they lack
        self._columns: dict[str, int] = {}  # how many each will shuffle
        self._differentiable: list[str] = []
        self._done: dict[str, int] = {}
        self.evaluations = 0

    def shuffled_by(self, party: str) -> int:
        """How many columns of a feature party were tried."""
        return self._done.get(party, 0)

    def restored(self) -> None:
        super().restored()
        if self._stage != _MEETING:
            self._scorer.take(self._embeddings(self._values))
        self._scorer.evaluations = self.evaluations

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        if sender not in self._slices:
            raise ProtocolError(f"{sender} is no party with columns of this explanation.")
        match message:
            case ExplainedRows() if self._stage == _MEETING and sender not in self._columns:
                return self._meet(sender, message)
            case PathEmbedding(step, embedding) if self._stage == _WALKING and step == self._step:
                return self._walk_on(sender, embedding)
            case ShuffledColumn(number, embedding) if self._stage == _SHUFFLING:
                return self._score(sender, number, embedding)
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__} where an explanation has none.")

    def _meet(self, sender: str, message: ExplainedRows) -> Sequence[Effect]:
        seat, part = self.seat, self._slices[sender]
        self._check_shape(sender, message.embedding, 1)
        if message.stand_in.shape not in ((0, part.stop - part.start), (1, part.stop - part.start)):
            raise ProtocolError(f"{sender} told {len(message.stand_in)} rows that stand in for those it lacks.")
        if not 0 <= message.columns <= seat.asked.columns:
            raise ProtocolError(
                f"{sender} wants {message.columns} columns to be scored; all have agreed on {seat.asked.columns}."
            )
        self._values[:, part] = message.embedding
        if len(message.stand_in):
            self._stand_ins[:, part] = message.stand_in
            self._learnt.append(sender)
        if message.differentiable:
            self._differentiable.append(sender)
        self._columns[sender] = message.columns
        return self._find_totals() if len(self._columns) == len(self._slices) else []

    def _find_totals(self) -> Sequence[Effect]:
        """Everybody's embeddings are here."""
        seat, scorer = self.seat, self._scorer
        embeddings = self._embeddings(self._values)
        scorer.take(embeddings)
        stand_ins = {name: mean_embedding(own) for name, own in embeddings.items()}
        for name in self._learnt:
            stand_ins[name] = torch.from_numpy(self._stand_ins[0, self._slices[name]].copy())
        own = None if self._owner is None else seat.model.stand_in()
        if own is not None and not seat.privacy.noise:
            stand_ins[seat.name] = own
        found = scorer.totals(stand_ins, seat.asked)
        figures = [
            [worth.value, worth.standard_error, found.shuffled[name].value, found.shuffled[name].standard_error]
            for name, worth in ((name, found.parties[name]) for name in seat.order)
        ]
        self._totals = [found.loss, found.loss_without, found.coalitions, figures]
        self.evaluations = scorer.evaluations
        walks = bool(
            self.tells
            and seat.steps
            and len(self._differentiable) == len(self._slices)
            and scorer.has_gradients
            and (self._owner is None or self._owner.has_gradients)
        )
        begun = ExplanationStarted(int(walks), int(self.tells))
        said: list[Effect] = [Send(party, begun) for party in seat.feature_parties]
        if not walks:
            return [*said, *self._shuffle()]
        self._stage = _WALKING
        return said

    def _walk_on(self, sender: str, embedding: NDArray[np.float64]) -> Sequence[Effect]:
        seat = self.seat
        if sender in self._here:
            raise ProtocolError(f"{sender} took the step {self._step} twice.")
        self._check_shape(sender, embedding, 1)
        self._path[:, self._slices[sender]] = embedding
        self._here.append(sender)
        if len(self._here) < len(self._slices):
            return []
        embeddings = self._embeddings(self._path)
        if self._walk is not None:
            embeddings[seat.name] = self._walk.embedding(self._step)
        gradients = self._scorer.gradients(embeddings, self._scorer.chosen())
        if self._walk is not None:
            self._walk.answered(self._step, gradients[seat.name])
        answers: list[Effect] = [
            Send(party, OutputGradient(self._step, _sent(gradients[party]))) for party in seat.feature_parties
        ]
        self._step, self._here = self._step + 1, []
        if self._step < seat.steps:
            return answers
        self.walked = True
        return [*answers, *self._shuffle()]

    def _shuffle(self) -> Sequence[Effect]:
        """From here on columns are shuffled: its own at once."""
        self._stage = _SHUFFLING
        seat = self.seat
        if self._owner is not None:
            for place in self._chosen():
                variants = self._owner.variants(seat.groups[place], seat.asked, seat.seed)
                one = self._scorer.grown(seat.name, variants)
                self._growths.append([one.value, one.standard_error])
            self.evaluations = self._scorer.evaluations
        return self._end_if_done()

    def _score(self, sender: str, number: int, embedding: NDArray[np.float64]) -> Sequence[Effect]:
        if not self.tells or number != self._done.get(sender, 0) or number >= self._columns[sender]:
            raise ProtocolError(f"{sender} sent the column {number} out of turn, or one more than it said.")
        repeats = self.seat.asked.repeats
        self._check_shape(sender, embedding, repeats)
        found = self._scorer.grown(sender, torch.from_numpy(embedding.astype(self.seat.dtype)).chunk(repeats))
        self._done[sender] = number + 1
        self.evaluations = self._scorer.evaluations
        return [Send(sender, ColumnWorth(number, found.value, found.standard_error)), *self._end_if_done()]

    def _end_if_done(self) -> list[Effect]:
        seat = self.seat
        if self.tells and any(self._done.get(name, 0) < count for name, count in self._columns.items()):
            return []
        self._stage = _ENDED
        loss, without, coalitions, figures = self._totals
        told: list[Effect] = []
        if self.tells:
            totals = ExplanationTotals(loss, without, coalitions, np.array(figures, np.float64))
            told = [Send(party, totals) for party in seat.feature_parties]
        stops = [Send(party, Stop("The model is explained.")) for party in seat.feature_parties]
        return [*told, *stops, Observe(1, 1, 1.0, loss), Checkpoint(), Finish()]

    def _embeddings(self, values: NDArray[Any]) -> dict[str, torch.Tensor]:
        """By party, in the order of the top model."""
        found = {name: torch.from_numpy(values[:, part].copy()) for name, part in self._slices.items()}
        return found if self._owner is None else {**found, self.seat.name: self._owner.embedding()}

    def _check_shape(self, sender: str, embedding: NDArray[np.float64], repeats: int) -> None:
        part = self._slices[sender]
        if embedding.shape != (repeats * len(self.seat.places), part.stop - part.start):
            raise ProtocolError(f"{sender} sent embeddings of shape {embedding.shape}, which were not asked for.")


def build_explaining_party(seat: ExplanationSeat) -> ExplainingParty:
    """By role."""
    return ExplainingLabelParty(seat) if seat.name == seat.label_party else ExplainingFeatureParty(seat)


def _sent(values: torch.Tensor) -> NDArray[np.float64]:
    return values.detach().double().numpy()
