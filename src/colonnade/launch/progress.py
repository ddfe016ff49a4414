"""How far a training is: exchanges, their rate, loss, metric and time left, from the lines of metrics.

From Python, `train(…, progress=True)` shows it: in a notebook as a bar in the page, on a terminal as a bar, elsewhere
as plain lines. A notebook's bar is HTML that replaces itself, so it needs no widgets.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from colonnade.launch.run_options import RunOptions
from colonnade.reports.markup import Markup, element, text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES = 5.0
"""Where there is no bar, a line of progress at most this often."""
SECONDS_BETWEEN_BARS = 0.2
"""A notebook keeps every change of a bar until it has shown it."""


class TrainingPace:
    """Where a training stands, and how long it will still take."""

    def __init__(self, epochs: float, unit: str = "exchanges") -> None:
        """`epochs`: what a line's `epoch` is at the end. How many exchanges that will be is worked out from it.

        It depends on more than batches: full passes over all rows, tolerances, parties that are away.
        """
        self.done = 0
        self.total = 0
        self.unit = unit
        self._epochs = epochs
        self._began = time.perf_counter()
        self._first: int | None = None
        self._loss: float | None = None
        self._metric: dict[str, float] = {}

    def take(self, line: dict[str, Any]) -> None:
        """Take one line of metrics.

        >>> pace = TrainingPace(epochs=4.0)
        >>> pace.take({"exchange": 30, "epoch": 1.5, "loss": 0.25, "metric": {"accuracy": 0.9}})
        >>> pace.total, pace.facts()
        (80, 'loss 0.2500  accuracy 0.9000')
        """
        self.done = line["exchange"]
        if self._first is None:
            self._first, self._began = self.done, time.perf_counter()
        if line["epoch"]:
            self.total = max(self.done, round(self.done * self._epochs / line["epoch"]))
        self._loss = line["loss"] if line["loss"] is not None else self._loss
        self._metric = line["metric"] or line.get("validation") or self._metric

    def facts(self, with_time_left: bool = False) -> str:
        """What there is to say beside the count."""
        facts = []
        elapsed = time.perf_counter() - self._began
        if self._first is not None and self.done > self._first and elapsed > 0:
            rate = (self.done - self._first) / elapsed
            facts.append(f"{rate:.0f} {self.unit}/s")
            if with_time_left and self.total > self.done:
                facts.append(f"about {(self.total - self.done) / rate:.0f} s left")
        if self._loss is not None:
            facts.append(f"loss {self._loss:.4f}")
        shown = next((name for name in ("accuracy", "rmse") if name in self._metric), None)
        if shown:
            facts.append(f"{shown} {self._metric[shown]:.4f}")
        return "  ".join(facts)


class Bar(Protocol):
    """What shows a training to whoever waits for it."""

    def show(self, pace: TrainingPace) -> None:
        """Show where it stands."""

    def note(self, sentence: str) -> None:
        """Say something beside it."""

    def end(self) -> None:
        """Show the last that is known, and leave it there."""


class NotebookBar:
    """A bar in a notebook's page: one output that is replaced."""

    def __init__(self, title: str) -> None:
        from IPython.display import display

        self._title = title
        self._pace: TrainingPace | None = None
        self._shown_at = 0.0
        self._output: Any = display(_Shown(title, "", 0, 0), display_id=True)

    def show(self, pace: TrainingPace) -> None:
        self._pace = pace
        if time.perf_counter() - self._shown_at >= SECONDS_BETWEEN_BARS:
            self._shown_at = time.perf_counter()
            self._update()

    def note(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)

    def end(self) -> None:
        self._update()

    def _update(self) -> None:
        pace = self._pace
        if pace is not None and self._output is not None:
            self._output.update(_Shown(self._title, pace.facts(with_time_left=True), pace.done, pace.total))


class _Shown:
    """One state of a notebook's bar, as text and as HTML."""

    def __init__(self, title: str, facts: str, done: int, total: int) -> None:
        self._title, self._done, self._total = title, done, total
        self._words = f"{title}: {done:,} of {total:,}  {facts}" if total else title

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        known = f' value="{self._done}" max="{self._total}"' if self._total else ""
        bar = Markup(f'<progress aria-label="{text(self._title)}"{known}></progress>')
        return element("div", bar, " ", self._words)


class TerminalBar:
    """A bar on a terminal."""

    def __init__(self, title: str) -> None:
        from rich.console import Console

        self._bar = terminal_bar(Console(stderr=True))
        self._bar.start()
        self._task: TaskID = self._bar.add_task(title, total=None, facts="")

    def show(self, pace: TrainingPace) -> None:
        self._bar.update(self._task, completed=pace.done, total=pace.total or None, facts=pace.facts())

    def note(self, sentence: str) -> None:
        self._bar.console.print(sentence, style="yellow", markup=False)

    def end(self) -> None:
        self._bar.stop()


class PlainLines:
    """A line now and then, where there is neither."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._said_at = time.perf_counter()

    def show(self, pace: TrainingPace) -> None:
        if time.perf_counter() - self._said_at > SECONDS_BETWEEN_LINES:
            self._said_at = time.perf_counter()
            self.note(f"{self._title}: {pace.done}/{pace.total or '?'} {pace.unit}, {pace.facts(with_time_left=True)}")

    def note(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)

    def end(self) -> None:
        pass


def terminal_bar(console: Any) -> "Progress":
    """The bar that commands show, too."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeRemainingColumn(),
        console=console,
    )


@contextmanager
def shown_in_python(options: RunOptions, title: str, epochs: float) -> Iterator[RunOptions]:
    """The same options, with a bar if one was asked for; whoever watches besides is given every line as before."""
    if not options.progress:
        yield options
        return
    bar, pace = bar_for_python(title), TrainingPace(epochs)

    def watch(line: dict[str, Any]) -> None:
        if line.get("note"):
            bar.note(line["note"])
        pace.take(line)
        bar.show(pace)
        if options.watch is not None:
            options.watch(line)

    try:
        yield replace(options, watch=watch)
    finally:
        bar.end()


def bar_for_python(title: str) -> Bar:
    """The one that can be seen where this runs."""
    if in_notebook():
        return NotebookBar(title)
    return TerminalBar(title) if sys.stderr.isatty() else PlainLines(title)


def in_notebook() -> bool:
    """Whether this runs in a kernel, whose outputs are shown in a page."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
