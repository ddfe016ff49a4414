"""What an enforced budget costs: an exchange with the ledger on disk and every row's budget kept, over one without.

Two MNIST-shaped federations: `vafl` with noised embeddings, whose parties keep the budgets of their columns, and `dpzv`
with noised slopes, whose label party keeps those of its labels. Every other turn of each draws the same noise, and
counts and writes nothing; it is the same federation, since two of them differ by more than the ledger through where
their memory lies. Counted are seconds of the processor, and those in which the ledger waits for the disk, so that other
work on the machine does not count. Memory and disk are those of one owner of a million rows.
"""

import tempfile
import time
import tracemalloc
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.parts.budget import RowBudget
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import (
    BATCH,
    PARTIES,
    RATE,
    WIDTH,
    Simulated,
    mnist_shaped,
    ratio,
)
from colonnade.data.federated import FederatedData
from colonnade.federation.building import build_parties
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation

EPSILON = 1000.0  # kept, and never reached: no row is refused while it is timed
COLUMNS = (Vafl(), PerturbationSettings(noise=1.0, clip=1.0, bottom_update="frozen", columns_epsilon=EPSILON))
LABELS = (
    Dpzv(clip=1.0, noise=1.0, server_update="private-zo", server_noise=1.0),
    PerturbationSettings(labels_epsilon=EPSILON),
)
PAIRS_OF_TURNS = 200
EXCHANGES_A_TURN = 40
OWNED_ROWS = 1_000_000


@one_thread
def run(watch: Watch) -> dict[str, float]:
    data = mnist_shaped()
    overheads = {}
    for what, (algorithm, privacy) in {"columns": COLUMNS, "labels": LABELS}.items():
        with (
            tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder,
            closing(_SwitchedLedger(Path(folder) / "ledger.jsonl")) as ledger,
        ):
            federation = _Private(data, algorithm, privacy, ledger)
            federation.seconds(enforced=True)  # not counted: everything is new
            ledger.waited_seconds = 0.0
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(2 * PAIRS_OF_TURNS):
                enforced = turn % 4 in (0, 3)  # either goes first as often
                seconds[enforced].append(federation.seconds(enforced))
        with_budget, without = (float(np.median(seconds[enforced])) for enforced in (True, False))
        waited = ledger.waited_seconds / PAIRS_OF_TURNS  # a mean: a block's sync is in few of the turns
        overheads[what] = 100 * (ratio(seconds[True], seconds[False]) - 1 + waited / without)
        watch(
            f"{what}: an exchange takes {1e3 * with_budget / EXCHANGES_A_TURN:.3f} ms with budgets and "
            f"{1e3 * without / EXCHANGES_A_TURN:.3f} ms without; {1e3 * waited / EXCHANGES_A_TURN:.3f} ms of waiting"
        )
    memory, disk = _megabytes()
    watch(f"{OWNED_ROWS:,} rows: {memory:.0f} MB of memory, {disk:.0f} MB on disk")
    return {
        "ledger_overhead_percent": max(overheads.values()),
        "ledger_overhead_percent_columns": overheads["columns"],
        "ledger_overhead_percent_labels": overheads["labels"],
        "ledger_megabytes_per_million_rows": memory,
        "ledger_disk_megabytes_per_million_rows": disk,
    }


class _SwitchedLedger(Ledger):
    """Does its work only while it is enforced, and knows how long it has waited for the disk."""

    enforced = True
    waited_seconds = 0.0

    def spend(self, party: str, event: PrivacyEvent) -> bool:
        return super().spend(party, event) if self.enforced else True

    def _reserve(self, *reserved: Any) -> None:
        wall, busy = time.perf_counter(), time.thread_time()
        super()._reserve(*reserved)
        self.waited_seconds += time.perf_counter() - wall - (time.thread_time() - busy)


class _Private(Simulated):
    """A private federation under `simulate`, with a ledger of its own."""

    def __init__(
        self, data: FederatedData, algorithm: Any, privacy: PerturbationSettings, ledger: _SwitchedLedger
    ) -> None:
        training = Training(epochs=1000, batch_size=BATCH, learning_rate=RATE, optimiser="sgd", evaluate_every_epochs=0)
        bottom, top = BottomSettings(embedding=WIDTH, hidden=()), TopSettings(hidden=(128,))
        parties = build_parties(data, algorithm, training, privacy, bottom, top, seed=0)
        self._label = parties["label"]
        self._stop_at = 0
        self._ledger = ledger
        everybody: list[Any] = [*parties.values()]
        self._budgets: list[RowBudget] = [
            party._bottom.budget if hasattr(party, "_bottom") else party._budget for party in everybody
        ]
        self._limits = [budget._limit for budget in self._budgets]
        self._simulation = Simulation(parties, Simulate(), 0, Recorder("label"), ledger, stop_requested=self._reached)

    def seconds(self, enforced: bool) -> float:
        """Of the processor, for one turn."""
        self._ledger.enforced = enforced
        for budget, limit in zip(self._budgets, self._limits, strict=True):
            budget._limit = limit if enforced else inf
        self._stop_at = self.exchanges() + EXCHANGES_A_TURN
        began = time.process_time()
        self._simulation.run()
        return time.process_time() - began


def _megabytes() -> tuple[float, float]:
    """Memory at its highest, and files, of a label party of `dpzv` after one epoch of each of four parties.

    It is the owner with the most kinds of event: a slope for each party, and its own update. Files are the lines and
    the reservations, and what the two checkpoints that are kept hold of counts and budgets.
    """
    order = np.random.default_rng(0).permutation(OWNED_ROWS).astype(np.uint32)
    parties = [f"party{1 + place}" for place in range(PARTIES)]
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        tracemalloc.start()
        try:
            ledger = Ledger(Path(folder) / "ledger.jsonl")
            budget = RowBudget(OWNED_ROWS, mu=100.0)
            for start in range(0, OWNED_ROWS, BATCH):
                rows = order[start : start + BATCH]
                for party in parties:
                    for viewers in ((party,), tuple(parties)):
                        ledger.spend("label", _release(rows, viewers))
                    budget.spend(rows, 1e-3)
            tensors = [*ledger.state().tensors.values(), *budget.state().tensors.values()]
            saved = sum(tensor.nbytes for tensor in tensors)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        ledger.close()
        written = sum(path.stat().st_size for path in Path(folder).iterdir())
    return peak / 1e6, (written + 2 * saved) / 1e6


def _release(rows: np.ndarray[Any, np.dtype[np.uint32]], viewers: tuple[str, ...]) -> PrivacyEvent:
    return PrivacyEvent(
        mechanism="gaussian",
        sensitivity=2 / BATCH,
        noise=1.0,
        rows=rows.size,
        row_ids=rows,
        protects="labels of label, training rows",
        viewers=viewers,
    )


BENCHMARK = Benchmark(
    "privacy",
    "what a ledger on disk and budgets by the row cost a private federation",
    run,
    {
        "ledger_overhead_percent": "<= 5",
        "ledger_megabytes_per_million_rows": "<= 100",
        "ledger_disk_megabytes_per_million_rows": "<= 100",
    },
)
