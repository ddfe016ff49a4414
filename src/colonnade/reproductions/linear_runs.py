"""Runs of the linear federations, as the two linear papers make them: AFSGD-VP and AsySQN.

B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative
Learning", 2021 (AFSGD-VP); Q. Zhang et al., "AsySQN", 2021. Parties with equally many columns, λ = 1e-4. Step sizes and
batches per data set are below, found by looking at the training objective of trial runs (the papers choose step sizes
the same way); test rows had no part in it. Where it says so, each party preconditions its own block, which is ours.
Sub-optimality is relative to scikit-learn's optimum on the joined columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from colonnade import algorithms
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.launch.outcome import Outcome
from colonnade.prediction.contributions import products_of
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.objective import Point, first_below, gaps, joined, optimum, reference_model
from colonnade.reproductions.reproduction import Curve, Scope
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty

PARTIES = 8
L2 = 1e-4
ROUGH, NEAR = 1e-3, 1e-4
"""The sub-optimality that SGD is to reach, and that the others are."""


@dataclass(frozen=True)
class Experiment:
    """How a data set is trained: mini-batches, first-order step sizes, how long at most; all found by looking."""

    batch_size: int  # of snapshots and tables
    epochs: float
    step: float = 0.5  # preconditioned, where about 1 is as far as one party alone may go, whatever its columns
    sgd_batch_size: int = 4096  # of stochastic gradients, whose noise nothing but a larger batch and decay reduce
    sgd_step: float = 0.8  # as the plan preconditions
    plain_step: float = 2.0  # not preconditioned: 1, 2 and, where curvature allows it, 3 were tried
    precondition: str = "block"


LOW_HIGH = "mnist_low_high"
"""MNIST's images; the label tells whether the digit is below five."""
IDLE_FIRST = "synthetic_regression, first party needless"
"""The generated regression, its columns in another order: those that tell the least of the label come first."""
PLANS = {
    "credit_default_uci": Experiment(2048, 500),
    "givemesomecredit": Experiment(4096, 500, sgd_batch_size=1024, sgd_step=0.4, plain_step=3.0),
    "a9a": Experiment(1536, 500),
    "mnist_odd_even": Experiment(2048, 500, step=0.4, sgd_batch_size=2048, sgd_step=0.3),
    LOW_HIGH: Experiment(2048, 500, step=0.4, sgd_batch_size=2048, sgd_step=0.3),  # as of odd and even
    "synthetic_regression": Experiment(512, 60, sgd_step=0.5),
    IDLE_FIRST: Experiment(512, 60, sgd_step=0.5),
    # Too wide for a matrix of columns by columns; rows of length 1, so that one step suits every column.
    "rcv1_sample": Experiment(16, 100, sgd_batch_size=32, sgd_step=20.0, plain_step=10.0, precondition="none"),
    "newsgroups20": Experiment(128, 60, sgd_batch_size=128, sgd_step=20.0, plain_step=20.0, precondition="none"),
}
# Of a quasi-Newton direction, for SGD, which does not find it itself: preconditioned, and not.
NEWTON_SHARE, PLAIN_NEWTON_SHARE = 0.5, 0.45


def settings_for(name: str, **changes: Any) -> Any:
    """An algorithm's settings: a fixed step for the first-order ones, the one they find themselves for the others.

    No joint searches: the papers have none, and an asynchronous run would wait for its slowest party in each. And a
    sum changes the block of the party that asked for it, as in the papers.
    """
    kind = algorithms.find(name).settings
    own: dict[str, Any] = {} if _finds_its_step(name) else {"step": "fixed"}
    if issubclass(kind, AsynchronousLinear):
        own["updates"] = "one"
    return kind(max_product_age_epochs=0, search_every_epochs=0, **{**own, **changes})


def _finds_its_step(algorithm: str) -> bool:
    return "sqn" in algorithm and not algorithm.endswith("sgd")


def data_of(name: str, parties: int, max_rows: int = 0) -> FederatedData:
    """A data set by its name, or one of the two above."""
    if name == IDLE_FIRST:
        return _least_telling_first(dataset("synthetic_regression", parties=parties, max_rows=max_rows))
    if name != LOW_HIGH:
        return dataset(name, parties=parties, max_rows=max_rows)
    digits = dataset("mnist", parties=parties, max_rows=max_rows)
    train, test = ((part >= 5).long() for part in (digits.labels.train, digits.labels.test))
    labels = replace(digits.labels, train=train, test=test, task="binary", classes=("low", "high"))
    return replace(digits, labels=labels)


def _least_telling_first(data: FederatedData) -> FederatedData:
    order = np.argsort(np.abs(reference_model(data, L2).coef_.reshape(-1)))
    parts = {part: joined(data, part)[:, order].astype(np.float32) for part in ("train", "test")}
    columns, first = {}, 0
    for party, own in data.columns.items():
        here = slice(first, first + own.train.shape[1])
        first = here.stop
        train, test = (torch.from_numpy(np.ascontiguousarray(parts[part][:, here])) for part in ("train", "test"))
        columns[party] = replace(own, train=train, test=test)
    return replace(data, columns=columns)


@dataclass(frozen=True)
class Job:
    """One run, small enough to send to a process."""

    data: str
    algorithm: str
    best: float  # the least value of the objective; nan: the run is not scored
    until: float  # the sub-optimality at which it stops
    seed: int = 0
    slow: float = 1.0  # how much slower the first party is
    parties: int = PARTIES
    by_columns: bool = False  # compute time in proportion to a party's columns
    curvature_rows: str = ""
    sums: str = "plain"
    precondition: str = ""  # "": as the data set's plan says
    every: float = 0.5  # epochs between two looks at the objective
    epochs: float = 0.0  # 0: as the data set's plan says
    max_rows: int = 0
    batch_size: int = 0  # 0: as the data set's plan says
    latency_seconds: float = 0.0001

    def __str__(self) -> str:
        return f"{self.data}, {self.algorithm}, {self.parties} parties, seed {self.seed}"


def _world(job: Job, data: FederatedData) -> Simulate:
    """10 ms per step; the label party has no columns and only passes sums on."""
    first = data.feature_parties[0]
    seconds: dict[str, float | None] = dict.fromkeys(data.feature_parties)
    if job.by_columns:
        total = sum(int(np.prod(columns.shape)) for columns in data.columns.values())
        seconds = {name: 0.2 * int(np.prod(columns.shape)) / total for name, columns in data.columns.items()}
    own = {
        name: SimulatedParty(compute_seconds=took, slowdown=job.slow if name == first else 1.0)
        for name, took in seconds.items()
    }
    label_seconds = min(0.0001, job.latency_seconds)
    return Simulate(
        compute_seconds=0.01, label_compute_seconds=label_seconds, latency_seconds=job.latency_seconds, parties=own
    )


def batch_and_step(job: Job) -> tuple[int, float]:
    plan = PLANS[job.data]
    sgd = job.algorithm.endswith("sgd")
    batch_size = job.batch_size or (plan.sgd_batch_size if sgd else plan.batch_size)
    precondition = job.precondition or plan.precondition
    if "sqn" in job.algorithm:
        return batch_size, PLAIN_NEWTON_SHARE if precondition == "none" else NEWTON_SHARE
    plain = precondition == "none"
    if plain and not (sgd and plan.precondition == "none"):
        return batch_size, plan.plain_step
    return batch_size, plan.sgd_step if sgd else plan.step


def chosen(job: Job) -> str:
    """What of a run was chosen by looking at the training objective of trial runs."""
    batch_size, step = batch_and_step(job)
    return f"batches of {batch_size}" + ("" if _finds_its_step(job.algorithm) else f", step {step:g}")


@dataclass(frozen=True)
class Time:
    """What one party did with its time."""

    party: str
    busy_seconds: float
    idle_seconds: float
    steps: int


@dataclass(frozen=True)
class LinearRun:
    """What a job gave: where it was at every look, its accuracy on the data's own test rows, and its times."""

    points: tuple[Point, ...]
    accuracy: float | None  # per cent; None for a regression
    exchanges: int
    virtual_seconds: float
    times: tuple[Time, ...]
    seconds: float
    shares: tuple[float, ...] = ()  # of a regression: which part of what is missing lies in each party's block

    def first_below(self, gap: float) -> Point | None:
        return first_below(self.points, gap)

    def __str__(self) -> str:
        reached = f"{self.points[-1].gap:.1e} after {self.points[-1].epoch:.1f} epochs, " if self.points else ""
        return f"{reached}{self.exchanges} exchanges, {self.virtual_seconds:.1f} virtual s ({self.seconds:.0f} s)"


def run_job(job: Job) -> LinearRun:
    data = data_of(job.data, job.parties, job.max_rows)
    plan = PLANS[job.data]
    changes: dict[str, Any] = {"sums": job.sums, "precondition": job.precondition or plan.precondition}
    if job.curvature_rows:
        changes["curvature_rows"] = job.curvature_rows
    batch_size, step = batch_and_step(job)
    training = Training(
        epochs=job.epochs or plan.epochs,
        batch_size=min(batch_size, data.rows),
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
    summary = outcome.summary
    accuracy = None
    if data.labels.task != "regression":
        outputs = outcome.outputs({name: own.test for name, own in data.columns.items()})
        predicted = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
        accuracy = 100 * float((predicted == data.labels.test.long()).double().mean())
    return LinearRun(
        tuple(points),
        accuracy,
        int(summary["exchanges"]),
        float(summary["virtual_seconds"] or 0.0),
        _times(summary),
        float(summary["wall_seconds"]),
        _shares(data, outcome) if data.labels.task == "regression" else (),
    )


def _shares(data: FederatedData, outcome: Outcome) -> tuple[float, ...]:
    """How far each party's products are from those at the optimum: mean squares, which add up to 1."""
    optimal, first, squares = reference_model(data, L2).coef_.reshape(-1), 0, []
    for party, own in data.columns.items():
        columns = own.train.double().numpy()
        weights = optimal[first : first + columns.shape[1]]
        first += columns.shape[1]
        away = products_of(outcome.model.parties[party], own.train)[:, 0] - columns @ weights
        squares.append(float(np.var(away)))
    return tuple(square / sum(squares) for square in squares)


def _times(summary: Any) -> tuple[Time, ...]:
    return tuple(
        Time(name, float(own["busy_seconds"]), float(own["idle_seconds"]), int(own.get("steps", 0)))
        for name, own in summary["parties"].items()
    )


def run_all(jobs: Sequence[Job], scope: Scope) -> list[LinearRun]:
    def follows_from(job: Job) -> Any:
        return L2, PLANS[job.data], _row_digest(job.data, job.max_rows)

    return run_cells(run_job, jobs, LinearRun, scope, follows_from=follows_from)


@cache
def _row_digest(name: str, max_rows: int) -> str:
    return data_of(name, PARTIES, max_rows).row_digest


@cache
def best_of(name: str) -> float:
    """The least value of the objective, by scikit-learn."""
    return optimum(data_of(name, PARTIES), L2)


def against_time(label: str, run: LinearRun, dashed: bool = False) -> Curve:
    """Sub-optimality over virtual seconds."""
    points = [point for point in run.points if point.gap > 0]
    return Curve(
        label, tuple(point.virtual_seconds for point in points), tuple(point.gap for point in points), dashed=dashed
    )
