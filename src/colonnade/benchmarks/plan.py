"""How near the forecasts of `colonnade plan` come to the real runs that follow them.

As processes of this machine: the MNIST-shaped `vafl` with small and with large batches and with two uploads in flight,
and a linear federation; what carrying a frame costs was measured before, in runs with other settings. Over far and
narrow links: whole programs over mutual TLS through a proxy that passes their bytes on as late as such a link would.
"""

import os
from dataclasses import replace

import numpy as np

from colonnade.algorithms.linear_models.afsgd import Afsgd
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import PARTIES, WIDTH, mnist_shaped
from colonnade.benchmarks.party_programs import random_data
from colonnade.benchmarks.slow_links import BATCH, BYTES_PER_SECOND, DELAY_SECONDS, RATE, link_rate
from colonnade.data.federated import FederatedData
from colonnade.data.loading import from_arrays
from colonnade.federation.plan import Plan, decided_training
from colonnade.launch.experiment import train_plan
from colonnade.launch.run_options import RunOptions
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.trials.contention import contention_of
from colonnade.trials.forecast import Rehearsal, World
from colonnade.trials.plan import carriage_here

_REAL_SECONDS = 6.0  # about so long is every run that was foretold
_LINK_SECONDS = 12.0


@one_thread
def run(watch: Watch) -> dict[str, float]:
    found: dict[str, float] = {}
    errors = []
    cores = os.cpu_count() or 1
    contention = contention_of(cores)
    watch(f"with all {cores} cores busy, each takes {contention:.2f} times as long")
    for name, data, plans in (("vafl", mnist_shaped(20_000), _vafl_plans), ("linear", _linear_data(), _linear_plans)):
        measured, foretold = plans(data)
        carriage = carriage_here(data, measured, watch, contention=contention)
        watch(
            f"{name}: a frame costs {1e6 * carriage.seconds_per_frame:.0f} µs "
            f"and {1e9 * carriage.seconds_per_byte:.2f} µs a KB"
        )
        world = World(Simulate(latency_seconds=0.0), cores, carriage, contention)
        for words, plan in foretold.items():
            rehearsal = Rehearsal(data, plan, world)
            pace = rehearsal.foretold(world).exchanges_per_second
            planned = _lasting(plan, data, pace)
            forecast = Rehearsal(data, planned, world).foretold(world)
            real = train_plan(data, planned, Processes(), RunOptions()).summary["wall_seconds"]
            errors.append(abs(forecast.seconds / real - 1))
            found[f"{name}_{words}_error"] = errors[-1]
            watch(f"{name}, {words}: foretold {forecast.seconds:.2f} s, took {real:.2f} s")
        if name == "vafl":
            for number in (1, 4):
                far, real = _far_rates(number, replace(world, cores=None))
                found[f"slow_links_{number}_in_flight_error"] = abs(real / far - 1)
                errors.append(abs(real / far - 1))
                watch(f"over slow links, {number} in flight: foretold {far:.1f} exchanges/s, were {real:.1f}")
    return {"forecast_error": max(errors), "mean_forecast_error": float(np.mean(errors)), **found}


def _plan(data: FederatedData, algorithm: object, batch: int, bottom: BottomSettings, top: TopSettings) -> Plan:
    """With the defaults for everything else, for one epoch without evaluations."""
    training = Training(epochs=1, batch_size=batch, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0)
    decided = decided_training(training, algorithm, data.rows, len(data.feature_parties), 0.0)
    return Plan(algorithm, decided, PerturbationSettings(), bottom, top, 0)


def _vafl_plans(data: FederatedData) -> tuple[list[Plan], dict[str, Plan]]:
    """Those from which the carriage is measured, and those that are foretold."""

    def plan(batch: int, in_flight: int = 1) -> Plan:
        layers = BottomSettings(embedding=WIDTH, hidden=())
        return _plan(data, Vafl(in_flight=in_flight), batch, layers, TopSettings(hidden=(128,)))

    return [plan(32), plan(256)], {"batch_64": plan(64), "batch_128": plan(128), "2_in_flight": plan(64, 2)}


def _linear_plans(data: FederatedData) -> tuple[list[Plan], dict[str, Plan]]:
    def plan(batches: int) -> Plan:
        algorithm = Afsgd(precondition="none", batches_per_request=batches)
        return _plan(data, algorithm, 64, BottomSettings(), TopSettings())

    return [plan(1)], {"4_batches_a_request": plan(4)}


def _lasting(plan: Plan, data: FederatedData, pace: float) -> Plan:
    """The same for about so many seconds."""
    made_an_epoch = len(data.feature_parties) * data.rows / plan.training.batch_size
    training = replace(plan.training, epochs=_REAL_SECONDS * pace / made_an_epoch)
    return replace(plan, training=training)


def _linear_data() -> FederatedData:
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((20_000, 8 * PARTIES), dtype=np.float32)
    labels = (columns @ generator.standard_normal(columns.shape[1]) > 0).astype(int)
    return from_arrays(columns, labels, parties=PARTIES, test_fraction=0.01)


def _far_rates(in_flight: int, world: World) -> tuple[float, float]:
    """Exchanges a second over slow links, foretold and real."""
    data = random_data(2, 2048)
    algorithm = Vafl(in_flight=in_flight)
    training = Training(epochs=1, batch_size=BATCH, learning_rate=RATE, evaluate_every_epochs=0)
    decided = decided_training(training, algorithm, data.rows, 2, 0.0)
    plan = Plan(algorithm, decided, PerturbationSettings(), BottomSettings(), TopSettings(), 0)
    links = Simulate(latency_seconds=DELAY_SECONDS, bandwidth_bytes_per_second=BYTES_PER_SECOND)
    far = replace(world, simulate=links)
    return Rehearsal(data, plan, far).foretold(far).exchanges_per_second, link_rate(in_flight, _LINK_SECONDS)


BENCHMARK = Benchmark(
    "plan",
    "how near the forecasts of `colonnade plan` come to real runs",
    run,
    {"forecast_error": "<= 0.15"},
)
