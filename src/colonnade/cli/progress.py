"""How far a training or a sweep is: a bar on a terminal, plain lines elsewhere."""

import time
from typing import TYPE_CHECKING, Any

from colonnade.cli.output import console, errors, tell
from colonnade.launch.progress import SECONDS_BETWEEN_LINES, TrainingPace, terminal_bar

if TYPE_CHECKING:
    from rich.progress import TaskID

    from colonnade.data import FederatedData
    from colonnade.federation.file import Federation
    from colonnade.federation.plan import Plan


def progress_of(federation: "Federation", data: "FederatedData", quiet: bool, title: str = "") -> "TrainingProgress":
    """Of a whole training; under the name of its algorithm, if there is no other title."""
    from colonnade import algorithms
    from colonnade.federation.plan import decided_training

    name = algorithms.name_of(federation.algorithm)
    alone = algorithms.find(name).family is algorithms.Family.ALONE
    asked, epsilon = federation.training, federation.privacy.labels_epsilon
    training = decided_training(asked, federation.algorithm, data.rows, len(data.feature_parties), epsilon)
    return TrainingProgress(title or name, float(training.epochs), "steps" if alone else "exchanges", quiet)


def tell_data(data: "FederatedData", plan: "Plan") -> None:
    """Before a training begins: how many rows each party with a table of its own has in it, and what else to know."""
    from colonnade.federation.building import notes_on_size

    for party, counts in data.row_counts.items():
        tell(f"{party}: {counts.held:,} rows held, {counts.matched:,} matched, {counts.used:,} used")
    for note in (*data.notes, *notes_on_size(data, plan)):
        errors.print(note, style="yellow", markup=False, soft_wrap=True)


class TrainingProgress:
    """A training's bar and its parties' lines; fed with the lines of metrics.jsonl."""

    def __init__(self, title: str, epochs: float, unit: str = "exchanges", quiet: bool = False) -> None:
        self._title = title
        self._quiet = quiet
        self._live = console.is_terminal and not quiet
        self._pace = TrainingPace(epochs, unit)
        self._bar = terminal_bar(console)
        self._task: TaskID | None = None
        self._last_line = time.perf_counter()
        self._parties: dict[str, TaskID] = {}
        self._reported: dict[str, str] = {}

    def __enter__(self) -> "TrainingProgress":
        if self._live:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._pace.total or None, facts="")
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live:
            self._bar.stop()

    def watch(self, line: dict[str, Any]) -> None:
        """Take one line of metrics."""
        if line.get("note"):
            (self._bar.console if self._live else errors).print(line["note"], style="yellow", markup=False)
        self._pace.take(line)
        done, total = self._pace.done, self._pace.total
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total or None, facts=self._pace.facts())
        elif not self._quiet and time.perf_counter() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.perf_counter()
            facts = "  ".join([self._pace.facts(with_time_left=not self._live), *self._reported.values()])
            words = f"{self._title}: {done}/{total or '?'} {self._pace.unit}, {facts}"
            errors.print(words, markup=False, soft_wrap=True)

    def report(self, party: str, said: dict[str, Any]) -> None:
        """Take what a party's own process says of itself: a line under the bar, or a part of the next line."""
        if "note" in said:
            if not self._quiet:
                (self._bar.console if self._live else errors).print(said["note"], style="yellow", markup=False)
            return
        done = said["exchanges"]
        waits = f"waits for {', '.join(said['waits_for'])}" if said["waits_for"] else ""
        self._reported[party] = f"{party} {done}" + (f" ({waits})" if waits else "")
        if self._live:
            if party not in self._parties:
                self._parties[party] = self._bar.add_task(f"  {party}", total=None, facts="")
            self._bar.update(self._parties[party], completed=done, facts=waits)


class SweepProgress:
    """How many cells have ended, and the last of them."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = console.is_terminal and not quiet
        self._bar = terminal_bar(console)
        self._task = self._bar.add_task("cells", total=None, facts="")

    def __enter__(self) -> "SweepProgress":
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live:
            self._bar.stop()

    def finished(self, cell: dict[str, Any], ended: int, total: int) -> None:
        """Take a cell that has ended."""
        what = ", ".join([*cell["changes"].values(), f"seed {cell['seed']}"])
        result = cell["status"] if cell["metric"] is None else f"{cell['metric_name']} {cell['metric']:.4f}"
        if self._live:
            self._bar.update(self._task, completed=ended, total=total, facts=f"{what}: {result}")
        elif not self._quiet:
            tell(f"{ended}/{total} cells, {what}: {result}")
