"""What it costs a training that somebody looks on: the same run, seen and unseen, in short turns side by side.

Seen, a run writes its live file, looks for what is asked of it, and a page's server in a process of its own passes all
of it to a viewer. Unseen, it does none of that. Two runs are measured: parties that multiply two small matrices for
each message, so that five thousand exchanges and more pass a second; and a real linear training.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from colonnade import Training, dataset, train
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.data.federated import FederatedData
from colonnade.launch import simulation as launching
from colonnade.messages import BatchRequest
from colonnade.party import Effect, Event, Finish, Received, Send, Started
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.onlooker import Onlooker
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.state import State
from colonnade.watching.program import page_beside

_TURNS = 16
_EXCHANGES = 10_000
_WIDTH = 96  # of the matrices: a product of two takes some fifty microseconds
_EPOCHS = 40
_VIEWER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "events") as events:
    for line in events:
        pass
"""


class _Pair:
    """One of two parties that send one another small messages; an exchange is one there and one back."""

    def __init__(self, peer: str, begins: bool) -> None:
        self._peer = peer
        self._begins = begins
        self._exchanges = 0
        self._message = BatchRequest(1, np.zeros(8, np.uint32))
        self._weights = np.full((_WIDTH, _WIDTH), 1 / _WIDTH, np.float32)

    def handle(self, event: Event) -> Sequence[Effect]:
        if isinstance(event, Started):
            return [Send(self._peer, self._message)] if self._begins else []
        if isinstance(event, Received):
            self._exchanges += 1
            self._weights = self._weights @ self._weights
            if self._exchanges == _EXCHANGES:
                return [Finish()] if self._begins else [Send(self._peer, self._message), Finish()]
            return [Send(self._peer, self._message)]
        return []

    def state(self) -> State:
        return State({}, {"exchanges": self._exchanges})

    def restore(self, state: State) -> None:
        self._exchanges = state.values["exchanges"]

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self._exchanges, "steps": self._exchanges}


class _Blind:
    """In place of who looks on: nobody does."""

    def __init__(self, directory: Path, recorder: Recorder, stop_requested: Callable[[], bool]) -> None:
        self._stop_requested = stop_requested

    def attend(self, simulation: Simulation, ledger: Ledger) -> None: ...

    def conclude(self) -> None: ...

    def __call__(self) -> bool:
        return self._stop_requested()


def _never() -> bool:
    return False


def _exchanges(directory: Path, seen: bool) -> float:
    """Seconds that small messages take."""
    directory.mkdir(parents=True, mode=0o700)
    recorder = Recorder("label", directory)
    onlooker = Onlooker(directory, recorder, _never) if seen else _Blind(directory, recorder, _never)
    parties = {"label": _Pair("party", begins=False), "party": _Pair("label", begins=True)}
    ledger = Ledger()
    simulation = Simulation(parties, Simulate(), 0, recorder, ledger, directory=directory, stop_requested=onlooker)
    began = time.perf_counter()
    onlooker.attend(simulation, ledger)
    simulation.run()
    onlooker.conclude()
    seconds = time.perf_counter() - began
    recorder.close()
    return seconds


def _training(directory: Path, seen: bool, data: FederatedData) -> float:
    """Seconds that a linear training takes, from its first event to its models."""
    plan = Training(epochs=_EPOCHS, batch_size=1, evaluate_every_epochs=0)
    with ExitStack() as stack:
        if not seen:
            stack.enter_context(patch.object(launching, "Onlooker", _Blind))
        began = time.perf_counter()
        train(data, "afsgd", training=plan, out=directory)
        return time.perf_counter() - began


@one_thread
def run(watch: Watch) -> dict[str, float]:
    data = dataset("iris", parties=2)
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        small = _side_by_side(Path(folder) / "small", _exchanges, watch, "small messages")
        trained = _side_by_side(
            Path(folder) / "trained", lambda place, seen: _training(place, seen, data), watch, "a linear training"
        )
    return {
        "watched_over_unwatched": _ratio(small),
        "watched_over_unwatched_training": _ratio(trained),
        "watched_exchanges_per_second": _EXCHANGES / float(np.median(small["seen"])),
    }


def _side_by_side(folder: Path, turn: Callable[[Path, bool], float], watch: Watch, what: str) -> dict[str, list[float]]:
    """Seconds of turns that are seen and of turns that are not, alternately."""
    places = {"seen": folder / "seen", "unseen": folder / "unseen"}
    seconds: dict[str, list[float]] = {name: [] for name in places}
    with page_beside(places["seen"], "127.0.0.1:0") as address:
        viewer = subprocess.Popen([sys.executable, "-c", _VIEWER, address])
        try:
            for number in range(_TURNS):
                for name in places if number % 2 else reversed(places):
                    shutil.rmtree(places[name], ignore_errors=True)
                    seconds[name].append(turn(places[name], name == "seen"))
                if number % 4 == 3:
                    watch(f"{what}, {number + 1} of {_TURNS} turns: watched over unwatched {_ratio(seconds):.3f}")
        finally:
            viewer.terminate()
            viewer.wait()
    return seconds


def _ratio(seconds: dict[str, list[float]]) -> float:
    """The rate when seen over the rate when not: the median of neighbours, which met the same machine."""
    return float(np.median(np.array(seconds["unseen"]) / np.array(seconds["seen"])))


BENCHMARK = Benchmark(
    "watch",
    "what it costs a run that somebody looks on",
    run,
    {
        "watched_over_unwatched": ">= 0.98",
        "watched_over_unwatched_training": ">= 0.98",
        "watched_exchanges_per_second": ">= 5000",
    },
)
