"""What a federation is held against: all columns in one place, each party alone, and everybody but one.

Each is a training of its own, in one place and without noise, by whoever has all tables. What a partner adds is how
much worse the model in one place is without that party's columns.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.data.federated import FederatedData, PartyColumns
from colonnade.errors import RunError, SettingsError
from colonnade.federation.file import Federation
from colonnade.files import json_of, json_text, read_private, write_atomically
from colonnade.launch.experiment import train
from colonnade.launch.finished_run import data_of, federation_of, settings_of
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings

FILE = "baselines.json"
EVERYBODY, ALONE, WITHOUT = "everybody", "alone", "without"


def write_baselines(run: Path, say: Callable[[str], None] = lambda words: None) -> dict[str, Any]:
    """Train them with a finished run's data and settings, and write `baselines.json` into its directory.

    `say` is told what is about to be trained.
    """
    federation, data = _of_run(run)
    found: dict[str, Any] = {EVERYBODY: {}, ALONE: {}, WITHOUT: {}}
    for kind, party, columns in _which(data):
        say(f"trains {kind}" + (f" {party}" if party else ""))
        test = _scores(federation, replace(data, columns=columns))
        if party:
            found[kind][party] = test
        else:
            found[kind] = test
    write_atomically(run / FILE, json_text(found))
    return found


def _which(data: FederatedData) -> Iterator[tuple[str, str, dict[str, PartyColumns]]]:
    """Each training: its kind, the party it is about, and who has columns in it."""
    yield EVERYBODY, "", data.columns
    if len(data.columns) < 2:
        return
    for party, own in data.columns.items():
        yield ALONE, party, {party: own}
    for party in data.columns:
        others = {name: own for name, own in data.columns.items() if name != party}
        if len(others) > 1:  # of two, who is left is alone
            yield WITHOUT, party, others


def _scores(federation: Federation, data: FederatedData) -> dict[str, float]:
    """The metrics on the test rows of a model in one place, like the federation's own."""
    plan = federation.plan(data)
    alone = next(name for name, row in algorithms.ALGORITHMS.items() if row.family is algorithms.Family.ALONE)
    if algorithms.find(algorithms.name_of(federation.algorithm)).family is algorithms.Family.LINEAR:
        # Their settings of rates and steps are about another method; how long and how it is judged holds here, too.
        asked = federation.training
        training = Training(epochs=asked.epochs, metric=asked.metric, class_weight=asked.class_weight)
        outcome = train(
            data,
            alone,
            training=training,
            bottom=BottomSettings(kind="linear"),
            top=TopSettings(kind="sum"),
            seed=federation.seed,
        )
    else:
        outcome = train(
            data,
            alone,
            training=federation.training,
            bottom=plan.bottom,
            top=plan.top,
            seed=federation.seed,
        )
    return dict(outcome.summary["test"])


def _of_run(run: Path) -> tuple[Federation, FederatedData]:
    settings_of(run)
    try:
        summary = json_of(read_private(run / "summary.json"))
        is_finished = summary["status"] == "finished"
    except (OSError, ValueError, KeyError, TypeError, RunError):
        is_finished = False
    if not is_finished:
        raise SettingsError(f"The run in {run} has not finished: there is no model yet to compare baselines with.")
    if (run / "everybody.json").exists():
        raise SettingsError(
            f"{run} is one party's part of a network run: baselines need the tables of all parties in one place."
        )
    of_verb = "Baselines are for runs of `colonnade run`."
    federation = federation_of(run, "which data the run was trained with", of_verb)
    return federation, data_of(run, federation, "Its baselines need the data it was trained with.")
