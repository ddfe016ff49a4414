"""What `simulate` adds to the arithmetic: exchanges per second over a hand-written eager PyTorch loop.

MNIST-shaped: 60,000 × 784, four parties × 196 columns, bottoms Linear(196, 128) + ReLU, top 512 → 128 → 10, batch 64.
Both sides do the same arithmetic on the same sizes: one party's bottom forward, the table's rows, the top's forward
and backward pass and update, the party's backward pass and update. The loop has no codec, driver, heap or counters.
The two alternate in short turns, so that both meet the same machine.
"""

import resource
import time

import numpy as np
import torch
from torch import nn

from colonnade.algorithms.parts.training import Training
from colonnade.algorithms.vafl import Vafl
from colonnade.benchmarks import Benchmark, Watch
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.experiment import build_parties
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate import Simulate, Simulation

ROWS, COLUMNS, PARTIES, CLASSES, BATCH = 60_000, 784, 4, 10, 64
TURNS = 25
EXCHANGES_A_TURN = 200


def run(watch: Watch) -> dict[str, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(watch)
    finally:
        torch.set_num_threads(before)


def _run(watch: Watch) -> dict[str, float]:
    data = mnist_shaped(ROWS, PARTIES)
    memory_before = _peak_megabytes()
    ours = _Simulated(data)
    ours.turn()
    # What is left when the embedding table is taken off: parties, models, buffers, books.
    table_megabytes = ROWS * PARTIES * 128 * 4 / 1e6
    extra_megabytes = max(0.0, _peak_megabytes() - memory_before - table_megabytes)
    plain = _PlainLoop(data)
    lean = _LeanLoop(data)
    rates: dict[str, list[float]] = {"simulate": [], "plain": [], "lean": []}
    for turn in range(TURNS):
        for name, side in (("simulate", ours), ("plain", plain), ("lean", lean)):
            rates[name].append(side.turn())
        if turn % 5 == 4:
            seen = ", ".join(f"{name} {np.median(rate):.0f}/s" for name, rate in rates.items())
            watch(f"{turn + 1} of {TURNS} turns: {seen}")
    watch("growth with rows and parties")
    return {
        "simulate_over_plain_torch": _ratio(rates["simulate"], rates["plain"]),
        "simulate_over_lean_torch": _ratio(rates["simulate"], rates["lean"]),
        "simulate_exchanges_per_second": float(np.median(rates["simulate"])),
        "memory_megabytes": extra_megabytes,
        **_growth(),
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the turns' ratios: neighbours in time met the same load of the machine."""
    return float(np.median(np.array(ours) / np.array(theirs)))


def _growth() -> dict[str, float]:
    """Seconds an exchange with more rows or more parties over those with fewer, in turns.

    More parties get as many columns and embedding numbers together as fewer, so the batch stays what it was.
    """
    few_rows = _Simulated(mnist_shaped(ROWS // 10, PARTIES))
    many_rows = _Simulated(mnist_shaped(ROWS, PARTIES))
    many_parties = _Simulated(mnist_shaped(ROWS // 10, 4 * PARTIES), embedding=32)
    for side in (few_rows, many_rows, many_parties):
        side.turn()
    turns = [(few_rows.turn(), many_rows.turn(), many_parties.turn()) for _ in range(TURNS)]
    few, rows, parties = (list(rates) for rates in zip(*turns, strict=True))
    return {"seconds_at_60000_over_6000_rows": _ratio(few, rows), "seconds_at_16_over_4_parties": _ratio(few, parties)}


def mnist_shaped(rows: int, parties: int) -> FederatedData:
    """Made-up data of MNIST's shape: speed does not depend on the values."""
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


class _Simulated:
    """`vafl` under `simulate`: codec, driver, heap, table, counters, no trace."""

    def __init__(self, data: FederatedData, embedding: int = 128) -> None:
        training = Training(epochs=1000, batch_size=BATCH, learning_rate=0.01, evaluate_every_epochs=0)
        bottom = BottomSettings(embedding=embedding, hidden=())
        top = TopSettings(hidden=(128,))
        parties = build_parties(data, Vafl(), training, PerturbationSettings(), bottom, top, seed=0)
        self._label = parties["label"]
        self._stop_at = 0
        self._simulation = Simulation(
            parties, "label", Simulate(), 0, Recorder("label"), Ledger(), stop_requested=self._reached
        )

    def _reached(self) -> bool:
        return bool(self._label._exchange >= self._stop_at)  # type: ignore[attr-defined]

    def turn(self) -> float:
        start = self._label._exchange  # type: ignore[attr-defined]
        self._stop_at = start + EXCHANGES_A_TURN
        began = time.perf_counter()
        self._simulation.run()
        return (self._label._exchange - start) / (time.perf_counter() - began)  # type: ignore[attr-defined, no-any-return]


class _PlainLoop:
    """What a researcher writes: eager modules, `backward()`, torch.optim.SGD, in turn for every party."""

    def __init__(self, data: FederatedData) -> None:
        torch.manual_seed(0)
        self.columns = [data.columns[name].train for name in data.feature_parties]
        self.labels = data.labels.train
        self.bottoms = [nn.Sequential(nn.Linear(196, 128), nn.ReLU()) for _ in self.columns]
        self.top = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.table = torch.zeros(len(self.labels), 512)
        self.optimisers = [torch.optim.SGD(bottom.parameters(), lr=0.01) for bottom in self.bottoms]
        self.top_optimiser = torch.optim.SGD(self.top.parameters(), lr=0.01)
        self.loss = nn.CrossEntropyLoss()
        self.orders = [torch.randperm(len(self.labels)) for _ in self.columns]
        self.place = 0

    def turn(self) -> float:
        began = time.perf_counter()
        for exchange in range(EXCHANGES_A_TURN):
            party = exchange % PARTIES
            if party == 0:
                self.place = (self.place + BATCH) % (len(self.labels) - BATCH)
            self.exchange(party, self.orders[party][self.place : self.place + BATCH])
        return EXCHANGES_A_TURN / (time.perf_counter() - began)

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        embedding = self.bottoms[party](self.columns[party][rows])
        sent = embedding.detach()
        part = slice(party * 128, party * 128 + 128)
        self.table[rows, part] = sent
        inputs = self.table[rows].requires_grad_()
        loss = self.loss(self.top(inputs), self.labels[rows])
        self.top_optimiser.zero_grad()
        loss.backward()
        self.top_optimiser.step()
        assert inputs.grad is not None
        self.optimisers[party].zero_grad()
        embedding.backward(inputs.grad[:, part])
        self.optimisers[party].step()


class _LeanLoop(_PlainLoop):
    """The same with `autograd.grad` and in-place `_foreach` updates: the fastest eager loop known to us."""

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        embedding = self.bottoms[party](self.columns[party].index_select(0, rows))
        part = slice(party * 128, party * 128 + 128)
        self.table[rows, part] = embedding.detach()
        inputs = self.table.index_select(0, rows).requires_grad_()
        loss = nn.functional.cross_entropy(self.top(inputs), self.labels.index_select(0, rows))
        parameters: list[torch.Tensor] = list(self.top.parameters())
        *gradients, by_inputs = torch.autograd.grad(loss, [*parameters, inputs])
        own: list[torch.Tensor] = list(self.bottoms[party].parameters())
        own_gradients = torch.autograd.grad(embedding, own, by_inputs[:, part])
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-0.01)
            torch._foreach_add_(own, own_gradients, alpha=-0.01)


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


BENCHMARK = Benchmark(
    "split",
    "what simulate adds to the arithmetic of an MNIST-shaped vafl",
    run,
    {
        "simulate_over_plain_torch": ">= 0.9",
        "simulate_over_lean_torch": ">= 0.9",
        "memory_megabytes": "<= 100",
        "seconds_at_60000_over_6000_rows": "<= 1.25",
        "seconds_at_16_over_4_parties": "<= 1.25",
    },
)
