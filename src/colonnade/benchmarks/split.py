"""What `simulate` adds to the arithmetic: exchanges per second over a hand-written eager PyTorch loop.

MNIST-shaped: 60,000 × 784, four parties × 196 columns, bottoms Linear(196, 128) + ReLU, top 512 → 128 → 10, batch 64.
Both sides do the same arithmetic on the same sizes: one party's bottom forward, the table's rows, the top's forward
and backward pass and update, the party's backward pass and update. The loop has no codec, driver, heap or counters.
The floor below both is the matrix products and updates alone, into memory that is there: no rows are fetched, and there
is no table, no loss and no bias. All alternate in short turns, so that they meet the same machine.
"""

import resource

import numpy as np
import torch
from torch import nn

from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import (
    BATCH,
    CLASSES,
    PARTIES,
    RATE,
    ROWS,
    TURNS,
    WIDTH,
    Loop,
    Simulated,
    mnist_shaped,
    ratio,
)
from colonnade.data.federated import FederatedData


@one_thread
def run(watch: Watch) -> dict[str, float]:
    data = mnist_shaped()
    memory_before = _peak_megabytes()
    ours = Simulated(data, Vafl())
    ours.turn()
    # What is left when the embedding table is taken off: parties, models, buffers, records.
    table_megabytes = ROWS * PARTIES * WIDTH * 4 / 1e6
    extra_megabytes = max(0.0, _peak_megabytes() - memory_before - table_megabytes)
    plain = _PlainLoop(data)
    lean = _LeanLoop(data)
    bare = _BareProducts(data)
    rates: dict[str, list[float]] = {"simulate": [], "plain": [], "lean": [], "bare": []}
    for turn in range(TURNS):
        for name, side in (("simulate", ours), ("plain", plain), ("lean", lean), ("bare", bare)):
            rates[name].append(side.turn())
        if turn % 5 == 4:
            seen = ", ".join(f"{name} {np.median(rate):.0f}/s" for name, rate in rates.items())
            watch(f"{turn + 1} of {TURNS} turns: {seen}")
    watch("growth with rows and parties")
    return {
        "simulate_over_plain_torch": ratio(rates["simulate"], rates["plain"]),
        "simulate_over_lean_torch": ratio(rates["simulate"], rates["lean"]),
        "simulate_over_bare_products": ratio(rates["simulate"], rates["bare"]),
        "simulate_exchanges_per_second": float(np.median(rates["simulate"])),
        "memory_megabytes": extra_megabytes,
        **_growth(),
    }


def _growth() -> dict[str, float]:
    """Seconds an exchange with more rows or more parties over those with fewer, in turns.

    More parties get as many columns and embedding numbers together as fewer, so the batch stays what it was.
    """
    few_rows = Simulated(mnist_shaped(ROWS // 10), Vafl())
    many_rows = Simulated(mnist_shaped(), Vafl())
    many_parties = Simulated(mnist_shaped(ROWS // 10, 4 * PARTIES), Vafl(), embedding=32)
    for side in (few_rows, many_rows, many_parties):
        side.turn()
    turns = [(few_rows.turn(), many_rows.turn(), many_parties.turn()) for _ in range(TURNS)]
    few, rows, parties = (list(rates) for rates in zip(*turns, strict=True))
    return {"seconds_at_60000_over_6000_rows": ratio(few, rows), "seconds_at_16_over_4_parties": ratio(few, parties)}


class _PlainLoop(Loop):
    """What a researcher writes: eager modules, `backward()`, torch.optim.SGD, in turn for every party."""

    def __init__(self, data: FederatedData) -> None:
        super().__init__(data)
        self.bottoms = [nn.Sequential(nn.Linear(196, WIDTH), nn.ReLU()) for _ in self.columns]
        self.top = nn.Sequential(nn.Linear(4 * WIDTH, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.optimisers = [torch.optim.SGD(bottom.parameters(), lr=RATE) for bottom in self.bottoms]
        self.top_optimiser = torch.optim.SGD(self.top.parameters(), lr=RATE)
        self.loss = nn.CrossEntropyLoss()

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        embedding = self.bottoms[party](self.columns[party][rows])
        sent = embedding.detach()
        part = slice(party * WIDTH, (party + 1) * WIDTH)
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
        part = slice(party * WIDTH, (party + 1) * WIDTH)
        self.table[rows, part] = embedding.detach()
        inputs = self.table.index_select(0, rows).requires_grad_()
        loss = nn.functional.cross_entropy(self.top(inputs), self.labels.index_select(0, rows))
        parameters: list[torch.Tensor] = list(self.top.parameters())
        *gradients, by_inputs = torch.autograd.grad(loss, [*parameters, inputs])
        own: list[torch.Tensor] = list(self.bottoms[party].parameters())
        own_gradients = torch.autograd.grad(embedding, own, by_inputs[:, part])
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)
            torch._foreach_add_(own, own_gradients, alpha=-RATE)


class _BareProducts(Loop):
    """The arithmetic that no implementation can leave out, on one batch of numbers, over and over."""

    def __init__(self, data: FederatedData) -> None:
        super().__init__(data)
        hidden, inputs = 128, WIDTH * len(self.columns)
        self.x, self.z = torch.randn(BATCH, 196), torch.randn(BATCH, inputs)
        self.bottoms = [torch.randn(196, WIDTH) / 14 for _ in self.columns]
        self.first, self.second = torch.randn(inputs, hidden) / inputs**0.5, torch.randn(hidden, CLASSES) / hidden**0.5
        self.h, self.by_h = torch.empty(BATCH, WIDTH), torch.empty(BATCH, WIDTH)
        self.u, self.by_u = torch.empty(BATCH, hidden), torch.empty(BATCH, hidden)
        self.o = torch.empty(BATCH, CLASSES)
        self.by_bottom = torch.empty(196, WIDTH)
        self.by_first, self.by_second = torch.empty(inputs, hidden), torch.empty(hidden, CLASSES)

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        part = slice(party * WIDTH, (party + 1) * WIDTH)
        torch.mm(self.x, self.bottoms[party], out=self.h).relu_()
        torch.mm(self.z, self.first, out=self.u).relu_()
        torch.mm(self.u, self.second, out=self.o)
        torch.mm(self.u.t(), self.o, out=self.by_second)
        torch.mm(self.o, self.second.t(), out=self.by_u)
        torch.mm(self.z.t(), self.by_u, out=self.by_first)
        torch.mm(self.by_u, self.first[part].t(), out=self.by_h)
        torch.mm(self.x.t(), self.by_h, out=self.by_bottom)
        rate = -1e-9  # so that numbers stay numbers
        torch._foreach_add_([self.first, self.second], [self.by_first, self.by_second], alpha=rate)
        self.bottoms[party].add_(self.by_bottom, alpha=rate)


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


BENCHMARK = Benchmark(
    "split",
    "what simulate adds to the arithmetic of an MNIST-shaped vafl",
    run,
    {
        "simulate_over_plain_torch": ">= 0.9",
        "simulate_over_lean_torch": ">= 0.9",
        "simulate_over_bare_products": ">= 0.65",
        "memory_megabytes": "<= 100",
        "seconds_at_60000_over_6000_rows": "<= 1.25",
        "seconds_at_16_over_4_parties": "<= 1.25",
    },
)
