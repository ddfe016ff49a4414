"""Runs as MLflow keeps them: parameters, metrics by exchange, tags. Over its client, without its global state."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.tracking.run import TrackedRun, figures_of_line, figures_of_summary
from colonnade.tracking.settings import FROM_ENVIRONMENT

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

_EXPERIMENT = "colonnade"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # a federation tells nobody but the server that was named
    "MLFLOW_ALLOW_FILE_STORE": "true",  # who gives a file: address has chosen it
    # By default it asks a server that is away for many minutes. The lines wait that long, and so does the end.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_MOST_AT_ONCE = 1000  # what its server takes in a request
_MOST_PARAMETERS = 100  # of those, the same
_LONGEST_PARAMETER = 500


class MlflowSink:
    """`track.mlflow`: a tracking URI. The experiment is MLFLOW_EXPERIMENT_NAME, or "colonnade"."""

    def __init__(self, where: str) -> None:
        self._where = None if where == FROM_ENVIRONMENT else where
        self._client: MlflowClient
        self._run = ""
        self._exchange = 0

    def began(self, run: TrackedRun) -> str:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        for logger in ("mlflow", "alembic"):  # what they do to a new database is no news of a training
            logging.getLogger(logger).setLevel(logging.WARNING)
        self._client = MlflowClient(self._where)
        if run.before:
            self._run = run.before
            self._client.update_run(self._run, status="RUNNING")
            return self._run
        tags = {"colonnade.party": run.party} if run.party else {}
        self._run = self._client.create_run(self._experiment(), run_name=run.name, tags=tags).info.run_id
        parameters = [Param(name, value[:_LONGEST_PARAMETER]) for name, value in run.settings.items()]
        for start in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(self._run, params=parameters[start : start + _MOST_PARAMETERS])
        return self._run

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self._log([metric for line in lines for metric in self._metrics(figures_of_line(line), line["exchange"])])
        self._exchange = int(lines[-1]["exchange"])

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._log([*self._metrics(figures_of_summary(summary), self._exchange)])
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(summary.get("status", ""), "KILLED")
        self._client.set_terminated(self._run, status)

    def _metrics(self, figures: Mapping[str, float], exchange: int) -> "Iterator[Metric]":
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        return (Metric(name, value, now, exchange) for name, value in figures.items())

    def _log(self, metrics: "Sequence[Metric]") -> None:
        for start in range(0, len(metrics), _MOST_AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[start : start + _MOST_AT_ONCE])
