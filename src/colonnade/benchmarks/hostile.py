"""What honest parties lose while somebody means harm: their exchanges a second under a flood, against before it.

Four honest parties train with the label party at full speed over mutual TLS. A fifth has a certificate, comes in, and
then does nothing but harm; a stranger without a certificate only has the address. Each flood comes from one program
with the lowest priority: on another machine it would not take the honest parties' processors. Every flood is measured
in turns with rests between them, and the smallest ratio is what is promised.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from colonnade.benchmarks.absence import exchanges_and_seconds, wait_for_a_start
from colonnade.benchmarks.benchmark import Benchmark, Watch
from colonnade.benchmarks.hostile_program import BATCH, FLOODS, HOSTILE
from colonnade.benchmarks.party_programs import free_port, joined, random_data, write_federation
from colonnade.errors import RunError

PARTIES, ROWS = 5, 4096  # one of the five is hostile
TURNS = 3
SECONDS = 4.0  # of one rest, and of one flood
LONGEST_EXCHANGES_PER_SECOND = 2_000.0  # so that the training outlasts the measurement


def run(watch: Watch) -> dict[str, float]:
    planned = LONGEST_EXCHANGES_PER_SECOND * (2 * SECONDS + 3) * TURNS * len(FLOODS)
    settings = {
        "algorithm": {"name": "vafl"},
        "training": {
            "epochs": planned * BATCH / (PARTIES * ROWS),
            "batch_size": BATCH,
            "learning_rate": 0.01,
            "evaluate_every_epochs": 0.0,
            "observe_every_epochs": 16 / (PARTIES * ROWS / BATCH),
        },
    }
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        port = free_port()
        files = write_federation(folder, random_data(PARTIES, ROWS), settings, port)
        honest = {party: file for party, file in files.items() if party != HOSTILE}
        with joined(folder, honest), _program(folder, port, "visit"):
            wait_for_a_start(folder)
            kept = {flood: _rate_kept(folder, port, flood) for flood in FLOODS}
    for flood, ratio in kept.items():
        watch(f"{flood}: {ratio:.2f} of the honest parties' rate is kept")
    return {"honest_rate_kept": min(kept.values()), **{f"under_{flood}": ratio for flood, ratio in kept.items()}}


def _rate_kept(folder: Path, port: int, flood: str) -> float:
    ratios = []
    for _ in range(TURNS):
        before = _rate(folder)
        with _program(folder, port, flood):
            ratios.append(_rate(folder) / before)
        time.sleep(1.0)
    return float(np.median(ratios))


def _rate(folder: Path) -> float:
    time.sleep(0.5)
    began = exchanges_and_seconds(folder)
    time.sleep(SECONDS)
    exchanges, seconds = exchanges_and_seconds(folder) - began
    return float(exchanges / seconds) if seconds else 0.0


@contextmanager
def _program(folder: Path, port: int, flood: str) -> Iterator[None]:
    """The hostile program, from its first word on; it is killed at the end."""
    command = [sys.executable, "-m", "colonnade.benchmarks.hostile_program", str(folder), str(port), flood]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            if program.stdout.readline() != "ready\n":
                raise RunError(f"The hostile program of the benchmark could not begin its flood of {flood}.")
            yield
        finally:
            program.kill()


BENCHMARK = Benchmark(
    "hostile",
    "what honest parties keep of their rate while somebody floods the label party",
    run,
    {"honest_rate_kept": ">= 0.8"},
)
