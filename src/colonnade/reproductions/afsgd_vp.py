"""Tables and figures of AFSGD-VP: B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms
for Multiparty Collaborative Learning", 2021.

One party is at a third of the others' speed. Time is virtual: a step takes 10 ms, a message 0.1 ms. Three of the
paper's sets are here under stand-ins of the same kind, named as such: a sample of rcv1, 20 newsgroups from their texts,
and a generated regression. How runs are made is in linear_runs.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import mean

from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.launch.experiment import train
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.linear_runs import (
    IDLE_FIRST,
    NEAR,
    ROUGH,
    Job,
    LinearRun,
    against_time,
    best_of,
    chosen,
    run_all,
    settings_for,
)
from colonnade.reproductions.published import Published, published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

NAMES = {
    "credit_default_uci": "UCICreditCard",
    "givemesomecredit": "GiveMeSomeCredit",
    "rcv1_sample": "rcv1.binary",
    "newsgroups20": "news20",
    "synthetic_regression": "YearPredictionMSD",
}
"""What the paper calls our data sets, or those that they stand in for."""
STAND_INS = {
    "rcv1_sample": "1,000 rows of rcv1 in place of 677,399",
    "newsgroups20": "tf-idf of the texts, 11,314 rows",
    "synthetic_regression": "generated, 15,000 × 100, in place of YearPredictionMSD",
}
TWINS = {"SGD": ("afsgd", "fsgd"), "SVRG": ("afsvrg", "fsvrg"), "SAGA": ("afsaga", "fsaga")}
"""Each asynchronous algorithm and its synchronous twin, by the paper's column."""
SPARSE = {"rcv1_sample": 1e-2, "newsgroups20": 1e-2}
"""Sub-optimality where rows are few and columns many: the paper's 1e-4 takes hours of exchanges one by one."""


def target(data: str, method: str) -> float:
    return SPARSE.get(data, ROUGH if method == "SGD" else NEAR)


def published_speed_up(data: str, method: str) -> Published | None:
    """Table II, if it has the set."""
    return published("afsgd-vp", "Table II", NAMES[data], method) if data in NAMES else None


def _pairs(names: Sequence[str], seeds: Sequence[int], parties: int, every: float = 0.5) -> list[Job]:
    return [
        Job(name, algorithm, best_of(name), target(name, method), seed, slow=3.0, parties=parties, every=every)
        for name in names
        for method, twins in TWINS.items()
        for seed in seeds
        for algorithm in twins
    ]


def speed_up(here: LinearRun, there: LinearRun, gap: float) -> float:
    """Virtual time of the second to this sub-optimality over that of the first; nan if one never came there."""
    return _seconds_to(gap, there) / _seconds_to(gap, here)


# --- Table II ---------------------------------------------------------------------------------------------------


def table_2(scope: Scope) -> Shown:
    """Virtual time to a sub-optimality, synchronous over asynchronous, one of eight parties at a third of the speed."""
    names = ("credit_default_uci", "synthetic_regression") if scope.quick else tuple(NAMES)
    jobs = _pairs(names, scope.seeds, 8)
    why = _why_jobs(scope.seeds[0])
    found = dict(zip([*jobs, *why], run_all([*jobs, *why], scope), strict=True))
    rows = [
        _speed_up_row(name, method, [one for one in jobs if one.data == name], found)
        for name in names
        for method in TWINS
    ]
    return Shown(
        [*rows, *_why_rows(why, found)],
        (_beside_published(names, rows),),
        "Were every exchange worth the same, eight parties of which one is at a third of the speed would gain "
        "(7 + 1/3)/8 × 3 = 2.75, and the slow party would take 0.36 times the steps that it takes with a barrier. "
        f"The last rows say why {ONE_SET} gains less. With all parties equally fast, one needs as many epochs without "
        "a barrier as with it: it is not asynchrony that costs. With one slow party, what is missing at the end lies "
        "mostly in that party's block, although it is an eighth of the columns; with SAGA also if its columns tell "
        "nothing of the label, so that it cannot be that nobody else learns them. There it is the noise of its own "
        "steps: the residuals that it keeps are renewed by its own steps alone, and are three times as old as the "
        "others'.",
    )


ONE_SET = "synthetic_regression"
"""The set that is looked at more closely."""


def _why_jobs(seed: int) -> list[Job]:
    """The twins with all parties equally fast, and the asynchronous ones with a slow party, needed and needless."""
    return [
        Job(data, algorithm, best_of(data), NEAR, seed, slow=slow, parties=8, every=0.25)
        for method in ("SVRG", "SAGA")
        for data, algorithm, slow in (
            *((ONE_SET, algorithm, 1.0) for algorithm in TWINS[method]),
            *((data, TWINS[method][0], 3.0) for data in (ONE_SET, IDLE_FIRST)),
        )
    ]


def _why_rows(jobs: Sequence[Job], found: Mapping[Job, LinearRun]) -> list[Row]:
    rows = []
    epochs = {one.algorithm: found[one].points[-1].epoch for one in jobs if one.slow == 1}
    for method in ("SVRG", "SAGA"):
        fast, slow = TWINS[method]
        note = f"to {NEAR:.0e}; {epochs[slow]:.1f} / {epochs[fast]:.1f}"
        label = f"{ONE_SET}, all equally fast, epochs of {slow} over {fast}"
        rows.append(Row(label, None, epochs[slow] / epochs[fast], None, note))
    for one in jobs:
        if one.slow > 1:
            share, gap = found[one].shares[0], found[one].points[-1].gap
            label = f"{one.data}, {one.algorithm}, part of what is missing that is the slow party's"
            rows.append(Row(label, None, share, None, f"one of eight parties; {gap:.0e} above the optimum"))
    return rows


def _speed_up_row(name: str, method: str, own: Sequence[Job], found: Mapping[Job, LinearRun]) -> Row:
    fast, slow = TWINS[method]
    gap = target(name, method)
    runs = [[found[one] for one in own if one.algorithm == twin] for twin in (fast, slow)]
    ratios = [speed_up(here, there, gap) for here, there in zip(*runs, strict=True)]
    note = f"virtual time to {gap:.0e}; {chosen(next(one for one in own if one.algorithm == fast))}"
    steps = [mean(run.times[1].steps for run in some) for some in runs]  # the label party is the first
    note += f"; the slow party took {steps[0] / max(1, steps[1]):.2f} times the steps"
    note += f"; {STAND_INS[name]}" if name in STAND_INS else ""
    return Row.beside(
        published_speed_up(name, method),
        f"{name}, {slow} over {fast}",
        ratios,
        note,
        "at least the published speed-up",
        lambda ours, there: there is None or ours >= there,
    )


def _beside_published(names: Sequence[str], rows: Sequence[Row]) -> Panel:
    """Ours as bars by set and method, theirs marked."""
    places = tuple(float(place) for place in range(len(rows)))
    marked = [(place, row.published) for place, row in zip(places, rows, strict=True) if row.published is not None]
    return Panel(
        "synchronous over asynchronous time",
        "",
        "asynchronous speed-up",
        (
            Curve("ours", places, tuple(row.ours for row in rows)),
            Curve("Table II", tuple(x for x, _ in marked), tuple(y for _, y in marked), published=True),
        ),
        bars=tuple(f"{name}, {method}" for name in names for method in TWINS),
    )


# --- Figures 4 and 5 --------------------------------------------------------------------------------------------


def _convergence(names: Sequence[str], parties: int, scope: Scope) -> Shown:
    """Sub-optimality over virtual time of all six, and their speed-ups."""
    jobs = _pairs(names, scope.seeds[:1], parties)
    found = dict(zip(jobs, run_all(jobs, scope), strict=True))
    rows, panels = [], []
    for name in names:
        runs = {one.algorithm: run for one, run in found.items() if one.data == name}
        curves = []
        for method, (fast, slow) in TWINS.items():
            gap = target(name, method)
            note = f"virtual time to {gap:.0e}" + (f"; {STAND_INS[name]}" if name in STAND_INS else "")
            ratio = speed_up(runs[fast], runs[slow], gap)
            rows.append(Row(f"{name}, {slow} over {fast}", None, ratio, None, note, "", "above 1", ratio > 1))
            curves += [against_time(fast, runs[fast]), against_time(slow, runs[slow], dashed=True)]
        panels.append(Panel(name, "virtual seconds", "sub-optimality", tuple(curves), log_y=True))
    remark = "The paper prints curves, no numbers: its claim is that each asynchronous algorithm is ahead of its twin."
    return Shown(rows, tuple(panels), remark)


def figure_4(scope: Scope) -> Shown:
    """Credit and regression, four parties."""
    names = ("credit_default_uci", "synthetic_regression") if scope.quick else FIGURE_4
    return _convergence(names, 4, scope)


def figure_5(scope: Scope) -> Shown:
    """Large and sparse sets, eight parties."""
    return _convergence(("rcv1_sample",) if scope.quick else ("rcv1_sample", "newsgroups20"), 8, scope)


FIGURE_4 = ("credit_default_uci", "givemesomecredit", "synthetic_regression")


# --- Figure 6 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FdmlJob:
    """One run of the comparison with FDML."""

    algorithm: str
    parties: int
    rate: float
    rows: int
    seed: int

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.parties} parties, rate {self.rate:g}, seed {self.seed}"


@dataclass(frozen=True)
class Accuracy:
    """Per cent of the test rows, and of the validation rows that the rate is chosen by."""

    test: float
    validation: float

    def __str__(self) -> str:
        return f"{self.test:.2f} %, validation {self.validation:.2f} %"


RATES = {"fdml": (0.2, 0.5, 1.0), "afsgd": (0.02, 0.05, 0.1)}
COUNTS = (2, 4, 8, 16)


def figure_6(scope: Scope) -> Shown:
    """MNIST, ten classes: test accuracy as columns are shared by more and more parties."""
    rows_used = 2_000 if scope.quick else 0
    jobs = [
        FdmlJob(name, count, rate, rows_used, seed)
        for name, rates in RATES.items()
        for count in COUNTS
        for rate in rates
        for seed in scope.seeds
    ]
    found = dict(zip(jobs, run_cells(run_fdml_job, jobs, Accuracy, scope), strict=True))
    rows, curves = [], []
    for name, rates in RATES.items():
        reached: list[float] = []
        for count in COUNTS:
            by_rate = {
                rate: [
                    run for one, run in found.items() if (one.algorithm, one.parties, one.rate) == (name, count, rate)
                ]
                for rate in rates
            }
            rate = max(rates, key=lambda one: mean(run.validation for run in by_rate[one]))
            scores = [run.test for run in by_rate[rate]]
            reached.append(mean(scores))
            claim, keeps = _fdml_claim(name, reached)
            note = f"learning rate {rate:g}, chosen on validation rows"
            row = Row.beside(None, f"{name}, {count} parties, test accuracy %", scores, note, claim)
            rows.append(replace(row, holds=keeps))
        curves.append(Curve(name, tuple(map(float, COUNTS)), tuple(reached)))
    title = f"MNIST, {rows_used or 60_000:,} rows"
    panel = Panel(title, "parties", "test accuracy, %", tuple(curves), log_x=True)
    remark = (
        "The paper compares on its two multi-class sets and prints curves, no numbers; ours is on MNIST. FDML adds "
        "up predictions of separate models, each of fewer columns with every party that is added; in the joint model "
        "the number of parties changes the order of the steps alone."
    )
    if scope.quick:
        remark += " Quick: half a point is ten of the 2,000 test rows."
    return Shown(rows, (panel,), remark)


def _fdml_claim(name: str, reached: Sequence[float]) -> tuple[str, bool | None]:
    """FDML loses with every party; ours does not, by more than half a point."""
    if len(reached) == 1:
        return "", None
    if name == "fdml":
        return "below fewer parties", reached[-1] < reached[-2]
    return "within half a point of two parties", abs(reached[-1] - reached[0]) <= 0.5


def run_fdml_job(job: FdmlJob) -> Accuracy:
    data = dataset("mnist", parties=job.parties, max_rows=job.rows, validation=0.2)
    training = Training(epochs=10, batch_size=64, learning_rate=job.rate, evaluate_every_epochs=2)
    algorithm = "fdml" if job.algorithm == "fdml" else settings_for("afsgd", precondition="none")
    summary = train(data, algorithm, training=training, seed=job.seed).summary
    return Accuracy(100 * float(summary["test"]["accuracy"]), 100 * float(summary["validation"]["accuracy"]))


# --- Figure 7 ---------------------------------------------------------------------------------------------------


def figure_7(scope: Scope) -> Shown:
    """What a straggler and another party do with their time, synchronous and asynchronous; eight parties."""
    name, epochs = "rcv1_sample", 6.0 if scope.quick else 20.0
    twins = {"synchronous": "fsgd", "asynchronous": "afsgd"}
    jobs = [Job(name, one, nan, 0.0, slow=3.0, every=0.0, epochs=epochs) for one in twins.values()]
    runs = dict(zip(twins, run_all(jobs, scope), strict=True))
    bars: dict[str, tuple[float, float]] = {}
    updates: dict[str, float] = {}
    whole = runs["synchronous"].virtual_seconds / max(1, runs["synchronous"].times[1].steps)
    for kind, run in runs.items():
        for who, time in (("straggler", run.times[1]), ("other party", run.times[2])):  # the label party is the first
            steps = max(1, time.steps)
            busy, idle = time.busy_seconds / steps / whole, time.idle_seconds / steps / whole
            bars[f"{who}, {kind}"] = (busy, idle)
            updates[f"{who}, {kind}"] = time.steps / run.virtual_seconds * whole
    return Shown(_breakdown_rows(bars, updates), _breakdown_panels(bars, updates), BREAKDOWN_REMARK)


BREAKDOWN_REMARK = (
    "Bars only in the paper, no numbers. Time and updates are in units of the synchronous straggler's, as there. "
    "rcv1_sample stands in for url; communication is 0.1 ms a message and counts as waiting."
)


def _breakdown_rows(bars: Mapping[str, tuple[float, float]], updates: Mapping[str, float]) -> list[Row]:
    rows = []
    for who, (busy, idle) in bars.items():
        share = idle / (busy + idle)
        waits = who == "other party, synchronous"
        claim = "more than half waiting" if waits else "less than a tenth waiting"
        holds = share > 0.5 if waits else share < 0.1
        rows.append(Row(f"{who}: share of time waiting", None, share, None, "", "", claim, holds))
    gain = updates["other party, asynchronous"] / updates["other party, synchronous"]
    label = "other party: updates a second, asynchronous over synchronous"
    rows.append(Row(label, None, gain, None, "three times the speed", "", "above 2", gain > 2))
    return rows


def _breakdown_panels(bars: Mapping[str, tuple[float, float]], updates: Mapping[str, float]) -> tuple[Panel, ...]:
    places = tuple(float(place) for place in range(len(bars)))
    parts = tuple(zip(*bars.values(), strict=True))
    time = (Curve("computing", places, parts[0]), Curve("waiting", places, parts[1]))
    return (
        Panel("time of an update", "", "of the synchronous straggler's", time, bars=tuple(bars)),
        Panel("updates a second", "", "of the synchronous straggler's", _one(places, updates), bars=tuple(updates)),
    )


def _one(places: tuple[float, ...], values: Mapping[str, float]) -> tuple[Curve, ...]:
    return (Curve("updates", places, tuple(values.values())),)


# --- Figure 8 ---------------------------------------------------------------------------------------------------


def figure_8(scope: Scope) -> Shown:
    """Virtual time to a sub-optimality, one party over q, without and with a party at a third of the speed."""
    name, gap = ("credit_default_uci", ROUGH) if scope.quick else ("mnist_odd_even", NEAR)
    return speed_ups(name, gap, ("afsaga", "fsaga"), scope)


def speed_ups(name: str, gap: float, twins: tuple[str, str], scope: Scope) -> Shown:
    """With q parties a step takes time in proportion to a party's columns; one of them may be three times as slow."""
    counts = (1, 2, 4, 8) if scope.quick else (1, 2, 4, 8, 16)
    cases = [
        (slow, algorithm, count)
        for slow in (1.0, 3.0)
        for algorithm in twins
        for count in counts
        if slow == 1.0 or count > 1
    ]
    every = 0.25
    jobs = [
        Job(name, algorithm, best_of(name), gap, slow=slow, parties=count, by_columns=True, every=every)
        for slow, algorithm, count in cases
    ]
    runs = dict(zip(cases, run_all(jobs, scope), strict=True))
    reached = {case: _seconds_to(gap, run) for case, run in runs.items()}
    alone = ", ".join(f"{algorithm} {_epochs_to(gap, runs[1.0, algorithm, 1])}" for algorithm in twins)
    rows, panels = [], []
    for slow in (1.0, 3.0):
        curves = []
        for algorithm in twins:
            ratios = [
                reached[1.0, algorithm, 1] / reached[slow if count > 1 else 1.0, algorithm, count] for count in counts
            ]
            curves.append(Curve(algorithm, tuple(map(float, counts)), tuple(ratios), dashed=algorithm == twins[1]))
        panels.append(_speed_up_panel(slow, counts, curves))
        epochs = {case[1:]: _epochs_to(gap, run) for case, run in runs.items() if case[0] == slow}
        rows += _speed_up_rows(name, gap, slow, counts, curves, epochs)
    remark = (
        "Curves only in the paper, no numbers. Looked at every quarter of an epoch, so a ratio is as coarse as that. "
        "The straggler's share of the columns shrinks with q, and so does the time that a barrier waits for it: were "
        "epochs worth the same, the synchronous curve would be a third of the ideal one, not flat. They are not: one "
        f"party alone, which knows how all columns belong together, needs few (to {gap:.0e}: {alone}; the first fills "
        "the table), and the notes tell how many q parties need, each of which knows that of its own columns alone."
    )
    return Shown(rows, tuple(panels), remark)


def _seconds_to(gap: float, run: LinearRun) -> float:
    point = run.first_below(gap)
    return point.virtual_seconds if point else nan


def _epochs_to(gap: float, run: LinearRun) -> str:
    point = run.first_below(gap)
    return f"{point.epoch:.1f} epochs" if point else "never"


def _speed_up_panel(slow: float, counts: Sequence[int], curves: Sequence[Curve]) -> Panel:
    ideal = Curve("ideal", tuple(map(float, counts)), tuple(map(float, counts)), level=True)
    title = "one party at a third of the speed" if slow > 1 else "all parties equally fast"
    return Panel(title, "parties", "speed-up", (*curves, ideal))


def _speed_up_rows(
    name: str,
    gap: float,
    slow: float,
    counts: Sequence[int],
    curves: Sequence[Curve],
    epochs: Mapping[tuple[str, int], str],
) -> list[Row]:
    rows = []
    ahead, behind = curves
    for place, count in enumerate(counts):
        if count == 1:
            continue
        for curve in curves:
            claim, holds = "", None
            if curve is ahead and slow > 1:
                claim, holds = "above the synchronous one", curve.y[place] > behind.y[place]
            who = "one slow party" if slow > 1 else "equal parties"
            label = f"{name}, {curve.label}, {who}, speed-up with {count}"
            note = f"to {gap:.0e}: {epochs[curve.label, count]}"
            rows.append(Row(label, None, curve.y[place], None, note, "", claim, holds))
    return rows


def _item(
    name: str, item: str, summary: str, data: Sequence[str], run: Callable[[Scope], Shown], seeds: int = 1
) -> Reproduction:
    return Reproduction(name, "afsgd-vp", item, summary, tuple(data), run, seeds)


REPRODUCTIONS = (
    _item("afsgd-table-2", "Table II", "asynchronous over synchronous, one slow party", [*NAMES], table_2, 3),
    _item("afsgd-figure-4", "Figure 4", "convergence on credit and regression", FIGURE_4, figure_4),
    _item("afsgd-figure-5", "Figure 5", "convergence on sparse sets", ["rcv1_sample", "newsgroups20"], figure_5),
    _item(
        "afsgd-figure-6", "Figure 6", "FDML loses accuracy as parties are added, afsgd does not", ["mnist"], figure_6, 3
    ),
    _item("afsgd-figure-7", "Figure 7", "what parties do with their time", ["rcv1_sample"], figure_7),
    _item("afsgd-figure-8", "Figure 8", "speed-up with the number of parties", ["mnist_odd_even"], figure_8),
)
