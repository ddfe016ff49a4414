"""Tables and figures of AsySQN: Q. Zhang et al., "AsySQN: Faster Vertical Federated Learning Algorithms with Better
Computation Resource Utilization", 2021.

Eight parties, λ = 1e-4. Of the paper's eight sets four are here; their mnist has two classes, which, they do not say:
ours are odd and even digits, and in Table 4 also those below five and not. Time is virtual but in Table 3, where
messages are really sent. How runs are made is in linear_runs.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan

from colonnade.reproductions.afsgd_vp import speed_up, speed_ups
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.linear_runs import (
    L2,
    LOW_HIGH,
    NEAR,
    PARTIES,
    ROUGH,
    Job,
    LinearRun,
    against_time,
    best_of,
    chosen,
    data_of,
    run_all,
)
from colonnade.reproductions.mailbox import through_memory, through_tcp
from colonnade.reproductions.objective import joined, reference_model
from colonnade.reproductions.published import Published, published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

NAMES = {
    "credit_default_uci": "UCICreditCard",
    "givemesomecredit": "GiveMeSomeCredit",
    "a9a": "a9a",
    "mnist_odd_even": "mnist",
    LOW_HIGH: "mnist",
}
"""What the paper calls our data sets."""
CREDIT_AND_A9A = ("credit_default_uci", "givemesomecredit", "a9a")
FOUR = (*CREDIT_AND_A9A, "mnist_odd_even")
METHODS = ("SGD", "SVRG", "SAGA")
SLOW = 1 / 0.3
"""One party has 30 % of the others' speed: the paper says 30 to 60 %."""


def published_cell(table: str, row: str, data: str) -> Published | None:
    return published("asysqn", table, row, NAMES[data])


def _twins(method: str) -> tuple[str, str]:
    return f"asysqn-{method.lower()}", f"synsqn-{method.lower()}"


# --- Table 4 ----------------------------------------------------------------------------------------------------

STOP = 5e-5
"""The paper's stopping criterion."""


def table_4(scope: Scope) -> Shown:
    """Test accuracy, federated and not, stopped at the same sub-optimality."""
    chosen_ones = ("asysqn-saga",) if scope.quick else ("asysqn-svrg", "asysqn-saga")
    rows = []
    for name in (*FOUR, LOW_HIGH):
        alone = _not_federated(name)
        rows.append(_accuracy_row(name, "NonF", "scikit-learn, not federated", [alone], "", alone))
        for algorithm in chosen_ones:
            jobs = [Job(name, algorithm, best_of(name), STOP, seed, every=1.0) for seed in scope.seeds]
            runs = run_all(jobs, scope)
            last = runs[0].points[-1]
            note = f"{last.gap:.1e} above the optimum after {last.epoch:.0f} epochs; {chosen(jobs[0])}"
            scores = [run.accuracy or nan for run in runs]
            rows.append(_accuracy_row(name, "Ours", algorithm, scores, note, alone))
    return Shown(
        rows,
        (),
        "The paper's claim is that federated and not federated agree. Its mnist has two classes that it does not name. "
        "With odd and even digits scikit-learn, on the joined columns, is three points off the published accuracy; "
        f"with digits below five and not ({LOW_HIGH}) it is within two tenths of a point. So these are most likely its "
        "classes, and only they are held against it. Its credit sets have 90 and 92 columns by one-hot encoding (ours "
        "23 and 10) and other test rows.",
    )


def _accuracy_row(name: str, row: str, who: str, scores: Sequence[float], note: str, alone: float) -> Row:
    def holds(ours: float, there: float | None) -> bool:
        return abs(ours - alone) <= 0.1 and (there is None or abs(ours - there) <= 0.5)

    there = None if name == "mnist_odd_even" else published_cell("Table 4", row, name)
    claim = "within 0.1 of scikit-learn" if there is None else "within 0.5 of the published and 0.1 of scikit-learn"
    return Row.beside(there, f"{name}, {who}, test accuracy %", scores, note, claim, holds)


def _not_federated(name: str) -> float:
    data = data_of(name, PARTIES)
    return 100 * float(reference_model(data, L2).score(joined(data, "test"), data.labels.test.numpy()))


# --- Table 5 ----------------------------------------------------------------------------------------------------


def table_5(scope: Scope) -> Shown:
    """Computation time of as many steps, synchronous over asynchronous: messages take no time."""
    rows_used, epochs, size = (2_000, 8.0, 64) if scope.quick else (20_000, 21.0, 512)
    cases = [(name, method) for name in FOUR for method in METHODS]
    jobs = [
        Job(
            name,
            algorithm,
            best=nan,
            until=0.0,
            slow=SLOW,
            every=0.0,
            epochs=epochs,
            max_rows=rows_used,
            batch_size=size,
            precondition="auto",
            latency_seconds=0.0,
        )
        for name, method in cases
        for algorithm in _twins(method)
    ]
    runs = iter(run_all(jobs, scope))
    rows = []
    for name, method in cases:
        fast, slow = (_seconds_per_exchange(next(runs)) for _ in range(2))
        there = published_cell("Table 5", f"{method}-based", name)
        label = f"{name}, synsqn-{method.lower()} over asysqn-{method.lower()}"
        note = f"{epochs:g} epochs of {rows_used:,} rows, batches of {size}, one party at 30 % of the speed"
        claim = f"at least the published, or the {CEILING:.2f} that 30 % allow, to within 0.05"
        holds = lambda ours, printed: ours >= min(printed, CEILING) - 0.05  # noqa: E731
        rows.append(Row.beside(there, label, [slow / fast], note, claim, holds))
    return Shown(
        rows,
        (),
        "With seven parties at full speed and one at 30 %, a barrier makes 8 steps in 1/0.3 units of time, and without "
        f"one there are 7.3 in one unit: {CEILING:.2f} is all there is to gain. The paper's larger values need a "
        "slower party than it says, its smaller ones a faster one. Runs must be long enough for their beginning and "
        "end not to count: in 4 epochs of 2,000 rows, 48 steps, SVRG on credit came to 2.89, in 8 to 3.04, in 16 to "
        "3.02.",
    )


CEILING = 7.3 / 8 * SLOW


def _seconds_per_exchange(run: LinearRun) -> float:
    return run.virtual_seconds / run.exchanges


# --- Table 3 ----------------------------------------------------------------------------------------------------

COLUMNS = {
    "UCICreditCard": 90,
    "GiveMeSomeCredit": 92,
    "news20": 1_355_191,
    "w8a": 300,
    "rcv1": 47_236,
    "a9a": 127,
    "epsilon": 2_000,
    "mnist": 780,
}
"""Table 2 of the paper; a party has an eighth of them."""


@dataclass(frozen=True)
class Sending:
    """Numbers in one message."""

    numbers: int
    times: int
    carrier: str  # memory, that both processes see | tcp

    def __str__(self) -> str:
        return f"{self.numbers:,} numbers by {self.carrier}"


@dataclass(frozen=True)
class Sent:
    """Median seconds of sending one message and getting a word back."""

    seconds: float

    def __str__(self) -> str:
        return f"{1e6 * self.seconds:.1f} µs"


def send(job: Sending) -> Sent:
    return Sent((through_memory if job.carrier == "memory" else through_tcp)(job.numbers, job.times))


def table_3(scope: Scope) -> Shown:
    """Sending a vector of a party's columns over sending one number, between two processes of this machine."""
    times = 300 if scope.quick else 3_000
    sizes = {name: -(-columns // PARTIES) for name, columns in COLUMNS.items()}
    jobs = [Sending(size, times, carrier) for carrier in CARRIERS for size in (1, *sizes.values())]
    found = dict(zip(jobs, run_cells(send, jobs, Sent, scope), strict=True))
    rows, curves = [], []
    for carrier, words in CARRIERS.items():
        one = found[Sending(1, times, carrier)]
        points = []
        for name, size in sizes.items():
            sent = found[Sending(size, times, carrier)]
            ratio = sent.seconds / one.seconds
            wide = size > 5_000 and carrier == "memory"
            claim, holds = ("above 2: wide blocks are dear to send", ratio > 2) if wide else ("", None)
            label, note = f"{name}, {size:,} numbers over one, {words}", f"{sent} and {one}"
            rows.append(Row(label, None, ratio, None, note, "", claim, holds))
            points.append((float(size), ratio))
        points.sort()
        curves.append(Curve(words, tuple(x for x, _ in points), tuple(y for _, y in points)))
    panel = Panel(
        "time of a message", "numbers in the vector", "times one number's", tuple(curves), log_x=True, log_y=True
    )
    return Shown(
        rows,
        (panel,),
        "The table's numbers could not be read from the text of the paper. Its parties are processes of one machine, "
        "and OpenMPI hands messages on in memory there: the claims are held against that. Through TCP one number takes "
        "so long by itself that a block of 5,905 hardly shows: what a message costs before it carries anything "
        "decides, as the paper says of its narrow sets.",
    )


CARRIERS = {"memory": "through memory", "tcp": "through TCP"}


# --- Figure 2 ---------------------------------------------------------------------------------------------------


def figure_2(scope: Scope) -> Shown:
    """Exchanges to a sub-optimality, a quasi-Newton algorithm over its first-order twin; below 1 it needs fewer.

    Nothing is preconditioned: curvature is to show what it finds by itself. SGD is tried with several batches.
    """
    names = ("credit_default_uci",) if scope.quick else CREDIT_AND_A9A
    rows, panels = [], []
    for name in names:
        jobs = [
            Job(name, algorithm, best_of(name), _target(method), precondition="none", every=every, batch_size=size)
            for method in METHODS
            for every, size in ((0.5, size) if method == "SGD" else (1.0, 0) for size in _batches(method))
            for algorithm in _with_and_without(method)
        ]
        found = dict(zip(jobs, run_all(jobs, scope), strict=True))
        shown = []
        for method in METHODS:
            pairs = {size: _pair(found, method, size) for size in _batches(method)}
            if method == "SGD":
                rows += [_exchanges_row(name, method, pair, f"batches of {size}") for size, pair in pairs.items()]
            best = tuple(min((pair[side] for pair in pairs.values()), key=_exchanges_of(method)) for side in (0, 1))
            words = "each with the batch that needs the fewest" if method == "SGD" else ""
            row = _exchanges_row(name, method, (best[0], best[1]), words)
            rows.append(replace(row, claim="below 1", holds=row.ours < 1))
            with_it, without = _with_and_without(method)
            shown += [_against_exchanges(with_it, best[0]), _against_exchanges(without, best[1], True)]
        panels.append(Panel(name, "exchanges", "sub-optimality", tuple(shown), log_y=True))
    remark = (
        "Curves only in the paper, no numbers: its claim is fewer exchanges to the same sub-optimality. What stands in "
        "the way of SGD is noise: curvature lengthens steps along flat directions, and the noise of a batch with them. "
        "The rows by batch show it: the smaller the batch, the dearer is curvature. How much curvature can save "
        "depends on the set's own: docs/linear-federations.md has a9a and Give Me Some Credit too."
    )
    return Shown(rows, tuple(panels), remark)


SGD_BATCHES = (2_048, 4_096, 8_192, 1_000_000)
"""The last: all rows."""


def _batches(method: str) -> tuple[int, ...]:
    return SGD_BATCHES if method == "SGD" else (0,)


def _with_and_without(method: str) -> tuple[str, str]:
    return f"asysqn-{method.lower()}", f"af{method.lower()}"


def _pair(found: Mapping[Job, LinearRun], method: str, size: int) -> tuple[LinearRun, LinearRun]:
    by_name = {one.algorithm: run for one, run in found.items() if one.batch_size == size}
    with_it, without = _with_and_without(method)
    return by_name[with_it], by_name[without]


def _exchanges_of(method: str) -> Callable[[LinearRun], float]:
    def exchanges(run: LinearRun) -> float:
        point = run.first_below(_target(method))
        return point.exchanges if point else inf

    return exchanges


def _exchanges_row(name: str, method: str, pair: tuple[LinearRun, LinearRun], words: str) -> Row:
    with_it, without = _with_and_without(method)
    there, base = map(_exchanges_of(method), pair)
    ratio = there / base if max(there, base) < inf else nan
    note = f"to {_target(method):.0e}, {there:g} / {base:g} exchanges" + (f"; {words}" if words else "")
    return Row(f"{name}, {with_it} over {without}", None, ratio, None, note.replace("1000000", "all rows"))


def _target(method: str) -> float:
    return ROUGH if method == "SGD" else NEAR


def _against_exchanges(label: str, run: LinearRun, dashed: bool = False) -> Curve:
    points = [point for point in run.points if point.gap > 0]
    return Curve(label, tuple(float(point.exchanges) for point in points), tuple(point.gap for point in points), dashed)


# --- Figures 3 and 4 --------------------------------------------------------------------------------------------


def figure_3(scope: Scope) -> Shown:
    """Sub-optimality over virtual time, with and without a barrier, one party at 30 % of the speed."""
    names = ("credit_default_uci",) if scope.quick else FOUR
    rows, panels = [], []
    for name in names:
        jobs = [
            Job(name, algorithm, best_of(name), _target(method), slow=SLOW)
            for method in METHODS
            for algorithm in _twins(method)
        ]
        runs = dict(zip((one.algorithm for one in jobs), run_all(jobs, scope), strict=True))
        curves = []
        for method in METHODS:
            fast, slow = _twins(method)
            ratio = speed_up(runs[fast], runs[slow], _target(method))
            note = f"virtual time to {_target(method):.0e}; {chosen(Job(name, fast, 0.0, 0.0))}"
            rows.append(Row(f"{name}, {slow} over {fast}", None, ratio, None, note, "", "above 1", ratio > 1))
            curves += [against_time(fast, runs[fast]), against_time(slow, runs[slow], dashed=True)]
        panels.append(Panel(name, "virtual seconds", "sub-optimality", tuple(curves), log_y=True))
    return Shown(
        rows, tuple(panels), "Curves only in the paper, no numbers: every asynchronous one is ahead of its twin."
    )


def figure_4(scope: Scope) -> Shown:
    """Virtual time to a sub-optimality, one party over q."""
    name, gap = ("credit_default_uci", ROUGH) if scope.quick else ("mnist_odd_even", 5e-5)
    return speed_ups(name, gap, ("asysqn-saga", "synsqn-saga"), scope)


def _item(
    name: str, item: str, summary: str, data: Sequence[str], run: Callable[[Scope], Shown], seeds: int = 1
) -> Reproduction:
    return Reproduction(name, "asysqn", item, summary, tuple(data), run, seeds)


REPRODUCTIONS = (
    _item("asysqn-table-3", "Table 3", "sending a vector over sending one number", ["sizes of blocks"], table_3),
    _item("asysqn-table-4", "Table 4", "test accuracy, federated and not", FOUR, table_4),
    _item("asysqn-table-5", "Table 5", "computation utilisation, asynchronous over synchronous", FOUR, table_5),
    _item("asysqn-figure-2", "Figure 2", "exchanges with and without curvature", CREDIT_AND_A9A, figure_2),
    _item("asysqn-figure-3", "Figure 3", "time with and without a barrier", FOUR, figure_3),
    _item("asysqn-figure-4", "Figure 4", "speed-up with the number of parties", ["mnist_odd_even"], figure_4),
)
