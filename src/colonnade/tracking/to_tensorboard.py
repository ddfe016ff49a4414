"""Runs as TensorBoard reads them: an event file with a curve per figure, by exchange, and the settings as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.tracking.run import TrackedRun, figures_of_line, figures_of_summary

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorboardSink:
    """`track.tensorboard`: a folder, in which each run gets one of its own."""

    def __init__(self, where: str) -> None:
        self._folder = Path(where)
        self._writer: SummaryWriter
        self._exchange = 0

    def began(self, run: TrackedRun) -> str:
        from torch.utils.tensorboard import SummaryWriter

        own = Path(run.before) if run.before else _free(self._folder, run.name)
        self._writer = SummaryWriter(str(own))
        if not run.before:
            rows = "".join(f"| {name} | {value} |\n" for name, value in run.settings.items())
            self._writer.add_text("settings", f"| setting | value |\n| --- | --- |\n{rows}")
        self._writer.flush()
        return str(own.resolve())

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self._exchange = line["exchange"]
            self._add(figures_of_line(line))
        self._writer.flush()

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._add(figures_of_summary(summary))
        self._writer.close()

    def _add(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, self._exchange)


def _free(folder: Path, name: str) -> Path:
    """Not where another run of that name is: TensorBoard would draw the two as one."""
    number, own = 1, folder / name
    while own.exists():
        number += 1
        own = folder / f"{name}-{number}"
    return own
