"""The linear federations' claims: lossless, faster than a barrier, fewer exchanges with curvature, scaling; and FDML.

B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative
Learning", 2021 (AFSGD-VP); Q. Zhang et al., "AsySQN", 2021. Eight parties with equally many columns, λ = 1e-4, step
sizes and batches per data set as below, found by looking at trial runs (the papers choose step sizes the same way).
Where it says so, each party preconditions its own block, which is ours. Sub-optimality is relative to scikit-learn's
optimum on the joined columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.launch.experiment import train
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.objective import (
    Point,
    first_below,
    gaps,
    joined,
    objective,
    reference_model,
)
from colonnade.reproductions.published import Published, published
from colonnade.reproductions.reproduction import Reproduction, Row, Scope
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty

PARTIES = 8
L2 = 1e-4


@dataclass(frozen=True)
class Experiment:
    """How a data set is trained: mini-batches, first-order step sizes, how long at most; all found by looking."""

    batch_size: int  # of snapshots and tables
    epochs: float
    step: float = 0.5  # preconditioned, where about 1 is as far as one party alone may go, whatever its columns
    sgd_batch_size: int = 4096  # of stochastic gradients, whose noise nothing but a larger batch and decay reduce
    sgd_step: float = 0.8
    large_batch_size: int = 2048  # where exchanges or time are compared, and noise is not to hide the difference
    plain_step: float = 2.0  # not preconditioned: 1, 2 and, where curvature allows it, 3 were tried
    precondition: str = "block"


ROUGH, NEAR, OPTIMAL = 1e-3, 1e-4, 5e-7
"""The sub-optimality that SGD is to reach, that the others are, and that they are where nothing shall be lost."""

PLANS = {
    "credit_default_uci": Experiment(512, 60),
    "givemesomecredit": Experiment(1024, 80, sgd_batch_size=1024, sgd_step=0.4, large_batch_size=4096, plain_step=3.0),
    "a9a": Experiment(512, 100, large_batch_size=1536),
    "mnist_odd_even": Experiment(1024, 60, step=0.4, sgd_batch_size=2048, sgd_step=0.3),
    "mnist": Experiment(1024, 160, step=0.2, precondition="curvature"),  # ten classes
}
TWO_CLASSES = tuple(name for name in PLANS if name != "mnist")
LARGE_BATCH_EPOCHS = 500
# Of a quasi-Newton direction, for SGD, which does not find it itself: preconditioned, and not.
NEWTON_SHARE, PLAIN_NEWTON_SHARE = 0.5, 0.45
# What the papers call our data sets. Their mnist has two classes; which, they do not say.
NAMES = {
    "credit_default_uci": "UCICreditCard",
    "givemesomecredit": "GiveMeSomeCredit",
    "a9a": "a9a",
    "mnist_odd_even": "mnist",
}


def published_accuracy(data: str) -> Published | None:
    """AsySQN, Table 4: federated, which is the same as not federated there."""
    return published("asysqn", "Table 4", "Ours", NAMES[data]) if data in NAMES else None


def published_speed_up(data: str, algorithm: str) -> Published | None:
    """AFSGD-VP, Table II, which has neither our other data sets nor a quasi-Newton algorithm."""
    method = {"afsgd": "SGD", "afsvrg": "SVRG", "afsaga": "SAGA"}.get(algorithm)
    if method is None or data not in ("credit_default_uci", "givemesomecredit"):
        return None
    return published("afsgd-vp", "Table II", NAMES[data], method)


def settings_for(name: str, **changes: Any) -> Any:
    """An algorithm's settings: a fixed step for the first-order ones, the one they find themselves for the others."""
    kind = algorithms.find(name).settings
    finds_its_step = "sqn" in name and not name.endswith("sgd")
    own: dict[str, Any] = {} if finds_its_step else {"step": "fixed"}
    return kind(max_product_age_epochs=0, **{**own, **changes})


@dataclass(frozen=True)
class Job:
    """One run, small enough to send to a process."""

    data: str
    algorithm: str
    best: float
    until: float
    seed: int = 0
    slow: float = 1.0  # how much slower the first party is
    parties: int = PARTIES
    by_columns: bool = False  # compute time in proportion to a party's columns
    curvature_rows: str = ""
    sums: str = "plain"
    precondition: str = "block"
    large_batches: bool = False
    every: float = 0.5  # epochs between two looks at the objective

    def __str__(self) -> str:
        return f"{self.data}, {self.algorithm}, seed {self.seed}"


def _world(job: Job, data: FederatedData) -> Simulate:
    """10 ms per step, 0.1 ms per message; the label party has no columns and only passes sums on."""
    first = data.feature_parties[0]
    own = {first: SimulatedParty(slowdown=job.slow)} if job.slow != 1.0 else {}
    if job.by_columns:
        total = sum(int(np.prod(columns.shape)) for columns in data.columns.values())
        own = {
            name: SimulatedParty(compute_seconds=0.2 * int(np.prod(columns.shape)) / total)
            for name, columns in data.columns.items()
        }
    return Simulate(compute_seconds=0.01, label_compute_seconds=0.0001, latency_seconds=0.0001, parties=own)


def _batch_and_step(job: Job) -> tuple[int, float]:
    plan = PLANS[job.data]
    sgd = job.algorithm.endswith("sgd")
    batch_size = plan.large_batch_size if job.large_batches else plan.batch_size
    if sgd:
        batch_size = plan.sgd_batch_size
    if "sqn" in job.algorithm:
        return batch_size, PLAIN_NEWTON_SHARE if job.precondition == "none" else NEWTON_SHARE
    if job.precondition == "none":
        return batch_size, plan.plain_step
    return batch_size, plan.sgd_step if sgd else plan.step


@dataclass(frozen=True)
class LinearRun:
    """What a job gave: where it was at every look, its accuracy on the data's own test rows, and its wall seconds."""

    points: tuple[Point, ...]
    accuracy: float  # per cent
    seconds: float

    def first_below(self, gap: float) -> Point | None:
        return first_below(self.points, gap)

    def __str__(self) -> str:
        last = self.points[-1]
        return (
            f"{last.gap:.1e} after {last.epoch:.1f} epochs, {last.exchanges} exchanges, {last.virtual_seconds:.1f} "
            f"virtual s ({self.seconds:.0f} s)"
        )


def run_job(job: Job) -> LinearRun:
    data = dataset(job.data, parties=job.parties)
    plan = PLANS[job.data]
    changes: dict[str, Any] = {"sums": job.sums, "precondition": job.precondition}
    if job.curvature_rows:
        changes["curvature_rows"] = job.curvature_rows
    batch_size, step = _batch_and_step(job)
    training = Training(
        epochs=LARGE_BATCH_EPOCHS if job.large_batches else plan.epochs,
        batch_size=batch_size,
        learning_rate=step,
        optimiser="sgd",
        l2=L2,
        evaluate_every_epochs=job.every,
        observe_every_epochs=1.0,
        heal=False,  # the papers' form
    )
    points, outcome = gaps(
        data,
        settings_for(job.algorithm, **changes),
        job.best,
        training=training,
        simulate=_world(job, data),
        seed=job.seed,
        until=job.until,
    )
    outputs = outcome.outputs({name: own.test for name, own in data.columns.items()})
    predicted = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
    accuracy = float((predicted == data.labels.test.long()).double().mean())
    return LinearRun(tuple(points), 100 * accuracy, float(outcome.summary["wall_seconds"]))


def _run_all(jobs: Sequence[Job], scope: Scope) -> list[LinearRun]:
    def follows_from(job: Job) -> Any:
        return L2, PLANS[job.data], _row_digest(job.data)

    return run_cells(run_job, jobs, LinearRun, scope.cells, scope.watch, follows_from=follows_from)


@cache
def _row_digest(name: str) -> str:
    return dataset(name, parties=PARTIES).row_digest


# --- lossless ----------------------------------------------------------------------------------------------------


def lossless(scope: Scope) -> list[Row]:
    """Test accuracy of the variance-reduced algorithms beside scikit-learn's; the note gives the objective."""
    names = ("credit_default_uci", "a9a") if scope.quick else tuple(PLANS)
    chosen = ("afsaga", "asysqn-saga") if scope.quick else ("afsvrg", "afsaga", "asysqn-svrg", "asysqn-saga")
    rows = []
    for name in names:
        data = dataset(name, parties=PARTIES)
        model = reference_model(data, L2)
        best = objective(model, data, L2)
        theirs = 100 * float(model.score(joined(data, "test"), data.labels.test.numpy()))
        precondition = PLANS[name].precondition
        jobs = [Job(name, algorithm, best, OPTIMAL, precondition=precondition, every=1.0) for algorithm in chosen]
        if name in TWO_CLASSES:  # ten classes take minutes, and masks do not know how many there are
            jobs.append(Job(name, "asysqn-saga", best, OPTIMAL, sums="pairwise", every=1.0))
        results = _run_all(jobs, scope)
        for job, run in zip(jobs, results, strict=True):
            masked = ", masked" if job.sums != "plain" else ""
            last = run.points[-1]
            note = (
                f"scikit-learn {theirs:.2f}; objective {last.gap:.1e} above its optimum after {last.epoch:.0f} epochs; "
                f"{_chosen(job)}"
            )
            label = f"{name}, {job.algorithm}{masked}, test accuracy %"
            rows.append(Row.beside(published_accuracy(name), label, [run.accuracy], note))
    return rows


def _chosen(job: Job) -> str:
    """What of a run was chosen by looking at trial runs."""
    batch_size, step = _batch_and_step(job)
    finds_its_step = "sqn" in job.algorithm and not job.algorithm.endswith("sgd")
    return f"chosen by looking: batches of {batch_size}" + ("" if finds_its_step else f", step {step:g}")


# --- without a barrier -------------------------------------------------------------------------------------------


def straggler(scope: Scope) -> list[Row]:
    """Virtual time to a sub-optimality, synchronous over asynchronous, one of eight parties at a third of the speed."""
    names = ("credit_default_uci",) if scope.quick else TWO_CLASSES
    rows = []
    for name in names:
        best = _best(name)
        pairs = [("afsgd", "fsgd", ROUGH), ("afsvrg", "fsvrg", NEAR), ("afsaga", "fsaga", NEAR)]
        if not scope.quick:
            pairs += [("asysqn-sgd", "synsqn-sgd", ROUGH)]
            pairs += [("asysqn-svrg", "synsqn-svrg", NEAR), ("asysqn-saga", "synsqn-saga", NEAR)]
        jobs = [
            Job(name, algorithm, best, gap, seed, slow=3.0, large_batches=True)
            for fast, slow, gap in pairs
            for seed in scope.seeds
            for algorithm in (fast, slow)
        ]
        results = iter(_run_all(jobs, scope))
        for fast, slow, gap in pairs:
            ratios = []
            for _ in scope.seeds:
                here, there = (next(results).first_below(gap) for _ in range(2))
                ratios.append(there.virtual_seconds / here.virtual_seconds if here and there else float("nan"))
            chosen = _chosen(Job(name, fast, best, gap, large_batches=True))
            note = f"virtual time to {gap:.0e}; {chosen}"
            rows.append(Row.beside(published_speed_up(name, fast), f"{name}, {slow} over {fast}", ratios, note))
    return rows


def _best(name: str) -> float:
    data = dataset(name, parties=PARTIES)
    return objective(reference_model(data, L2), data, L2)


# --- fewer exchanges ---------------------------------------------------------------------------------------------


def exchanges(scope: Scope) -> list[Row]:
    """Exchanges to a sub-optimality, a quasi-Newton algorithm over its first-order twin; below 1 it needs fewer.

    Nothing is preconditioned: curvature is to show what it finds by itself.
    """
    names = ("credit_default_uci",) if scope.quick else tuple(name for name in TWO_CLASSES if name != "mnist_odd_even")
    kinds = ("all", "same", "fresh") if scope.quick else ("all",)
    rows = []
    for name in names:
        best = _best(name)
        cases = [("asysqn-sgd", "afsgd", ROUGH), ("asysqn-svrg", "afsvrg", NEAR), ("asysqn-saga", "afsaga", NEAR)]
        jobs = []
        for curved, plain, gap in cases:
            jobs.append(Job(name, plain, best, gap, precondition="none", large_batches=True, every=1.0))
            jobs += [
                Job(name, curved, best, gap, curvature_rows=kind, precondition="none", large_batches=True, every=1.0)
                for kind in kinds
            ]
        results = iter(_run_all(jobs, scope))
        for curved, plain, gap in cases:
            base = next(results).first_below(gap)
            for kind in kinds:
                point = next(results).first_below(gap)
                ratio = point.exchanges / base.exchanges if point and base else float("nan")
                counts = f"{point.exchanges if point else '–'} / {base.exchanges if base else '–'} exchanges"
                chosen = _chosen(Job(name, plain, best, gap, precondition="none", large_batches=True))
                note = f'to {gap:.0e}, {counts}; curvature_rows = "{kind}"; {chosen} without curvature'
                rows.append(Row(f"{name}, {curved} over {plain}", None, ratio, None, note))
    return rows


# --- more parties ------------------------------------------------------------------------------------------------


def scaling(scope: Scope) -> list[Row]:
    """Virtual time to a sub-optimality, one party over q: a step takes time in proportion to a party's columns."""
    name, gap = "mnist_odd_even" if not scope.quick else "credit_default_uci", NEAR if not scope.quick else ROUGH
    best = _best(name)
    counts = (1, 2, 4, 8, 16)
    jobs = [Job(name, "afsaga", best, gap, parties=count, by_columns=True) for count in counts]
    times = [run.first_below(gap) for run in _run_all(jobs, scope)]
    rows = []
    for count, point in zip(counts, times, strict=True):
        alone = times[0]
        ratio = alone.virtual_seconds / point.virtual_seconds if alone and point else float("nan")
        note = f"to {gap:.0e}; {_chosen(jobs[0])}"
        rows.append(Row(f"{name}, afsaga, speed-up with {count} parties", None, ratio, None, note))
    return rows


@dataclass(frozen=True)
class FdmlJob:
    """One run of the comparison with FDML."""

    algorithm: str
    parties: int
    rows: int
    seed: int

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.parties} parties, seed {self.seed}"


@dataclass(frozen=True)
class Accuracy:
    per_cent: float

    def __str__(self) -> str:
        return f"{self.per_cent:.2f} %"


def fdml(scope: Scope) -> list[Row]:
    """MNIST, ten classes: test accuracy as columns are shared by more and more parties."""
    rows = 10_000 if scope.quick else 0
    counts = (2, 4, 8, 16)
    jobs = [FdmlJob(name, count, rows, seed) for name in ("fdml", "afsgd") for count in counts for seed in scope.seeds]
    found = iter(run_cells(run_fdml_job, jobs, Accuracy, scope.cells, scope.watch))
    lines = []
    for name in ("fdml", "afsgd"):
        for count in counts:
            scores = [next(found).per_cent for _ in scope.seeds]
            lines.append(Row.beside(None, f"{name}, {count} parties, test accuracy %", scores))
    return lines


def run_fdml_job(job: FdmlJob) -> Accuracy:
    data = dataset("mnist", parties=job.parties, max_rows=job.rows)
    if job.algorithm == "fdml":
        training = Training(epochs=10, batch_size=64, learning_rate=0.5, evaluate_every_epochs=0)
        outcome = train(data, "fdml", training=training, seed=job.seed)
    else:
        training = Training(epochs=10, batch_size=64, learning_rate=0.05, evaluate_every_epochs=0)
        outcome = train(data, settings_for("afsgd", precondition="none"), training=training, seed=job.seed)
    return Accuracy(100 * float(outcome.summary["test"]["accuracy"]))


REPRODUCTIONS = (
    Reproduction(
        "asysqn-table-4",
        "asysqn",
        "Table 4",
        "linear federations lose nothing: accuracy and objective over scikit-learn",
        tuple(PLANS),
        lossless,
    ),
    Reproduction(
        "afsgd-table-2",
        "afsgd-vp",
        "Table II",
        "asynchronous over synchronous linear federations, one slow party",
        TWO_CLASSES,
        straggler,
        seeds=3,
    ),
    Reproduction(
        "asysqn-figure-2",
        "asysqn",
        "Figure 2",
        "exchanges with and without curvature",
        tuple(name for name in TWO_CLASSES if name != "mnist_odd_even"),
        exchanges,
    ),
    Reproduction(
        "afsgd-figure-8",
        "afsgd-vp",
        "Figure 8",
        "speed-up of afsaga with the number of parties",
        ("mnist_odd_even",),
        scaling,
    ),
    Reproduction(
        "afsgd-figure-6",
        "afsgd-vp",
        "Figure 6",
        "FDML loses accuracy as parties are added, afsgd does not",
        ("mnist",),
        fdml,
    ),
)
