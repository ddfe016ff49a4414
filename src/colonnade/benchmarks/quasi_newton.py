"""Whether a quasi-Newton algorithm needs fewer exchanges than its first-order twin, on the sets of `bench defaults`:
with defaults, to 1e-4 of the optimum (stochastic gradients: 1e-3), looked at every half epoch.

A set counts where the twin gets there within 20 epochs. By default a mini-batch of a quasi-Newton algorithm has more
rows than its twin's, so epochs are compared, too; and pairs are used only once first-order steps are found to be slow
(pace.py): an epoch for an epoch says that they were not.
"""

from math import inf

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.twelve_sets import TWELVE
from colonnade.data.federated import FederatedData
from colonnade.reproductions.objective import Point, first_below, gaps, optimum

TWINS = {
    "asysqn-sgd": "afsgd",
    "asysqn-svrg": "afsvrg",
    "asysqn-saga": "afsaga",
    "synsqn-sgd": "fsgd",
    "synsqn-svrg": "fsvrg",
    "synsqn-saga": "fsaga",
}
GAP, GAP_OF_SGD = 1e-4, 1e-3
TRAINING = Training(epochs=20, evaluate_every_epochs=0.5)


@one_thread
def run(watch: Watch) -> dict[str, float]:
    found: dict[str, float] = {}
    epochs = [0.0]  # of all, over their twins'
    for name, made in TWELVE.items():
        data = made()
        best = optimum(data, 1 / data.rows)
        for newton, twin in TWINS.items():
            theirs, own = near(data, twin, best), near(data, newton, best)
            watch(f"{name}: {newton} {_told(own)}, {twin} {_told(theirs)}")
            if theirs is not None:
                ratio = own.exchanges / theirs.exchanges if own else inf
                found[f"{name.replace(' ', '_')}_{newton}_over_{twin}"] = ratio
                epochs.append(own.epoch / theirs.epoch if own else inf)
    return {
        **found,
        "most_exchanges_over_twin": max(found.values(), default=0.0),
        "most_epochs_over_twin": max(epochs),
    }


def near(data: FederatedData, algorithm: str, best: float) -> Point | None:
    """Where it first was this near, if it was in the planned epochs."""
    gap = GAP_OF_SGD if algorithm.endswith("sgd") else GAP
    points, _ = gaps(data, algorithms.ALGORITHMS[algorithm].settings(), best, training=TRAINING, until=gap)
    return first_below(points, gap)


def _told(point: Point | None) -> str:
    return f"{point.exchanges} exchanges ({point.epoch:.1f} epochs)" if point else "does not get there"


BENCHMARK = Benchmark(
    "quasi-newton",
    "exchanges of quasi-Newton linear algorithms over their first-order twins, to 1e-4 of an optimum",
    run,
    {"most_exchanges_over_twin": "<= 1"},
)
