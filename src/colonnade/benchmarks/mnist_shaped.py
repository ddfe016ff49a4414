"""Made-up data of MNIST's shape, and the federations on it that the benchmarks time, in short turns."""

import time
from typing import Any

import numpy as np
import torch

from colonnade.algorithms.training import Training
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.federation.building import build_parties
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation

ROWS, COLUMNS, PARTIES, CLASSES, BATCH, WIDTH = 60_000, 784, 4, 10, 64, 128
TURNS = 25
EXCHANGES_A_TURN = 200
RATE = 0.01


def training_of(exchanges: int, parties: int, rows: int) -> Training:
    """So many exchanges of all parties together."""
    return Training(
        epochs=exchanges * BATCH / (parties * rows),
        batch_size=BATCH,
        learning_rate=RATE,
        optimiser="sgd",
        evaluate_every_epochs=0,
        observe_every_epochs=0.01,
    )


def mnist_shaped(rows: int = ROWS, parties: int = PARTIES) -> FederatedData:
    """Speed does not depend on the values."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    width = COLUMNS // parties
    columns = {}
    for party in range(parties):
        values = torch.rand(rows, width, generator=generator)
        names = tuple(f"x{i}" for i in range(width))
        columns[f"party{party + 1}"] = PartyColumns(values, values[:0], names)
    target = Labels(labels, labels[:0], "multiclass", tuple(range(CLASSES)))
    return FederatedData("mnist-shaped", "label", target, columns, "")


class Simulated:
    """An algorithm under `simulate`: codec, driver, heap, table, counters, no trace."""

    def __init__(
        self, data: FederatedData, algorithm: Any, embedding: int = WIDTH, rate: float = RATE, **kept: Any
    ) -> None:
        """`kept`: other settings of the training."""
        often: dict[str, Any] = {"optimiser": "sgd", "evaluate_every_epochs": 0, **kept}
        training = Training(epochs=1000, batch_size=BATCH, learning_rate=rate, **often)
        bottom = BottomSettings(embedding=embedding, hidden=())
        top = TopSettings(hidden=(128,))
        parties = build_parties(data, algorithm, training, PerturbationSettings(), bottom, top, seed=0)
        self._label = parties["label"]
        self._stop_at = 0
        self._simulation = Simulation(parties, Simulate(), 0, Recorder("label"), Ledger(), stop_requested=self._reached)

    def label_seat(self) -> Any:
        """The label party's place in the simulation, for who wants to time it alone."""
        return self._simulation._places[0]

    def exchanges(self) -> int:
        return int(self._label._record.exchange)  # type: ignore[attr-defined]

    def _reached(self) -> bool:
        return self.exchanges() >= self._stop_at

    def turn(self) -> float:
        """Exchanges a second of one turn."""
        start = self.exchanges()
        self._stop_at = start + EXCHANGES_A_TURN
        began = time.perf_counter()
        self._simulation.run()
        return (self.exchanges() - start) / (time.perf_counter() - began)


class Timed:
    """Knows how long a place of a simulation took for everything that it received."""

    def __init__(self, place: Any) -> None:
        self._receive = place.receive
        self.taken: list[float] = []
        place.receive = self.receive

    def receive(self, *frame: Any) -> None:
        began = time.perf_counter()
        self._receive(*frame)
        self.taken.append(time.perf_counter() - began)


class Loop:
    """A hand-written loop over the same data: every party in turn, one batch per exchange."""

    def __init__(self, data: FederatedData) -> None:
        self.columns = [data.columns[name].train for name in data.feature_parties]
        self.labels = data.labels.train
        self.table = torch.zeros(len(self.labels), WIDTH * len(self.columns))
        self.orders = [torch.randperm(len(self.labels)) for _ in self.columns]
        self.place = 0

    def turn(self) -> float:
        """Exchanges a second of one turn."""
        began = time.perf_counter()
        for exchange in range(EXCHANGES_A_TURN):
            party = exchange % len(self.columns)
            if party == 0:
                self.place = (self.place + BATCH) % (len(self.labels) - BATCH)
            self.exchange(party, self.orders[party][self.place : self.place + BATCH])
        return EXCHANGES_A_TURN / (time.perf_counter() - began)

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        raise NotImplementedError


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the turns' ratios: neighbours in time met the same load of the machine."""
    return float(np.median(np.array(ours) / np.array(theirs)))
