"""What an exchange costs with 4 to 256 feature parties, and what memory each party's process takes of its own.

MNIST-shaped `vafl`: more parties have as many columns and embedding numbers together as fewer, so that the label
party's arithmetic stays what it was. In one process, as processes of this machine, and as programs over loopback and
mutual TLS. Memory is what a process shares with no other: the fork server has loaded everything before they begin.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import Simulated, mnist_shaped, ratio, training_of
from colonnade.benchmarks.party_programs import free_port, joined, training_lines, wait_for_all, write_federation
from colonnade.benchmarks.process_memory import descendants, private_bytes, watched
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.runtimes.processes.settings import Processes

ROWS = 6_400
WIDTH = 512  # of all parties together
SIMULATED, REAL = (4, 16, 64, 256), (4, 16, 64)
TURNS = 20
EXCHANGES = 6_000


@one_thread
def run(watch: Watch) -> dict[str, float]:
    found = _simulated(watch)
    for runtime, rate_of in (("processes", _processes), ("network", _network)):
        rates = {}
        for parties in REAL:
            before, sizes = descendants(os.getpid()), dict[int, int]()  # a fork server's children come later
            with watched(sizes, private_bytes, every_seconds=0.5):
                rates[parties] = rate_of(parties)
            parties_own = [size for process, size in sizes.items() if size and process not in before]
            own = float(np.median(parties_own)) / 1e6 if parties_own else 0.0
            found[f"{runtime}_megabytes_a_party_of_{parties}"] = own
            watch(f"{runtime}, {parties} parties: {rates[parties]:.0f} exchanges/s, {own:.0f} MB a party")
            if parties > REAL[0]:
                found[f"{runtime}_rate_of_{parties}_over_{REAL[0]}"] = rates[parties] / rates[REAL[0]]
    return found


def _simulated(watch: Watch) -> dict[str, float]:
    """Seconds an exchange over that with the fewest parties, in turns."""
    sides = [Simulated(mnist_shaped(ROWS, parties), Vafl(), embedding=WIDTH // parties) for parties in SIMULATED]
    for side in sides:
        side.turn()
    rates = list(zip(*([side.turn() for side in sides] for _ in range(TURNS)), strict=True))
    watch(", ".join(f"{n} parties {np.median(rate):.0f}/s" for n, rate in zip(SIMULATED, rates, strict=True)))
    fewest = list(rates[0])
    return {
        f"seconds_at_{parties}_over_{SIMULATED[0]}_parties": ratio(fewest, list(rate))
        for parties, rate in zip(SIMULATED[1:], rates[1:], strict=True)
    }


def _training(parties: int) -> Training:
    training = training_of(EXCHANGES, parties, ROWS)
    return replace(training, observe_every_epochs=training.epochs / 50)


def _processes(parties: int) -> float:
    outcome = train(
        mnist_shaped(ROWS, parties),
        Vafl(),
        training=_training(parties),
        bottom=BottomSettings(embedding=WIDTH // parties, hidden=()),
        top=TopSettings(hidden=(128,)),
        runtime=Processes(),
    )
    return _steady([line for line in outcome.metrics if line["loss"] is not None])


def _network(parties: int) -> float:
    training = _training(parties)
    settings: Mapping[str, object] = {
        "algorithm": {"name": "vafl"},
        "training": {
            name: getattr(training, name)
            for name in ("epochs", "batch_size", "learning_rate", "optimiser", "observe_every_epochs")
        }
        | {"evaluate_every_epochs": 0.0},
        "bottom": {"embedding": WIDTH // parties, "hidden": []},
        "top": {"hidden": [128]},
    }
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        files = write_federation(folder, mnist_shaped(ROWS, parties), settings, free_port())
        with joined(folder, files) as children:
            wait_for_all(folder, children, 300)
        return _steady(training_lines(folder))


def _steady(lines: list[dict[str, float]]) -> float:
    """Exchanges a second after the first fifth."""
    first, last = lines[len(lines) // 5], lines[-1]
    return (last["exchange"] - first["exchange"]) / (last["wall_seconds"] - first["wall_seconds"])


BENCHMARK = Benchmark(
    "parties",
    "what an exchange and a process cost with 4 to 256 feature parties",
    run,
    {
        **{f"seconds_at_{parties}_over_4_parties": "<= 1.25" for parties in SIMULATED[1:]},
        **{f"{where}_rate_of_{parties}_over_4": ">= 0.8" for where in ("processes", "network") for parties in REAL[1:]},
        **{f"{where}_megabytes_a_party_of_{REAL[-1]}": "<= 40" for where in ("processes", "network")},
    },
)
