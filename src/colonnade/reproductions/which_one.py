"""Which one should I use: every algorithm on the same three problems, everything at its defaults.

What is reached on test rows against the time of one core (what everybody computes, evaluations too), against bytes
(both ways, evaluation left out) and, for those that can noise what they send, against a sound ε. That is accuracy, and
for credit, where 78 of 100 rows are of one class, the area under the curve (AUC). Rows are few, so that all of it ends
within the hour; nothing was tuned for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf, nan
from statistics import mean
from time import process_time
from typing import Any

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import ColonnadeError
from colonnade.launch.experiment import train
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

PARTIES, DELTA = 4, 1e-5
ROWS = {"credit_default_uci": 3_000, "mnist": 2_000, "rcv1_sample": 1_000}
"""A table, images and sparse words. Of credit a quarter are test rows; the others have such of their own."""
QUICK_ROWS = {"credit_default_uci": 800, "mnist": 600, "rcv1_sample": 300}
METRICS = {"credit_default_uci": "auc"}
WORDS = {"auc": "AUC", "accuracy": "accuracy"}
EPOCHS, PRIVATE_EPOCHS = 8.0, 4.0
"""More passes need more noise."""
EPSILONS = (1.0, 8.0)
TWINS = {
    "split": (
        ("vafl", "split"),
        ("zoo", "zoo-sync"),
        ("cascaded",),
        ("czofo",),
        ("dpzv",),
        ("fdml",),
        ("centralised",),
    ),
    "linear": (
        *(("afsgd", "fsgd"), ("afsvrg", "fsvrg"), ("afsaga", "fsaga")),
        *(("asysqn-sgd", "synsqn-sgd"), ("asysqn-svrg", "synsqn-svrg"), ("asysqn-saga", "synsqn-saga"), ("fcg",)),
    ),
}
"""What stands in one panel: each asynchronous algorithm with its synchronous twin, dashed."""
LABELS = {"dpzv": "private-zo", "zoo": "private-zo", "cascaded": "dp-sgd"}
"""Algorithms that can protect labels, and how their label party then learns."""
COLUMNS = {"vafl": "dp-sgd", "split": "dp-sgd", "czofo": "dp-sgd", "zoo": "plain", "cascaded": "plain", "dpzv": "plain"}
"""Algorithms that can protect columns, and how their bottom models then learn: those of zeroth order need no noise."""


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    data: str
    algorithm: str
    rows: int
    epochs: float
    seed: int
    protects: str = ""  # labels | columns; "": nothing is noised
    epsilon: float = inf

    def __str__(self) -> str:
        private = f", {self.protects} at ε = {self.epsilon:g}" if self.protects else ""
        return f"{self.data}, {self.algorithm}{private}, seed {self.seed}"


@dataclass(frozen=True)
class Found:
    """What was reached on test rows, in per cent, with seconds and megabytes so far at every look; the sound ε."""

    looks: tuple[tuple[float, float, float], ...] = ()  # seconds, megabytes, accuracy or AUC
    reached: float | None = None  # at the end; None: the training failed
    seconds: float = 0.0
    megabytes: float = 0.0
    sound: float | None = None
    failed: str = ""

    def __str__(self) -> str:
        if self.reached is None:
            return f"failed: {self.failed}"
        return f"{self.reached:.1f} % in {self.seconds:.1f} s, {self.megabytes:.1f} MB"


@cache
def data_of(name: str, rows: int) -> FederatedData:
    return dataset(name, parties=PARTIES, max_rows=rows)


def asked(trial: Trial) -> tuple[Any, PerturbationSettings]:
    """Defaults, and what a target needs: noise that follows from it, and models that learn through noise alone."""
    kind = algorithms.find(trial.algorithm).settings
    if trial.protects == "labels":
        return kind(server_update=LABELS[trial.algorithm]), PerturbationSettings(
            labels_epsilon=trial.epsilon, delta=DELTA
        )
    if trial.protects == "columns":
        update = COLUMNS[trial.algorithm]
        privacy = PerturbationSettings(columns_epsilon=trial.epsilon, delta=DELTA, clip=1.0, bottom_update=update)
        # Every direction is a release of its own: one costs the least.
        own = {"directions": 1} if any(one.name == "directions" for one in fields(kind)) else {}
        return kind(**own), privacy
    return kind(), PerturbationSettings()


def run(trial: Trial) -> Found:
    """Train; a first training on a few rows, not counted, has everything compiled."""
    data = data_of(trial.data, trial.rows)
    algorithm, privacy = asked(trial)
    metric = METRICS.get(trial.data, "accuracy")
    looks: list[tuple[float, float, float]] = []
    began = process_time()

    def look(line: dict[str, Any]) -> None:
        if line["metric"]:
            sent = (line["bytes_up"] + line["bytes_down"]) / 1e6
            looks.append((process_time() - began, sent, 100 * line["metric"][metric]))

    training = Training(epochs=trial.epochs, evaluate_every_epochs=0 if trial.protects else 1.0)
    try:
        if not trial.protects:
            train(_few(data), algorithm, training=replace(training, epochs=1.0))
        began = process_time()
        summary = train(data, algorithm, training=training, privacy=privacy, seed=trial.seed, watch=look).summary
    except ColonnadeError as error:
        return Found(failed=str(error))
    return Found(
        tuple(looks),
        100 * float(summary["test"][metric]),
        process_time() - began,
        (summary["bytes_up"] + summary["bytes_down"]) / 1e6,
        summary["privacy"]["sound"] if trial.protects else None,
    )


def _few(data: FederatedData, rows: int = 100) -> FederatedData:
    columns = {name: replace(own, train=own.train[:rows], test=own.test[:rows]) for name, own in data.columns.items()}
    labels = replace(data.labels, train=data.labels.train[:rows], test=data.labels.test[:rows])
    return replace(data, columns=columns, labels=labels)


# --- what is shown ----------------------------------------------------------------------------------------------


def trials_of(quick: bool, seeds: Sequence[int]) -> list[Trial]:
    """Every algorithm without noise, then those that can keep a target, in each direction."""
    sizes = QUICK_ROWS if quick else ROWS
    epochs = 3.0 if quick else EPOCHS
    plain = [
        Trial(data, name, rows, epochs, seed)
        for data, rows in sizes.items()
        for name in algorithms.ALGORITHMS
        for seed in seeds
    ]
    private = [
        Trial(data, name, rows, PRIVATE_EPOCHS, seed, protects, epsilon)
        for data, rows in sizes.items()
        for protects, able in (("labels", LABELS), ("columns", COLUMNS))
        for name in able
        for epsilon in EPSILONS
        for seed in seeds
    ]
    return plain + private


def which_one(scope: Scope) -> Shown:
    """Rows of accuracy, seconds and megabytes for every problem and algorithm; figures of time, bytes and ε."""
    trials = trials_of(scope.quick, scope.seeds)
    cases: dict[Trial, list[Found]] = {}
    for trial, found in zip(trials, run_cells(run, trials, Found, scope), strict=True):
        cases.setdefault(replace(trial, seed=0), []).append(found)
    rows = [row for case, runs in cases.items() for row in _rows(case, runs)]
    sizes = QUICK_ROWS if scope.quick else ROWS
    words = ", ".join(f"{name} {rows:,}" for name, rows in sizes.items())
    remark = (
        f"Rows to train on: {words}; {PARTIES} feature parties, defaults, {3 if scope.quick else EPOCHS:g} epochs, "
        f"{PRIVATE_EPOCHS:g} under noise. Seconds are of one core, for all parties' work and an evaluation an epoch. "
        f"Sound ε at δ = {DELTA:g}, against everybody else; where columns are protected, embeddings of test rows are "
        "noised, too."
    )
    if scope.quick:
        remark += (
            " Quick: so few rows and epochs that a few points mean nothing, and that what keeps a target mostly "
            "guesses (an AUC of 50 %, one class of ten or of two)."
        )
    return Shown(rows, tuple(_panels(cases)), remark)


def _rows(case: Trial, runs: Sequence[Found]) -> list[Row]:
    whole = [one for one in runs if one.reached is not None]
    note = next((f"{len(runs) - len(whole)} of {len(runs)} failed: {one.failed}" for one in runs if one.failed), "")
    reached = [one.reached for one in whole if one.reached is not None] or [nan]
    label = f"{case.data}, {case.algorithm}, "
    what = f"{metric_of(case.data)} %"
    if case.protects:
        worst = max((one.sound or inf for one in whole), default=nan)
        note = note or f"sound ε = {worst:.3g}"
        return [Row.beside(None, f"{label}{case.protects} at ε = {case.epsilon:g}, {what}", reached, note)]
    return [
        Row.beside(None, f"{label}{what}", reached, note),
        Row.beside(None, f"{label}seconds of a core", [one.seconds for one in whole] or [nan]),
        Row.beside(None, f"{label}megabytes", [one.megabytes for one in whole] or [nan]),
    ]


def metric_of(data: str) -> str:
    return WORDS[METRICS.get(data, "accuracy")]


def _panels(cases: Mapping[Trial, Sequence[Found]]) -> list[Panel]:
    problems = [*dict.fromkeys(case.data for case in cases)]
    exact = {(case.data, case.algorithm): runs for case, runs in cases.items() if not case.protects}
    panels = []
    for figure, x_label, place in (("time", "seconds of one core", 0), ("bytes", "megabytes", 1)):
        for data in problems:
            for family, twins in TWINS.items():
                curves = [
                    curve
                    for pair in twins
                    for name in pair
                    if (curve := _mean_curve(name, exact[data, name], place, dashed=name != pair[0])) is not None
                ]
                title = f"{data}, {family} models"
                panels.append(Panel(title, x_label, f"{metric_of(data)}, %", tuple(curves), log_x=True, figure=figure))
    for data in problems:
        for protects, able in (("labels", LABELS), ("columns", COLUMNS)):
            curves = [_against_epsilon(name, data, protects, cases) for name in able]
            title = f"{data}, {protects} protected"
            panels.append(Panel(title, "sound ε", f"{metric_of(data)}, %", tuple(curves), log_x=True, figure="epsilon"))
    return panels


def _mean_curve(name: str, runs: Sequence[Found], place: int, dashed: bool) -> Curve | None:
    """The mean over seeds, look by look; None where nothing is sent, or a training failed."""
    looks = [one.looks for one in runs if one.looks]
    count = min(map(len, looks), default=0)
    points = [(mean(own[step][place] for own in looks), mean(own[step][2] for own in looks)) for step in range(count)]
    points = [(x, y) for x, y in points if x > 0]
    return Curve(name, tuple(x for x, _ in points), tuple(y for _, y in points), dashed=dashed) if points else None


def _against_epsilon(name: str, data: str, protects: str, cases: Mapping[Trial, Sequence[Found]]) -> Curve:
    points = []
    for case, runs in cases.items():
        reached = [one.reached for one in runs if one.reached is not None]
        if (case.data, case.algorithm, case.protects) == (data, name, protects) and reached:
            points.append((case.epsilon, mean(reached)))
    return Curve(name, tuple(x for x, _ in points), tuple(y for _, y in points))


REPRODUCTIONS = (
    Reproduction(
        "which-one",
        "ours",
        "Comparison",
        "every algorithm on three problems: accuracy against time, bytes and ε",
        tuple(ROWS),
        which_one,
        seeds=3,
    ),
)
