"""What many rows cost: time per exchange, memory of each party's process, and the pause of a checkpoint.

Four parties of eight columns, embeddings of 16 numbers, a table as float16, batches of 64. Time per exchange with 10
million rows over that with 10,000, in turns. Memory is the peak of each process of a real run over 10 million rows. The
pause is that of a label party's checkpoint whose table takes 1 GB, when as much has changed as makes one due at once:
what is copied before the party goes on. What a thread writes beside it is told as `written_milliseconds`.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import Simulated, ratio
from colonnade.benchmarks.process_memory import peak_bytes, watched
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.runtimes.checkpoint import write_checkpoint
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.keeper import MOST_CHANGED_BYTES, Keeper
from colonnade.runtimes.processes.settings import Processes
from colonnade.state import State

PARTIES, COLUMNS, WIDTH, BATCH = 4, 8, 16, 64
MANY, FEW = 10_000_000, 10_000
TURNS = 20
EXCHANGES = 4_000
WIDE = 64  # numbers a party, in the table of 1 GB
CHECKPOINTS = 12


@one_thread
def run(watch: Watch) -> dict[str, float]:
    found = _pauses(watch)
    many = _data(MANY)
    found |= _growth(many, watch)
    return found | _memory(many, watch)


def _data(rows: int) -> FederatedData:
    generator = torch.Generator().manual_seed(0)
    names = tuple(f"x{place}" for place in range(COLUMNS))
    columns = {
        f"party{place}": PartyColumns(torch.randn(rows, COLUMNS, generator=generator), torch.zeros(0, COLUMNS), names)
        for place in range(1, PARTIES + 1)
    }
    labels = (sum(held.train[:, 0] for held in columns.values()) > 0).long()  # type: ignore[union-attr]
    return FederatedData("many rows", "label", Labels(labels, labels[:0], "binary", (0, 1)), columns, "")


# --- time ---------------------------------------------------------------------------------------------------------


def _growth(many: FederatedData, watch: Watch) -> dict[str, float]:
    """Seconds an exchange with many rows over those with few."""
    sides = [Simulated(data, Vafl(), embedding=WIDTH, table="float16") for data in (_data(FEW), many)]
    for side in sides:
        side.turn()
    few, larger = zip(*([side.turn() for side in sides] for _ in range(TURNS)), strict=True)
    watch(f"{np.median(few):.0f} exchanges a second with {FEW:,} rows, {np.median(larger):.0f} with {MANY:,}")
    return {f"seconds_at_{MANY}_over_{FEW}_rows": ratio(list(few), list(larger))}


# --- memory -------------------------------------------------------------------------------------------------------


def _memory(data: FederatedData, watch: Watch) -> dict[str, float]:
    """Gigabytes at the peak: of the largest of the parties' processes, and of the one that started them."""
    epochs = EXCHANGES * BATCH / (PARTIES * data.rows)
    training = Training(epochs=epochs, batch_size=BATCH, table="float16", evaluate_every_epochs=0)
    peaks: dict[int, int] = {}
    with watched(peaks, peak_bytes, every_seconds=0.2):
        outcome = train(
            data,
            Vafl(),
            training=training,
            bottom=BottomSettings(embedding=WIDTH, hidden=()),
            top=TopSettings(hidden=(128,)),
            runtime=Processes(),
        )
    largest = max(size for process, size in peaks.items() if process != os.getpid())
    watch(f"{outcome.summary['exchanges']:,} exchanges, the largest process took {largest / 1e9:.2f} GB")
    return {"party_gigabytes": largest / 1e9, "starter_gigabytes": peaks.get(os.getpid(), 0) / 1e9}


# --- checkpoints --------------------------------------------------------------------------------------------------


def _pauses(watch: Watch) -> dict[str, float]:
    """Milliseconds: of checkpoints of rows that have changed, the longest after the first; and of everything whole."""
    names = [f"party{place}" for place in range(PARTIES)]
    rows = 1_000_000_000 // (4 * WIDE * PARTIES)
    table = EmbeddingTable(rows, names, dict.fromkeys(names, WIDE))
    chance = np.random.default_rng(0)
    pauses: list[float] = []
    writing: list[float] = []
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        keeper = Keeper("label", Path(name), Endurance())
        keeper.begin_life()
        keeper.open(0.0)
        _touch(table, np.arange(rows, dtype=np.uint32), chance)
        for number in range(1, CHECKPOINTS + 2):
            began = time.perf_counter()
            keeper.save(_state(table), float(number), beside=True)
            pauses.append(1e3 * (time.perf_counter() - began))
            keeper.settle(float(number))
            writing.append(1e3 * (time.perf_counter() - began) - pauses[-1])
            count = MOST_CHANGED_BYTES // (4 * WIDE * PARTIES + 8 * PARTIES)
            _touch(table, chance.integers(0, rows, count, dtype=np.uint32), chance)
        keeper.close()
        table._changed = None
        began = time.perf_counter()
        write_checkpoint(Path(name) / "whole", "label", 1, _state(table))
        whole = 1e3 * (time.perf_counter() - began)
    watch(
        f"of 1 GB: the pauses were {np.median(pauses[1:]):.0f} ms, at most {max(pauses[1:]):.0f}; whole {whole:.0f} ms"
    )
    return {
        "pause_milliseconds_at_1_gb": float(np.median(pauses[1:])),
        "longest_pause_milliseconds_at_1_gb": max(pauses[1:]),
        "written_milliseconds_at_1_gb": float(np.median(writing[1:])),
        "pause_over_a_whole_checkpoint": float(np.median(pauses[1:])) / whole,
    }


def _touch(table: EmbeddingTable, rows: NDArray[np.uint32], chance: np.random.Generator) -> None:
    for start in range(0, len(rows), 4096):
        some = rows[start : start + 4096]
        table.write("party0", some, chance.standard_normal((len(some), WIDE), np.float32), 1)


def _state(table: EmbeddingTable) -> State:
    state = State()
    state.add("table", table.state())
    return state


BENCHMARK = Benchmark(
    "rows",
    "what ten million rows cost: time per exchange, memory, the pause of a checkpoint",
    run,
    {
        f"seconds_at_{MANY}_over_{FEW}_rows": "<= 1.25",
        "party_gigabytes": "<= 3",
        "pause_milliseconds_at_1_gb": "<= 200",
    },
)
