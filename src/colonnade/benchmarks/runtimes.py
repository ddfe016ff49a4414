"""What real processes and a real network cost: exchanges per second over the label party's own step rate.

The MNIST-shaped `vafl` of the benchmark `split`, four feature parties. The label party's own rate is what it does in
one process when uploads are always there: decode, step, encode, nothing else. Sides alternate in turns. Asynchronous
over synchronous is wall time to the same loss with one party three times slower: parties are given 5 ms of work an
event (a machine of their own would be busy so long), so that two cores do not decide. The linear family's exchanges are
counted twice: requests, and the mini-batches in them. What a party that stands still costs the others, and what uploads
in flight gain over a far link, are measured with whole programs over mutual TLS (absence.py, slow_links.py). So is what
a party costs before it trains (start.py). A journal that survives a loss of power is compared with one that does not,
with four uploads in flight per party: a sync of the disk is time that passes, and others work meanwhile. What no
program with one thread could exceed is measured, too (bare_carriers.py).
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colonnade.algorithms.linear_models.afsgd import Afsgd
from colonnade.algorithms.split_models.split import Split
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks import absence, bare_carriers, slow_links, start
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import (
    BATCH,
    PARTIES,
    RATE,
    ROWS,
    WIDTH,
    Simulated,
    Timed,
    mnist_shaped,
    ratio,
    training_of,
)
from colonnade.benchmarks.party_programs import free_port, joined, training_lines, wait_for_all, write_federation
from colonnade.data import from_arrays
from colonnade.data.federated import FederatedData
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.processes.settings import Processes

TURNS = 3
EXCHANGES = 6_000  # of one turn
WARM_UP = 0.2  # of a run, not counted
BOTTOM, TOP = BottomSettings(embedding=WIDTH, hidden=()), TopSettings(hidden=(128,))
LINEAR_PARTIES, LINEAR_BATCH = 8, 256
LINEAR_EPOCHS = {1: 2.0, 4: 4.0, 16: 12.0}  # mini-batches a request → how long to train


@one_thread
def run(watch: Watch) -> dict[str, float]:
    data = mnist_shaped()
    rates = _rates(data, watch)
    own = rates["label party alone"]
    bare = bare_carriers.bare_over_alone(data)
    watch("of the label party's own rate, with bare calls of the system: " + _said(bare))
    synced = _synced_over_unsynced(data, watch)
    started = start.start_seconds()
    watch("CPU seconds to be ready: " + _said(started))
    synchronous, asynchronous = _seconds_to_the_same_loss(watch)
    linear = _linear_rates()
    watch(f"linear: {', '.join(f'{rate:.0f}/s with {batches} a request' for batches, rate in linear.items())}")
    away = absence.rate_lost_percent()
    watch(
        "the others' exchanges while one of {} parties stands still: {:.0f}/s before, {:.0f}/s meanwhile".format(
            absence.PARTIES, away["others_exchanges_per_second_before"], away["others_exchanges_per_second_meanwhile"]
        )
    )
    far = slow_links.in_flight_gain()
    watch(f"over slow links: {', '.join(f'{key} {value:.1f}' for key, value in far.items())}")
    return {
        "processes_over_in_process": ratio(rates["processes"], own),
        "network_over_in_process": ratio(rates["network"], own),
        "network_over_in_process_2_in_flight": ratio(rates["network, 2 in flight"], own),
        "network_with_a_core_over_in_process": ratio(rates["network, a core for the label party"], own),
        **bare,
        "grpc_over_in_process": ratio(rates["network over gRPC"], own),
        "label_party_steps_per_second": float(np.median(own)),
        "processes_exchanges_per_second": float(np.median(rates["processes"])),
        "network_exchanges_per_second": float(np.median(rates["network"])),
        "synced_over_unsynced": synced,
        **started,
        "wall_sync_over_async": synchronous / asynchronous,
        "linear_processes_exchanges_per_second": linear[1],
        "linear_processes_mini_batches_per_second_by_4": linear[4],
        "linear_processes_mini_batches_per_second_by_16": linear[16],
        **away,
        **far,
    }


def _rates(data: FederatedData, watch: Watch) -> dict[str, list[float]]:
    """Exchanges a second on every way, turn by turn."""
    ways: dict[str, Callable[[], float]] = {
        "label party alone": lambda: _label_step_rate(data),
        "processes": lambda: _processes_rate(data),
        "network": lambda: _network_rate(data),
        "network, 2 in flight": lambda: _network_rate(data, in_flight=2),
        "network, a core for the label party": lambda: _network_rate(data, keeps_core=True),
        "network over gRPC": lambda: _network_rate(data, carrier="grpc"),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(TURNS):
        for way, measure in ways.items():
            rates[way].append(measure())
        said = ", ".join(f"{way} {found[-1]:.0f}/s" for way, found in rates.items())
        watch(f"turn {turn + 1} of {TURNS}: {said}")
    return rates


def _said(found: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.2f}" for key, value in found.items())


def _synced_over_unsynced(data: FederatedData, watch: Watch) -> float:
    """What is left of the rate of processes when every journal is on the disk before anything leaves its party."""
    unsynced, synced = [], []
    for _ in range(TURNS):
        unsynced.append(_processes_rate(data, in_flight=4))
        synced.append(_processes_rate(data, in_flight=4, sync=True))
    watch(f"processes with 4 in flight: {np.median(unsynced):.0f}/s, with sync {np.median(synced):.0f}/s")
    return ratio(synced, unsynced)


# --- the label party alone ---------------------------------------------------------------------------------------


def _label_step_rate(data: FederatedData) -> float:
    """Exchanges a second of the label party's own work, without the feature parties' and without a carrier."""
    simulated = Simulated(data, Vafl())
    simulated.turn()
    timed = Timed(simulated.label_seat())
    done = 0
    for _ in range(10):
        before = simulated.exchanges()
        simulated.turn()
        done += simulated.exchanges() - before
    return done / sum(timed.taken)


# --- processes and network ---------------------------------------------------------------------------------------


def _steady_rate(metrics: list[dict[str, Any]]) -> float:
    """Exchanges a second after the first part of a run."""
    first = next(line for line in metrics if line["exchange"] >= WARM_UP * EXCHANGES)
    last = metrics[-1]
    return float((last["exchange"] - first["exchange"]) / (last["wall_seconds"] - first["wall_seconds"]))


def _processes_rate(data: FederatedData, in_flight: int = 1, sync: bool = False) -> float:
    training, runtime = training_of(EXCHANGES, PARTIES, data.rows), Processes(endurance=Endurance(sync=sync))
    algorithm = Vafl(in_flight=in_flight)
    outcome = train(data, algorithm, training=training, bottom=BOTTOM, top=TOP, runtime=runtime, seed=0)
    return _steady_rate(_training_lines(outcome.metrics))


def _training_lines(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in metrics if line["loss"] is not None]


def _network_rate(data: FederatedData, carrier: str = "tls", in_flight: int = 1, keeps_core: bool = False) -> float:
    """`keeps_core`: whether the feature parties leave the label party a core, as machines of their own would."""
    training = training_of(EXCHANGES, PARTIES, data.rows)
    settings = {
        "algorithm": {"name": "vafl", "in_flight": in_flight},
        "training": {
            "epochs": training.epochs,
            "batch_size": BATCH,
            "learning_rate": RATE,
            "optimiser": training.optimiser,
            "evaluate_every_epochs": 0.0,
            "observe_every_epochs": 0.01,
        },
        "bottom": {"kind": "mlp", "embedding": WIDTH, "hidden": []},
        "top": {"hidden": [128]},
    }
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        files = write_federation(folder, data, settings, free_port(), carrier)
        with joined(folder, files) as children:
            cores = os.sched_getaffinity(0)
            for name in data.feature_parties if keeps_core and len(cores) > 1 else ():
                os.sched_setaffinity(children[name].pid, cores - {max(cores)})
            wait_for_all(folder, children, 300)
        return _steady_rate(training_lines(folder))


# --- asynchronous over synchronous ---------------------------------------------------------------------------------


def _seconds_to_the_same_loss(watch: Watch) -> tuple[float, float]:
    """Wall seconds of `split` and of `vafl` to the loss that both reach, one party of four three times slower."""
    data = _learnable()
    world = Processes(compute_seconds=0.005, slowdown={"party1": 3.0})
    curves = []
    for algorithm, epochs in ((Split(), 6.0), (Vafl(), 6.0)):
        training = Training(
            epochs=epochs, batch_size=BATCH, learning_rate=0.1, evaluate_every_epochs=0, observe_every_epochs=0.05
        )
        outcome: Outcome = train(data, algorithm, training=training, runtime=world, seed=0)
        curves.append([(line["wall_seconds"], line["loss"]) for line in _training_lines(outcome.metrics)])
    smooth = [_smoothed(curve) for curve in curves]
    target = 1.05 * max(min(loss for _, loss in curve) for curve in smooth)
    times = [next(seconds for seconds, loss in curve if loss <= target) for curve in smooth]
    watch(f"to a loss of {target:.3f}: split {times[0]:.1f} s, vafl {times[1]:.1f} s")
    return times[0], times[1]


def _smoothed(curve: list[tuple[float, float]], window: int = 5) -> list[tuple[float, float]]:
    losses = np.convolve([loss for _, loss in curve], np.ones(window) / window, "valid")
    return [(curve[place + window - 1][0], float(loss)) for place, loss in enumerate(losses)]


def _learnable(rows: int = 6_000, columns: int = 64) -> FederatedData:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, columns, generator=generator)
    hidden = torch.relu(X @ torch.randn(columns, 32, generator=generator) / columns**0.5)
    y = (hidden @ torch.randn(32, 10, generator=generator)).argmax(1)
    return from_arrays(X.numpy(), y.numpy(), parties=PARTIES, test_fraction=0.1)


# --- linear federations -------------------------------------------------------------------------------------------


def _linear_rates() -> dict[int, float]:
    """Mini-batches a second, of all parties together, by how many are asked for at once."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((ROWS, 8 * LINEAR_PARTIES), dtype=np.float32)
    y = (X @ generator.standard_normal(X.shape[1]) > 0).astype(int)
    data = from_arrays(X, y, parties=LINEAR_PARTIES, test_fraction=0.01)
    rates = {}
    for batches, epochs in LINEAR_EPOCHS.items():
        training = Training(epochs=epochs, batch_size=LINEAR_BATCH, evaluate_every_epochs=0, observe_every_epochs=0.1)
        algorithm = Afsgd(precondition="none", batches_per_request=batches)
        outcome = train(data, algorithm, training=training, runtime=Processes(), seed=0)
        lines = _training_lines(outcome.metrics)
        first, last = lines[len(lines) // 5], lines[-1]
        # Steps count mini-batches: of each, all parties gave their products, and one learnt from them.
        rates[batches] = (last["step"] - first["step"]) / (last["wall_seconds"] - first["wall_seconds"])
    return rates


BENCHMARK = Benchmark(
    "runtimes",
    "what processes and a network cost, and what asynchrony gives in wall time",
    run,
    {
        "processes_over_in_process": ">= 0.9",
        "network_over_in_process": ">= 0.75",
        "network_over_in_process_2_in_flight": ">= 0.9",
        "synced_over_unsynced": ">= 0.8",
        "network_start_cpu_seconds": "<= 1.5",
        "processes_start_cpu_seconds": "<= 1.5",
        "wall_sync_over_async": ">= 2",
        "linear_processes_exchanges_per_second": ">= 1500",
        "rate_lost_percent": "<= 5",
        "in_flight_gain": ">= 3",
    },
)
