"""What the others lose while one feature party stands still: their exchanges a second meanwhile, against before.

Parties come at a pace of their own (a Poisson process), so that neither the machine nor the label party is the limit,
and a party that stands still leaves nothing to the others. It is stopped, not gone: its connection stays. Chance makes
ten seconds of such a pace differ by some per cent, so it is stopped several times and all exchanges are counted.
"""

import json
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.benchmarks.party_programs import free_port, joined, random_data, write_federation
from colonnade.errors import RunError

PARTIES, ROWS, BATCH = 4, 4096, 64
SECONDS_BETWEEN_UPLOADS = 0.02  # of one party, on average
_SETTLING_SECONDS = 3.0
_LONGEST_START_SECONDS = 120.0


def rate_lost_percent(stopped_seconds: float = 10.0, times: int = 3) -> dict[str, float]:
    """Stop one of four parties of a network run so long, so often: the others' rate before and meanwhile; the loss."""
    data = random_data(PARTIES, ROWS)
    planned = 2 * times * (2 * stopped_seconds + 2 * _SETTLING_SECONDS) * PARTIES / SECONDS_BETWEEN_UPLOADS
    settings = {
        "algorithm": {"name": "vafl", "activation_seconds": SECONDS_BETWEEN_UPLOADS},
        "training": {
            "epochs": planned * BATCH / (PARTIES * ROWS),
            "batch_size": BATCH,
            "learning_rate": 0.01,
            "evaluate_every_epochs": 0.0,
            "observe_every_epochs": 4 / (PARTIES * ROWS / BATCH),
        },
    }
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        files = write_federation(folder, data, settings, free_port())
        with joined(folder, files) as children:
            wait_for_a_start(folder)
            all_there, one_stopped = np.zeros(2), np.zeros(2)  # exchanges and seconds
            for _ in range(times):
                time.sleep(_SETTLING_SECONDS)
                began = exchanges_and_seconds(folder)
                time.sleep(stopped_seconds)
                stopped = exchanges_and_seconds(folder)
                children["party1"].send(signal.SIGSTOP)
                time.sleep(stopped_seconds)
                ended = exchanges_and_seconds(folder)
                children["party1"].send(signal.SIGCONT)
                all_there += stopped - began
                one_stopped += ended - stopped
    before = float(all_there[0] / all_there[1]) * (PARTIES - 1) / PARTIES  # they come equally often
    meanwhile = float(one_stopped[0] / one_stopped[1])
    return {
        "others_exchanges_per_second_before": before,
        "others_exchanges_per_second_meanwhile": meanwhile,
        "rate_lost_percent": 100 * (1 - meanwhile / before),
    }


def exchanges_and_seconds(folder: Path) -> NDArray[np.float64]:
    """How many exchanges the label party has made, and when."""
    *_, last = (folder / "run-label" / "metrics.jsonl").read_text(encoding="utf-8").rsplit("\n", 2)[:-1]
    line = json.loads(last)
    return np.array([line["exchange"], line["wall_seconds"]])


def wait_for_a_start(folder: Path) -> None:
    deadline = time.monotonic() + _LONGEST_START_SECONDS
    metrics = folder / "run-label" / "metrics.jsonl"
    while not metrics.exists() or "\n" not in metrics.read_text(encoding="utf-8"):
        if time.monotonic() > deadline:
            raise RunError(f"The parties of the benchmark have not begun within {_LONGEST_START_SECONDS:.0f} seconds.")
        time.sleep(0.1)
