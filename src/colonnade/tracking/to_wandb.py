"""Runs as Weights & Biases keeps them. Whom it tells, and whether at all, its own variables say (WANDB_MODE)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.tracking.run import TrackedRun, figures_of_line, figures_of_summary

if TYPE_CHECKING:
    import wandb


class WandbSink:
    """`track.wandb`: a project."""

    def __init__(self, where: str) -> None:
        self._project = where
        self._run: wandb.Run

    def began(self, run: TrackedRun) -> str:
        import wandb

        self._run = wandb.init(
            project=self._project,
            name=run.name,
            config=dict(run.settings),
            dir=None if run.directory is None else str(run.directory),
            id=run.before or None,
            resume="allow" if run.before else None,
            # Our settings and figures, and nothing else of this machine: no code, no commands, no installed packages.
            settings=wandb.Settings(
                console="off", disable_git=True, save_code=False, x_disable_meta=True, x_disable_stats=True
            ),
        )
        self._run.define_metric("*", step_metric="exchange")
        return str(self._run.id)

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self._run.log({"exchange": line["exchange"], **figures_of_line(line)})

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(figures_of_summary(summary))
        self._run.finish(exit_code=int(summary.get("status") == "failed"))
