"""Figures 3 and 4 of VAFL: T. Chen et al., "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020.

Federated logistic regression: linear bottoms whose outputs add up, λ = 0.001, batches of a hundredth of the rows, with
and without noise of deviation √0.1 on the embeddings (the paper's variance c = 0.1). Time is virtual. A party's step
takes a Poisson number of units of 10 ms; the paper gives no parameters, ours are from one to three, evenly from the
first party to the last. Learning rates are chosen on validation rows, apart for each algorithm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan, sqrt
from statistics import mean
from typing import Any

from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty

UNIT_SECONDS = 0.01
SLOWEST, SLOWER = 3.0, 6.0
"""Units of the last party's mean delay: ours, and one to tell what the delays do."""
LOOKS = 4
"""At the training loss, in every epoch."""
METHODS = ("sync", "t-sync", "async")
TWO = "2-sync"


@dataclass(frozen=True)
class Problem:
    """What is learnt by whom, with which models and steps."""

    parties: int
    load: Callable[[int, float], FederatedData]  # by the number of rows (0: all) and the share of validation rows
    bottom: BottomSettings
    top: TopSettings
    rates: tuple[float, ...]
    noise: float  # deviation on embeddings, where there is any
    noised: tuple[str, ...] = METHODS  # which methods are shown with it too
    two: bool = False  # whether t-sync is timed with t = 2 too, to tell what its t does
    paper_rate: float = 0.0  # what the paper gives, shown beside the best one; 0: it gives none
    told: str = ""  # where the paper's text gives the speed-up of async and t-sync, if it does
    batch: int = 0  # rows of a batch; 0: a hundredth of all
    l2: float = 0.0
    optimiser: str = "sgd"
    metric: str = "accuracy"  # of test rows
    speed_up: float = 1.0  # what async and t-sync are claimed to be ahead by; 0: nothing is claimed of each by itself
    below: float = 1.0  # points that they may lie below the centralised model
    centralised: bool = True  # whether the figure shows that model; without, it is the synchronous one's
    top_share: float = 1.0  # the label party's rate over the feature parties'
    slower_top: str = ""  # the same problem with a smaller such share, to tell what noise costs the label party's model
    epochs: tuple[float, float] = (8.0, 40.0)  # quick and full
    rate_epochs: float = 4.0
    quick_rows: int = 3_000

    @property
    def words(self) -> str:
        """The metric, as axes and rows call it."""
        return "test AUC, %" if self.metric == "auc" else "test accuracy, %"


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    data: str
    method: str  # sync | t-sync | async | centralised
    rate: float
    epochs: float
    noise: float = 0.0
    max_rows: int = 0
    seed: int = 0
    validation: float = 0.0  # share of rows kept apart, where rates are compared
    slowest: float = SLOWEST  # the last party's mean delay over the first one's

    def __str__(self) -> str:
        kind = "trial, " if self.validation else ""
        return f"{kind}{self.data}, {self.method}, rate {self.rate:g}, noise {self.noise:.2f}, seed {self.seed}"


@dataclass(frozen=True)
class Learnt:
    """Training losses and test accuracies with their virtual seconds, and the loss of the validation rows, if any."""

    losses: tuple[tuple[float, float], ...] = ()
    accuracies: tuple[tuple[float, float], ...] = ()  # per cent; or areas under the curve
    validation_loss: float | None = None  # None: no such rows, or the run diverged

    def seconds_to(self, loss: float) -> float:
        return next((seconds for seconds, reached in self.by_epoch if reached <= loss), nan)

    @property
    def by_epoch(self) -> list[tuple[float, float]]:
        """Losses over the last epoch: those of a few batches jump."""
        return [
            (self.losses[place][0], mean(loss for _, loss in self.losses[place - LOOKS + 1 : place + 1]))
            for place in range(LOOKS - 1, len(self.losses))
        ]

    def __str__(self) -> str:
        if self.validation_loss is not None:
            return f"validation loss {self.validation_loss:.4f}"
        if not self.losses or not self.accuracies:
            return "diverged"
        return f"loss {self.losses[-1][1]:.4f}, {self.accuracies[-1][1]:.1f} %, {self.losses[-1][0]:.1f} virtual s"


def algorithm_of(method: str, parties: int) -> Any:
    if method == "async":
        return Vafl()
    if method == "t-sync":
        return Vafl(wait_for=max(2, parties // 2))
    if method == TWO:
        return Vafl(wait_for=2)
    return "split" if method == "sync" else method


def trained(trial: Trial, problem: Problem) -> Learnt:
    """One training in virtual time."""
    parties = problem.parties
    data = problem.load(trial.max_rows, trial.validation)
    losses: list[tuple[float, float]] = []
    accuracies: list[tuple[float, float]] = []

    def look(line: dict[str, Any]) -> None:
        if line["loss"] is not None:
            losses.append((line["virtual_seconds"], line["loss"]))
        if line["metric"] and not trial.validation:
            accuracies.append((line["virtual_seconds"], 100 * line["metric"][problem.metric]))

    training = Training(
        epochs=trial.epochs,
        batch_size=problem.batch or max(1, data.rows // 100),
        learning_rate=trial.rate,
        top_learning_rate=trial.rate * problem.top_share,
        optimiser=problem.optimiser,
        l2=problem.l2,
        observe_every_epochs=1 / LOOKS,
        evaluate_every_epochs=1.0,
        heal=False,  # the paper's form
    )
    try:
        outcome = train(
            data,
            algorithm_of(trial.method, parties),
            training=training,
            bottom=problem.bottom,
            top=problem.top,
            privacy=PerturbationSettings(noise=trial.noise),
            simulate=None if trial.method == "centralised" else world_of(data.feature_parties, trial.slowest),
            seed=trial.seed,
            watch=look,
        )
    except RunError:  # the loss was not finite any more
        return Learnt()
    scored = outcome.summary.get("validation")
    return Learnt(tuple(losses), tuple(accuracies), float(scored["log_loss"]) if scored else None)


def world_of(parties: Sequence[str], slowest: float = SLOWEST) -> Simulate:
    """Poisson delays whose means grow evenly from the first party to the last."""
    delays = {
        party: {
            "distribution": "poisson",
            "mean": UNIT_SECONDS * (1 + (slowest - 1) * place / (len(parties) - 1)),
            "spread": UNIT_SECONDS,
        }
        for place, party in enumerate(parties)
    }
    return Simulate(
        latency_seconds=0.001, parties={name: SimulatedParty(compute_seconds=delay) for name, delay in delays.items()}
    )


TIMED_EPOCHS = 2.0
"""Of runs that are asked for their time alone."""
Run = Callable[[Sequence[Trial], Scope], list[Learnt]]
"""Runs trials, each in the place of a cell."""


def compared(problems: Mapping[str, Problem], run_all: Run, scope: Scope) -> tuple[list[Row], list[Panel]]:
    """Each method at the rate that is best on validation rows; curves, accuracies, and times to a common loss."""
    rows, panels = [], []
    for name, problem in problems.items():
        methods = (*METHODS, "centralised") if problem.centralised else METHODS
        rates = _rates(name, problem, methods, run_all, scope)
        shown = [
            replace(_trial(name, problem, method, rates[method], scope), noise=noise)
            for noise, some in ((0.0, METHODS), (problem.noise, problem.noised))
            for method in some
        ]
        if problem.centralised:
            shown.append(_trial(name, problem, "centralised", rates["centralised"], scope))
        if problem.two:
            shown.append(_trial(name, problem, TWO, rates["t-sync"], scope))
        found = dict(zip(shown, run_all(shown, scope), strict=True))
        exact = {trial.method: learnt for trial, learnt in found.items() if not trial.noise}
        noised = {trial.method: learnt for trial, learnt in found.items() if trial.noise}
        rows += _speed_up_rows(name, problem, exact) + _accuracy_rows(name, problem, exact, noised, rates)
        panels += _panels(name, problem, exact, noised)
        if problem.paper_rate:
            rows += _at_paper_rate(name, problem, methods, run_all, scope)
        if problem.told:
            rows.append(_with_slower(name, problem, run_all, scope))
        if problem.slower_top:
            rows += _with_slower_top(name, problem, rates["async"], run_all, scope)
    return rows, panels


def _at_paper_rate(name: str, problem: Problem, methods: Sequence[str], run_all: Run, scope: Scope) -> list[Row]:
    """The same rows with the paper's own step: how much of a speed-up is lost at ours to embeddings that are old."""
    rate = problem.paper_rate
    trials = [_trial(name, problem, method, rate, scope) for method in methods]
    found = dict(zip(methods, run_all(trials, scope), strict=True))
    label, plain = f"{name}, the paper's rate", replace(problem, told="")
    return _speed_up_rows(label, plain, found) + _accuracy_rows(label, plain, found, {}, dict.fromkeys(methods, rate))


def _with_slower(name: str, problem: Problem, run_all: Run, scope: Scope) -> Row:
    """What t-sync gains when the last party is slower: in time for as many exchanges, which needs no rate."""
    trials = [
        replace(_trial(name, problem, method, problem.rates[0], scope), slowest=SLOWER, epochs=TIMED_EPOCHS)
        for method in ("sync", "t-sync")
    ]
    waiting, going = (learnt.losses[-1][0] if learnt.losses else nan for learnt in run_all(trials, scope))
    label = f"{name}, sync over t-sync, delays from one to {SLOWER:g}"
    return Row(label, None, waiting / going, None, "virtual time for as many exchanges")


def _with_slower_top(name: str, problem: Problem, rate: float, run_all: Run, scope: Scope) -> list[Row]:
    """async, exact and noised, where the label party goes as far in an epoch as a feature party does."""
    exact = _trial(problem.slower_top, problem, "async", rate, scope)
    kinds = {"": exact, ", with noise": replace(exact, noise=problem.noise)}
    found = dict(zip(kinds, run_all([*kinds.values()], scope), strict=True))
    words = problem.words.replace(", %", " %")
    note = f"learning rate {rate:g}, the label party's {rate / problem.parties:g}"
    return [
        Row(f"{problem.slower_top}, async{kind}, {words}", None, _last(learnt), None, note)
        for kind, learnt in found.items()
    ]


def _trial(name: str, problem: Problem, method: str, rate: float, scope: Scope) -> Trial:
    epochs = problem.epochs[0 if scope.quick else 1]
    return Trial(name, method, rate, epochs, max_rows=problem.quick_rows if scope.quick else 0, seed=scope.seeds[0])


def _rates(name: str, problem: Problem, methods: Sequence[str], run_all: Run, scope: Scope) -> dict[str, float]:
    """For each method the rate with the least loss of validation rows, which are a fifth of the rows to train on."""
    tries = [
        replace(_trial(name, problem, method, rate, scope), validation=0.2, epochs=problem.rate_epochs)
        for method in methods
        for rate in problem.rates
    ]
    found = dict(zip(tries, run_all(tries, scope), strict=True))
    best = {}
    for method in methods:
        losses = {
            trial.rate: learnt.validation_loss
            for trial, learnt in found.items()
            if trial.method == method and learnt.validation_loss is not None
        }
        best[method] = min(losses, key=losses.__getitem__) if losses else problem.rates[0]
    return best


def _speed_up_rows(name: str, problem: Problem, exact: dict[str, Learnt]) -> list[Row]:
    """Virtual time to the loss at which the worst of the three ends, the synchronous one over the others."""
    rows = []
    whole = all(exact[method].by_epoch for method in METHODS)
    common = max(min(loss for _, loss in exact[method].by_epoch) for method in METHODS) if whole else nan
    for method in ("async", "t-sync", TWO):
        there = published("vafl", problem.told, method, "speed-up") if problem.told and method != TWO else None
        claimed = problem.speed_up > 0 and method != TWO
        claim = f"at least {problem.speed_up:g}" if claimed else ""
        label = f"{name}, sync over {method}"
        if whole and exact.get(method, Learnt()).losses:
            ratio = exact["sync"].seconds_to(common) / exact[method].seconds_to(common)
            barrier = exact["sync"].losses[-1][0] / exact[method].losses[-1][0]
            note = f"virtual time to an epoch's training loss of {common:.3f}; {barrier:.2f} for as many exchanges"
        elif method != TWO:
            ratio, note = nan, "one of the three diverged"
        else:
            continue
        row = Row.beside(there, label, [ratio], note, claim)
        rows.append(replace(row, holds=ratio >= problem.speed_up if claimed else None))
    return rows


def _accuracy_rows(
    name: str, problem: Problem, exact: dict[str, Learnt], noised: dict[str, Learnt], rates: dict[str, float]
) -> list[Row]:
    words = problem.words.replace(", %", " %")
    rows = []
    if problem.centralised:
        note = f"learning rate {rates['centralised']:g}"
        rows.append(Row(f"{name}, centralised, {words}", None, _last(exact["centralised"]), None, note))
    for method in METHODS:
        for kind, learnt in (("", exact[method]), (", with noise", noised.get(method))):
            if learnt is None:
                continue
            # The text's claim: of the exact beside the centralised one, or else of the noised beside the exact.
            base = "centralised" if problem.centralised else method
            claimed = not kind if problem.centralised else bool(kind)
            points = f"{problem.below:g} point{'s' if problem.below != 1 else ''}"
            claim = f"at most {points} below {base}" if claimed else ""
            holds = _last(learnt) >= _last(exact[base]) - problem.below if claimed else None
            label, note = f"{name}, {method}{kind}, {words}", f"learning rate {rates[method]:g}"
            rows.append(Row(label, None, _last(learnt), None, note, "", claim, holds))
    return rows


def _last(learnt: Learnt) -> float:
    return learnt.accuracies[-1][1] if learnt.accuracies else nan


def _panels(name: str, problem: Problem, exact: dict[str, Learnt], noised: dict[str, Learnt]) -> list[Panel]:
    panels = []
    for what, kind in (("training loss", "losses"), (problem.words, "accuracies")):
        curves = []
        for method in METHODS:
            for words, learnt in (("", exact[method]), (", noise", noised.get(method))):
                if learnt is None:
                    continue
                points = learnt.by_epoch if kind == "losses" else learnt.accuracies
                x, y = tuple(point[0] for point in points), tuple(point[1] for point in points)
                curves.append(Curve(f"{method}{words}", x, y, dashed=bool(words)))
        ends = max((x for curve in curves for x in curve.x), default=1.0)
        alone = exact.get("centralised", Learnt())
        level = alone.by_epoch if kind == "losses" else alone.accuracies
        if level:
            curves.append(Curve("centralised", (0.0, ends), (level[-1][1], level[-1][1]), level=True))
        panels.append(Panel(name, "virtual seconds", what, tuple(curves)))
    return panels


# --- Figures 3 and 4: logistic regression -----------------------------------------------------------------------

NOISE = sqrt(0.1)
RATES = (0.001, 0.005, 0.02, 0.1, 0.5)


TOLD = "Figures 3 and 4"
TWICE = 2.0


def _logistic(name: str, parties: int, quick_epochs: float = 8.0, paper_rate: float = 0.0) -> Problem:
    def load(max_rows: int, validation: float) -> FederatedData:
        return dataset(name, parties=parties, max_rows=max_rows, validation=validation)

    models = BottomSettings("linear"), TopSettings("sum")
    return Problem(
        parties,
        load,
        *models,
        RATES,
        NOISE,
        two=parties > 5,  # half of three parties is no other t than two
        paper_rate=paper_rate,
        told=TOLD,
        l2=0.001,
        speed_up=0.0,
        epochs=(quick_epochs, 40.0),
    )


PROBLEMS = {
    "mnist": _logistic("mnist", 7, paper_rate=0.0001),
    "fashion_mnist": _logistic("fashion_mnist", 7),
    "cifar10": _logistic("cifar10", 8, quick_epochs=20.0, paper_rate=0.0001),
    "parkinson_speech": _logistic("parkinson_speech", 3, quick_epochs=20.0),
}


def run(trial: Trial) -> Learnt:
    return trained(trial, PROBLEMS[trial.data])


def _run_all(trials: Sequence[Trial], scope: Scope) -> list[Learnt]:
    return run_cells(run, trials, Learnt, scope)


def logistic_regression(names: Sequence[str], scope: Scope) -> Shown:
    rows, panels = compared({name: PROBLEMS[name] for name in names}, _run_all, scope)
    cases = [row.ours for row in rows if row.published is not None]
    twice = sum(ours >= TWICE for ours in cases)
    label = f"how many of these {len(cases)} speed-ups are at least {TWICE:g}"
    rows.append(Row(label, None, twice, None, "async and t-sync, rates of ours", "", "most", 2 * twice > len(cases)))
    short = (
        " Quick: 3,000 rows to train on. In 8 epochs, as CIFAR-10 was first run, nobody had converged, and async had "
        "come to 29.7 % beside 32.6 % of the centralised model; it has 20 now."
    )
    return Shown(
        rows,
        tuple(panels),
        "The paper prints curves, and says: async and t-sync are two times as fast in most cases, accuracies are "
        "comparable to the centralised model's. Three things decide on the speed-up, and rows isolate each. The "
        "delays, whose parameters the paper does not give: what a barrier costs is the time for as many exchanges, and "
        f"one row has it with delays from one to {SLOWER:g} in place of one to {SLOWEST:g}. The t of t-sync, which it "
        "does not give either: ours waits for half of the parties, and 2-sync differs in nothing but t = 2. And the "
        "rate: what the time to the same loss lacks of that for as many exchanges is lost to embeddings that are not "
        "fresh; with the paper's rate for MNIST and CIFAR-10, 0.0001, models hardly move between two uploads. With "
        "noise, every upload is noised anew, test rows too." + (short if scope.quick and "cifar10" in names else ""),
    )


FIGURE_3, FIGURE_4 = ("mnist", "fashion_mnist"), ("cifar10", "parkinson_speech")
REPRODUCTIONS = tuple(
    Reproduction(
        f"vafl-figure-{number}",
        "vafl",
        f"Figure {number}",
        "logistic regression under delays",
        names,
        partial(logistic_regression, names),
    )
    for number, names in ((3, FIGURE_3), (4, FIGURE_4))
)
