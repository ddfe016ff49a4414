"""A prediction between parties: the label party names rows, hears who holds which, and asks for what all hold.

Pure parties, as those of a training: event in, effects out. Everybody keeps its own model and rows. A row is asked for
at most once, and only if every party holds it; of a split model its embedding is sent, clipped and noised as in
training and counted; of a linear one its product, masked where the training's sums were.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import generator_for, seed_for
from colonnade.algorithms.row import Family
from colonnade.algorithms.split_models.parts.budget import RowBudget, budget_mu
from colonnade.data.absence import absent_rows
from colonnade.errors import ProtocolError
from colonnade.messages import Message, Stop
from colonnade.models.contract import SCORED_AT_ONCE
from colonnade.models.network import network_for
from colonnade.party import (
    Checkpoint,
    Effect,
    Event,
    Extended,
    Finish,
    Observe,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    Spend,
    Started,
    TimerFired,
)
from colonnade.prediction.contributions import embedding_of, family_of, fixed_point, products_of, summed
from colonnade.prediction.messages import (
    MaskedProduct,
    PredictionEmbedding,
    PredictionKey,
    PredictionProduct,
    RowsHeld,
    RowsNamed,
    RowsPlaced,
    ScoreRequest,
)
from colonnade.prediction.seat import MOST_ROWS, AskedRows, Names, PredictionSeat
from colonnade.privacy.masking import PairwiseMasks, check_key, generate_key
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import Memory, Remembering, State, array, array_or_none, arrays, custom, generator, part, value

PIECE = SCORED_AT_ONCE
"""Rows of one message: as many as of one evaluation's, so that both come to the same bits."""
IN_FLIGHT = 4
"""Requests that the label party has under way."""
_UNTOLD, _LACKED = -2, -1


class PredictingParty(Remembering):
    """What both roles have: masks, if the training's sums were masked."""

    def __init__(self, seat: PredictionSeat) -> None:
        self.seat = seat
        self.may_lack = seat.model.description.expects_absence  # then a stand-in is answered for a row
        self.is_linear = family_of(seat.model.description) is Family.LINEAR
        self.point = fixed_point(seat.model.description) if self.is_linear else None
        entropy = b"".join(seed_for(seat.secret, seat.name, f"masks {n}").to_bytes(8, "little") for n in range(4))
        self._private_key, public = generate_key(entropy)
        self._public_keys: dict[str, list[int]] = {seat.name: np.frombuffer(public, "<u8").tolist()}
        self._masks: PairwiseMasks | None = None
        self.batches = 0  # asked for, or answered

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started():
                return [*self._introduce(), *self._begin()]
            case Received(_, sender, PredictionKey() as message):
                return self._meet(sender, message)
            case Received(_, sender, message):
                return self._hear(sender, message)
            case TimerFired() | PeerLost() | PeerReturned() | Extended():
                return []  # what was sent to a peer is kept until it is back; a prediction has no epochs

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self.batches, "steps": self.batches}

    def _begin(self) -> Sequence[Effect]:
        return []

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        raise NotImplementedError

    # --- masks ---

    def _introduce(self) -> list[Effect]:
        if self.point is None:
            return []
        own = np.array(self._public_keys[self.seat.name], "<u8")
        return [Send(name, PredictionKey(own)) for name in self.seat.others]

    def _meet(self, sender: str, message: PredictionKey) -> Sequence[Effect]:
        if self.point is None or sender in self._public_keys or message.public_key.size != 4:
            raise ProtocolError(f"{sender} sent a key that was not asked for, or sent one twice.")
        check_key(self._private_key, sender, message.public_key.tobytes())
        self._public_keys[sender] = message.public_key.tolist()
        self._agree()
        return self._acquainted() if self.is_acquainted else []

    @property
    def is_acquainted(self) -> bool:
        return self.point is None or self._masks is not None

    def _agree(self) -> None:
        if self.point is not None and len(self._public_keys) == len(self.seat.parties):
            keys = {name: np.array(key, "<u8").tobytes() for name, key in self._public_keys.items()}
            self._masks = PairwiseMasks(self.seat.name, self._private_key, keys)

    def _acquainted(self) -> Sequence[Effect]:
        """Everybody's keys are here."""
        return []

    def _save_keys(self, state: State) -> None:
        state.values["keys"] = dict(self._public_keys)
        if self._masks is not None:
            state.add("masks", self._masks.state())

    def _load_keys(self, state: State) -> None:
        self._public_keys = dict(state.values["keys"])
        self._agree()
        if self._masks is not None:
            self._masks.restore(state.part("masks"))

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        value("batches"),
        custom("_public_keys", "_masks", save=_save_keys, load=_load_keys),
    )

    def _hidden(self, number: int, products: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Products under the mask of that number, which is used up with it."""
        assert self.point is not None and self._masks is not None
        hidden = self.point.encode(products)
        hidden += self._masks.mask(self.seat.label_party, number, products.size).reshape(products.shape)
        return hidden


# --- a feature party --------------------------------------------------------------------------------------------


class PredictingFeatureParty(PredictingParty):
    """Says which rows it holds, and answers for each of them once."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        array("_rows"),
        array("_answered"),
        value("_waiting_numbers", "refused"),
        arrays("_waiting_rows", dtype=np.uint32),
        generator("_generator"),
        generator("_gaussian"),
        part("_budget"),
    )

    def __init__(self, seat: PredictionSeat) -> None:
        super().__init__(seat)
        assert seat.columns is not None
        self._columns = seat.columns
        self._rows: NDArray[np.int64] = np.zeros(0, np.int64)  # of its own, one for each row of the label party's list
        self._answered: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._waiting_numbers: list[int] = []  # requests that came before everybody's keys
        self._waiting_rows: list[NDArray[np.uint32]] = []
        self.refused = 0  # rows whose budget is spent
        self._sorted = None if seat.names is None else np.lexsort((seat.names[:, 1], seat.names[:, 0]))
        description = seat.model.description
        privacy = PerturbationSettings(**description.privacy) if description.privacy else PerturbationSettings()
        self._generator = generator_for(seat.secret, seat.name, "noise of predictions")
        self._gaussian = SecretGaussian(seat.secret, seat.name, "predictions")
        self._noise = LayerNoise(privacy, self._generator, self._gaussian) if privacy.active else None
        self._cost = (privacy.sensitivity / privacy.noise) ** 2 if privacy.noise > 0 else 0.0
        mu = budget_mu(privacy.columns_epsilon, privacy.delta, privacy.formula) if privacy.noise > 0 else inf
        self._budget = RowBudget(len(seat.columns), mu)
        self._budget.begin_with(seat.spent)

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        if sender != self.seat.label_party:
            raise ProtocolError(f"{sender} sent {type(message).__name__} to {self.seat.name}, which is not its part.")
        match message:
            case RowsNamed(first, total, names):
                if self.seat.names is None or names.shape[1] != 2:
                    raise ProtocolError(f"{sender} named rows by ids where all have an alignment, or not as hashes.")
                self._check_piece(sender, first, total, len(names))
                return self._look_up(first, total, _found(self.seat.names, self._sorted, names))
            case RowsPlaced(first, total, places):
                if self.seat.names is not None or (places.size and int(places.max()) >= len(self._columns)):
                    raise ProtocolError(f"{sender} named places of an alignment that {self.seat.name} does not have.")
                self._check_piece(sender, first, total, len(places))
                return self._look_up(first, total, places.astype(np.int64))
            case ScoreRequest(number, rows):
                self._check_request(sender, number, rows)
                self._answered[rows] = True
                self._waiting_numbers.append(number)
                self._waiting_rows.append(rows.copy())
                return self._acquainted() if self.is_acquainted else []
            case Stop():
                return [Checkpoint(), Finish()]
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no part of a prediction.")

    def _check_piece(self, sender: str, first: int, total: int, rows: int) -> None:
        known = len(self._rows) or total
        fits = 0 < total <= MOST_ROWS and total == known and first % PIECE == 0 and 0 <= first < total
        if not fits or rows != min(PIECE, total - first):
            raise ProtocolError(f"{sender} named {rows} rows from {first} on, of {total}, which fits nothing.")
        if len(self._rows) and self._rows[first] != _UNTOLD:
            raise ProtocolError(f"{sender} named the rows from {first} on twice.")

    def _look_up(self, first: int, total: int, rows: NDArray[np.int64]) -> list[Effect]:
        if not len(self._rows):
            self._rows, self._answered = np.full(total, _UNTOLD, np.int64), np.zeros(total, np.bool_)
        self._rows[first : first + len(rows)] = rows
        return [Send(self.seat.label_party, RowsHeld(first, np.flatnonzero(rows >= 0).astype(np.uint32)))]

    def _check_request(self, sender: str, number: int, rows: NDArray[np.uint32]) -> None:
        if number != self.batches + len(self._waiting_numbers) + 1 or not 0 < rows.size <= PIECE:
            raise ProtocolError(f"{sender} made the request {number} out of turn, or for {rows.size} rows.")
        least = _LACKED if self.may_lack else 0
        if int(rows.max()) >= len(self._rows) or bool((self._rows[rows] < least).any()):
            raise ProtocolError(f"{sender} asked for rows that {self.seat.name} does not hold.")
        own = self._rows[rows][self._rows[rows] >= 0]
        if bool(self._answered[rows].any()) or len(np.unique(own)) != own.size:
            raise ProtocolError(f"{sender} asked for a row twice, which would tell more of it than is counted.")

    def _acquainted(self) -> Sequence[Effect]:
        effects: list[Effect] = []
        for number, rows in zip(self._waiting_numbers, self._waiting_rows, strict=True):
            effects += self._answer(number, rows)
        self._waiting_numbers, self._waiting_rows = [], []
        return effects

    def _answer(self, number: int, rows: NDArray[np.uint32]) -> list[Effect]:
        self.batches = number
        own, to = self._rows[rows], self.seat.label_party
        if self.is_linear:
            products = products_of(self.seat.model, rows_at(self._columns, own))
            if self.point is None:
                return [Send(to, PredictionProduct(number, products))]
            return [Send(to, MaskedProduct(number, self._hidden(number, products)))]
        affordable = np.ones(rows.size, np.bool_)  # a row that it lacks costs nothing
        affordable[own >= 0] = self._budget.affordable(own[own >= 0].astype(np.uint32), self._cost)
        self.refused += int(rows.size - affordable.sum())
        rows, own = rows[affordable], own[affordable]
        if not rows.size:
            width = self.seat.model.description.widths[self.seat.name]
            return [Send(to, PredictionEmbedding(number, rows, np.zeros((0, width), np.float32)))]
        bottom = self.seat.model.modules["bottom"]
        embedding = embedding_of(bottom, rows_at(self._columns, own), self._noise).numpy()
        return [*self._spent(own[own >= 0].astype(np.uint32)), Send(to, PredictionEmbedding(number, rows, embedding))]

    def _spent(self, own: NDArray[np.uint32]) -> list[Effect]:
        protects = f"columns of {self.seat.name}, predicted rows"
        event = None if self._noise is None else self._noise.event(own.size, protects, (self.seat.label_party,), own)
        if event is None:
            return []
        self._budget.spend(own, self._cost)
        return [Spend(event)]


# --- the label party --------------------------------------------------------------------------------------------


class PredictingLabelParty(PredictingParty):
    """Names rows, gathers what all parties make of them, and has the outputs in the end."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        array("_held"),
        value("_unheard", "_open", "refused"),
        array_or_none("_to_score", dtype=np.uint32),
        array("_values"),
        array("_refused_rows"),
    )

    def __init__(self, seat: PredictionSeat) -> None:
        super().__init__(seat)
        assert seat.asked is not None
        self.asked: AskedRows = seat.asked
        count, facts = len(self.asked), seat.model.description.facts
        self._held = np.zeros((len(seat.feature_parties), count), np.bool_)
        # The pieces that each party has not answered, by where they begin.
        self._unheard = {party: [*range(0, count, PIECE)] for party in seat.feature_parties}
        self._to_score: NDArray[np.uint32] | None = None  # rows that all hold, once that is known
        self._open: dict[str, list[str]] = {}  # requests by number, and who has not answered
        widths = [facts.outputs if self.is_linear else facts.widths[party] for party in seat.feature_parties]
        ends = np.cumsum(widths).tolist()
        self._slices = {
            party: slice(end - width, end) for party, end, width in zip(seat.feature_parties, ends, widths, strict=True)
        }
        kind: Any = np.float32 if not self.is_linear else np.float64 if self.point is None else np.uint64
        self._values: NDArray[Any] = np.zeros((count, ends[-1]), kind)
        self._refused_rows = np.zeros(count, np.bool_)
        self.refused: dict[str, int] = {}  # rows whose budget is spent, by party

    # --- its result ---

    def known(self) -> NDArray[np.bool_]:
        """Which of the rows asked for every party holds; any party, where rows may be absent."""
        own = self.asked.own_rows >= 0
        if self.may_lack:
            return self._held.any(0) | (own & (self.seat.columns is not None))
        return self._held.all(0) & (own | (self.seat.columns is None))

    def present(self) -> dict[str, NDArray[np.bool_]]:
        """Which of the scored rows each party with columns holds."""
        rows = self.scored()
        held = {name: one[rows] for name, one in zip(self.seat.feature_parties, self._held, strict=True)}
        return held if self.seat.columns is None else {**held, self.seat.name: self.asked.own_rows[rows] >= 0}

    def scored(self) -> NDArray[np.uint32]:
        """The rows that there are outputs of, by their places among those asked for."""
        assert self._to_score is not None, "the prediction is not done"
        return self._to_score[~self._refused_rows[self._to_score]]

    def lacking(self) -> dict[str, int]:
        """How many of the rows asked for each feature party does not hold."""
        return {name: int((~held).sum()) for name, held in zip(self.seat.feature_parties, self._held, strict=True)}

    def outputs(self) -> torch.Tensor:
        """The joint model's outputs for the scored rows."""
        rows, seat = self.scored(), self.seat
        own = None if seat.columns is None else rows_at(seat.columns, self.asked.own_rows[rows])
        values = self._values[rows]
        if not self.is_linear:
            parts = [torch.from_numpy(values)]
            if own is not None:
                parts.append(embedding_of(seat.model.modules["bottom"], own))
            return network_for(seat.model.modules["top"]).score(torch.cat(parts, 1))
        if self.point is not None:
            total = sum((values[:, part] for part in self._slices.values()), np.zeros((), np.uint64))
            return torch.from_numpy(self.point.decode(np.asarray(total)))
        first = np.zeros((len(rows), seat.model.description.facts.outputs))
        if own is not None:
            first = products_of(seat.model, own)
        return torch.from_numpy(summed([first, *(values[:, part] for part in self._slices.values())], self._described))

    @property
    def _described(self) -> Any:
        return self.seat.model.description

    # --- the conversation ---

    def _begin(self) -> Sequence[Effect]:
        if not len(self.asked):
            self._to_score = np.zeros(0, np.uint32)
            return self._end()
        asked, total = self.asked, len(self.asked)
        pieces: list[Message] = []
        for first in range(0, total, PIECE):
            which = slice(first, first + PIECE)
            if asked.names is not None:
                pieces.append(RowsNamed(first, total, asked.names[which]))
            else:
                assert asked.places is not None
                pieces.append(RowsPlaced(first, total, asked.places[which]))
        return [Send(party, piece) for party in self.seat.feature_parties for piece in pieces]

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        match message:
            case RowsHeld(first, rows):
                return self._hear_held(sender, first, rows)
            case PredictionEmbedding(number, rows, embedding) if not self.is_linear:
                asked = self._rows_of(sender, number)
                if not set(rows.tolist()) <= set(asked.tolist()) or len(np.unique(rows)) != rows.size:
                    raise ProtocolError(f"{sender} answered for rows that were not asked for.")
                return self._take(sender, number, asked, rows, embedding)
            case PredictionProduct(number, products) if self.is_linear and self.point is None:
                asked = self._rows_of(sender, number)
                return self._take(sender, number, asked, asked, products)
            case MaskedProduct(number, products) if self.point is not None:
                asked = self._rows_of(sender, number)
                return self._take(sender, number, asked, asked, products)
            case _:
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no answer in this prediction.")

    def _hear_held(self, sender: str, first: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        size = min(PIECE, len(self.asked) - first)
        if first not in self._unheard.get(sender, ()):
            raise ProtocolError(f"{sender} spoke of rows from {first} on, which were not named to it.")
        if rows.size and (int(rows.max()) >= size or len(np.unique(rows)) != rows.size):
            raise ProtocolError(f"{sender} told of rows that were not named to it, or of one twice.")
        self._held[self.seat.feature_parties.index(sender), first + rows.astype(np.int64)] = True
        self._unheard[sender].remove(first)
        return self._acquainted()

    def _acquainted(self) -> Sequence[Effect]:
        if self._to_score is not None or any(self._unheard.values()) or not self.is_acquainted:
            return []
        self._to_score = np.flatnonzero(self.known()).astype(np.uint32)
        return self._ask_more() or self._end()

    def _ask_more(self) -> list[Effect]:
        assert self._to_score is not None
        effects: list[Effect] = []
        while len(self._open) < IN_FLIGHT and self.batches * PIECE < len(self._to_score):
            rows = self._to_score[self.batches * PIECE : (self.batches + 1) * PIECE]
            self.batches += 1
            self._open[str(self.batches)] = list(self.seat.feature_parties)
            self._begin_sum(self.batches, rows)
            effects += [Send(party, ScoreRequest(self.batches, rows)) for party in self.seat.feature_parties]
        return effects

    def _begin_sum(self, number: int, rows: NDArray[np.uint32]) -> None:
        """The label party's own part of a masked sum, without which the others' masks do not cancel."""
        if self.point is None:
            return
        own = np.zeros((rows.size, self._described.facts.outputs))
        if self.seat.columns is not None:
            own = products_of(self.seat.model, rows_at(self.seat.columns, self.asked.own_rows[rows]))
        first = next(iter(self._slices.values()))
        self._values[rows, first] += self._hidden(number, own)

    def _rows_of(self, sender: str, number: int) -> NDArray[np.uint32]:
        """The rows of a request that this party has not answered yet."""
        if self._to_score is None or sender not in self._open.get(str(number), ()):
            raise ProtocolError(f"{sender} answered the request {number}, which was not made, or is answered.")
        return self._to_score[(number - 1) * PIECE : number * PIECE]

    def _take(
        self,
        sender: str,
        number: int,
        asked: NDArray[np.uint32],
        rows: NDArray[np.uint32],
        values: NDArray[Any],
    ) -> Sequence[Effect]:
        part = self._slices[sender]
        if values.shape != (rows.size, part.stop - part.start):
            raise ProtocolError(f"{sender} answered with values of shape {values.shape}, which was not asked for.")
        self._values[rows, part] += values
        if rows.size < asked.size:
            self._refused_rows[np.setdiff1d(asked, rows)] = True
            self.refused[sender] = self.refused.get(sender, 0) + int(asked.size - rows.size)
        waiting = self._open[str(number)]
        waiting.remove(sender)
        if waiting:
            return []
        del self._open[str(number)]
        return self._ask_more() or ([] if self._open else self._end())

    def _end(self) -> list[Effect]:
        stops: list[Effect] = [Send(name, Stop("All rows are predicted.")) for name in self.seat.others]
        done = Observe(self.batches, self.batches, 1.0)
        return [*stops, done, Checkpoint(), Finish()]


def build_predicting_party(seat: PredictionSeat) -> PredictingParty:
    """By role."""
    return PredictingLabelParty(seat) if seat.name == seat.label_party else PredictingFeatureParty(seat)


def rows_at(columns: torch.Tensor, own: NDArray[np.int64]) -> torch.Tensor:
    """Some of a party's rows; one that it lacks looks as it did in training."""
    found = columns[torch.from_numpy(np.maximum(own, 0))]
    lacked = own < 0
    if lacked.any():
        found[torch.from_numpy(lacked)] = absent_rows(int(lacked.sum()), tuple(columns.shape[1:]))
    return found


def _found(names: Names, order: NDArray[np.int64] | None, wanted: Names) -> NDArray[np.int64]:
    """The row of each wanted name, −1 where there is none."""
    if order is None or not len(names):
        return np.full(len(wanted), _LACKED, np.int64)
    at = np.minimum(np.searchsorted(names[order, 0], wanted[:, 0]), len(order) - 1)
    rows: NDArray[np.int64] = order[at]
    return np.where((names[rows] == wanted).all(axis=1), rows, _LACKED)
