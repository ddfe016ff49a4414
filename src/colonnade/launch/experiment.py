"""A federation from settings to trained models, its data in one place: every party built, run, and summed up.

Everything that can be wrong with settings or data is found before the run directory is made.
"""

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.costs.noise import calibrated
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.building import BuiltFederation, build_federation, facts_of, notes_on_size
from colonnade.federation.plan import Bottoms, Plan, check_plan, decided_training
from colonnade.files import json_text, write_atomically
from colonnade.launch.acceptance import check_comparable, judged
from colonnade.launch.baseline import LITTLE_LEARNT, beside_one_for_all
from colonnade.launch.card import write_card
from colonnade.launch.errors_made import errors_made
from colonnade.launch.extension import check_noise
from colonnade.launch.launches import launch_of, placed
from colonnade.launch.outcome import Outcome
from colonnade.launch.progress import shown_in_python
from colonnade.launch.run_directory import data_digests, disk_errors
from colonnade.launch.run_options import RunKeywords, RunOptions
from colonnade.launch.run_record import RunRecord
from colonnade.launch.runnable import TrainingRun
from colonnade.launch.summary import recorded_threshold, summarise
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.prediction.account import RowAccount
from colonnade.prediction.carried import Costs, as_released, by_name, costs_of, has_account, spent_before
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.profile import LEAST_ROWS, OutputProfile, quantiles_of
from colonnade.prediction.saved_model import SavedModel, described, stand_ins_of, trained_together
from colonnade.prediction.starting import joint_start, notes_on_start, starts_of
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.settings import as_values
from colonnade.threads import computing_with
from colonnade.tracking.run import TrackedRun, settings_of
from colonnade.tracking.tracker import Tracker, both, tracked

RUNTIMES = (Simulate.name, Processes.name, Ray.name)

log = logging.getLogger("colonnade")


def train(
    data: FederatedData,
    algorithm: Any = None,
    *,
    training: Training | None = None,
    bottom: Bottoms | None = None,
    top: TopSettings | nn.Module | None = None,
    privacy: PerturbationSettings | None = None,
    simulate: Simulate | None = None,
    runtime: str | Processes | Ray = Simulate.name,
    seed: int = 0,
    **options: Unpack[RunKeywords],
) -> Outcome:
    """Train one model over the parties' columns: in virtual time, or with a process or a Ray actor for every party.

    `algorithm` is a name or a settings object such as `Vafl(wait_for=2)`. The `options` are those of a run:

    - `out`: the run directory to write; without it, nothing is kept.
    - `resume`: continue the stopped run in `out`, in virtual time to the same final models; or one that has finished,
      with more epochs.
    - `trace`: record every event and effect, for replay.
    - `progress`: show how far it is, by a bar in a notebook or on a terminal, by a line now and then elsewhere.
    - `watch`: is given every line of metrics.
    - `report`: is given each party's name and what its process or actor says of itself.
    - `stop_requested`: is asked now and then; once it says True, the run is saved and stopped, with its model so far.
    - `checkpoint_seconds`: wall time between checkpoints, 30 by default.
    - `threads`: of arithmetic, 1 by default.
    - `device`: where models compute, of all parties or by party: "cpu", "cuda", "mps" or "auto".
    - `start`: a model to begin with, such as `outcome.model` or a run's directory; columns are matched by name.
    - `accept_if_better`: save the model only if it is not worse than `start` on validation rows.
    - `track`: other programs that are told of the run and where each keeps it, such as
      `{"mlflow": "sqlite:///mlflow.db"}`.
    - `name`: by which these know it, by default that of its directory.
    - `settings`: what the run directory records as its federation.toml; by default what was given here.

    >>> import colonnade
    >>> data = colonnade.dataset("iris", parties=2)
    >>> outcome = colonnade.train(data, "vafl", training=colonnade.Training(epochs=2, batch_size=16))
    >>> outcome.summary["exchanges"]
    28
    """
    for keyword in options:
        if keyword not in RunKeywords.__annotations__:
            raise TypeError(f"train() got an unexpected keyword argument {keyword!r}")
    asked_for, chosen = training or Training(), _chosen_algorithm(algorithm)
    privacy = privacy or PerturbationSettings()
    plan = Plan(
        chosen,
        decided_training(asked_for, chosen, data.rows, len(data.feature_parties), privacy.labels_epsilon),
        privacy,
        BottomSettings() if bottom is None else bottom,
        TopSettings() if top is None else top,
        seed,
    )
    simulate = simulate or Simulate()
    carrier = chosen_runtime(runtime, simulate)
    if seed < 0:
        raise SettingsError(f"The seed is {seed}; it must be 0 or more.")
    asked = RunOptions(**options)
    for note in notes_on_size(data, plan):
        warnings.warn(note, stacklevel=2)
    if asked.settings is None:
        values = _settings_values(data, plan, simulate)
        if asked.start is not None:
            values["start"] = {"model": str(asked.start) if isinstance(asked.start, str | Path) else "given"}
        asked = replace(asked, settings=values)
    return _told(data, plan, carrier, asked)


def _told(data: FederatedData, plan: Plan, runtime: Simulate | Processes | Ray, asked: RunOptions) -> Outcome:
    """Train by the plan, and tell whoever waits in Python how far it is, and what to think of its end."""
    with shown_in_python(asked, algorithms.name_of(plan.algorithm), float(plan.training.epochs)) as options:
        outcome = train_plan(data, plan, runtime, options)
    if outcome.summary.get("little_learnt"):
        log.warning(LITTLE_LEARNT)
    return outcome


def train_plan(data: FederatedData, plan: Plan, runtime: Simulate | Processes | Ray, options: RunOptions) -> Outcome:
    """The same from a plan, such as a federation.toml's, and the settings of a runtime."""
    with computing_with(options.threads), tracked(options.sinks) as tracker:
        federation = _agreed(data, plan, options)
        before = _comparable(data, federation, options) if options.accept_if_better else None
        if options.resume and options.directory is not None:
            check_noise(options.directory, plan, federation.plan, federation.facts)
        launch = launch_of(TrainingRun(federation), runtime)
        with launch.ready(), placed(launch, partial(data_digests, data), options) as settled:
            settled = _told_of(tracker, plan, settled, options.directory)
            record = launch.run(settled)
        viewers = dict.fromkeys(data.feature_parties, (data.label_party,))
        before_it = [
            line
            for one in federation.private_data
            if one.spent is not None
            for line in as_released(one.name, data.label_party, viewers.get(one.name, data.feature_parties), one.spent)
        ]
        whole = replace(record, released=[*record.released, *before_it])
        summary = summarise(
            federation.plan, federation.facts, whole, data.name, options.settings or {}, data.row_counts
        )
        summary = beside_one_for_all(data.labels, summary)
        model = _trained(federation, recorded_threshold(record.recorder.metrics), _costs(data, federation, record))
        accepted = True
        if before is not None and record.finished:
            summary["acceptance"] = judged(data, plan, before, model)
            accepted = summary["acceptance"]["accepted"]
        if options.directory is not None:
            if record.finished:
                summary["errors"] = _errors(model, data)
            with disk_errors(options.directory):
                write_atomically(options.directory / "summary.json", json_text(summary))
            if not accepted:
                _add_to_start(data, federation, record, options)
            if record.finished and accepted:
                _with_outputs(model, data).save(options.directory / "model")
                write_card(options.directory)
            elif not record.finished and not options.accept_if_better:
                with disk_errors(options.directory):
                    model.save(options.directory / "model")  # as it is now; whoever stopped it may want to look at it
        tracker.end(summary)
    return Outcome(summary, record.recorder.metrics, model, options.directory, record.finished)


def _told_of(tracker: Tracker, plan: Plan, options: RunOptions, kept: Path | None) -> RunOptions:
    """The options of a run whose sinks are told of it; `kept`: the run directory, if it has one for good."""
    if not options.sinks:
        return options
    settings = settings_of(options.settings or {})
    name = plan.chosen.name if kept is None else kept.resolve().name
    tracker.begin(TrackedRun(options.name or name, "", settings, kept), options.resume)
    return replace(options, watch=both(tracker, options.watch))


def _comparable(data: FederatedData, federation: BuiltFederation, options: RunOptions) -> JointModel:
    """The model to begin with, as it takes these data: the new one is compared with it."""
    start = None if options.start is None else joint_start(options.start)
    check_comparable(data, start)
    assert start is not None
    # With other columns or parties it is its weights as they were matched. A linear model is then centred anew.
    return _trained(federation, start.unit.threshold) if notes_on_start(start, data) else start


def _costs(data: FederatedData, federation: BuiltFederation, record: RunRecord) -> dict[str, dict[bytes, float]]:
    """By party whose rows are protected: what each row has cost by now, in this training and before."""
    found = {}
    for one in federation.private_data:
        own = [kind for kind in record.released if kind["party"] == one.name and kind["sensitivity"] is not None]
        if own or one.spent is not None:
            ids = data.ids(one.name)
            found[one.name] = by_name(ids, costs_of(one.name, own, ids), one.spent)
    return found


def _add_to_start(data: FederatedData, federation: BuiltFederation, record: RunRecord, options: RunOptions) -> None:
    """The model to start from stays in use, so that its account has what this training has cost the rows, too."""
    assert options.start is not None
    start = joint_start(options.start)
    for one in federation.private_data:
        own = [kind for kind in record.released if kind["party"] == one.name and kind["sensitivity"] is not None]
        folder = start.parties[one.name].folder if one.name in start.parties else None
        if own and folder is not None:
            ids = data.ids(one.name)
            RowAccount(folder).add(by_name(ids, costs_of(one.name, own, ids)))


def _spent(data: FederatedData, start: JointModel) -> dict[str, Costs]:
    """By party: what its rows have cost before, by the account of its model to start from."""
    found = {}
    for party in (data.label_party, *data.feature_parties):
        saved = start.parties.get(party)
        if saved is not None and (saved.spent is not None or saved.folder is not None):
            costs = spent_before(saved, data.ids(party)) if has_account(saved) else None
            if costs is not None:
                found[party] = costs
    return found


def _trained(
    federation: BuiltFederation, threshold: float, spent: Mapping[str, Mapping[bytes, float]] | None = None
) -> JointModel:
    """What every party has now, and what is to be known of it."""
    plan, facts = federation.plan, federation.facts
    private = {one.name: one for one in federation.private_data}
    models = {name: party.model() for name, party in federation.parties.items()}
    training = trained_together(models)
    parties = {
        name: SavedModel(
            msgspec.structs.replace(described(plan, facts, private[name], threshold), training=training),
            models[name],
            stand_ins=stand_ins_of(party),
            columns=private[name].columns,
            spent=(spent or {}).get(name),
        )
        for name, party in federation.parties.items()
    }
    return JointModel(parties, facts.label_party)


def _errors(model: JointModel, data: FederatedData) -> dict[str, Any]:
    """How it errs on the test rows, added up."""
    if data.test_rows < LEAST_ROWS or not model.unit.classes:
        return {}
    probabilities = model.predict_proba({party: held.test for party, held in data.columns.items()})
    truth = data.labels.test.reshape(-1).long().numpy()
    return errors_made(truth, np.asarray(probabilities, np.float64), model.unit.threshold)


def _with_outputs(model: JointModel, data: FederatedData) -> JointModel:
    """With what it says of test rows, for whoever asks later whether it still says so."""
    if data.test_rows < LEAST_ROWS:
        return model
    rows = {party: held.test for party, held in data.columns.items()}
    said = model.predict_proba(rows)[:, -1] if model.unit.classes else model.predict(rows)
    leader = model.parties[model.label_party]
    outputs = OutputProfile(len(said), quantiles_of(np.asarray(said, dtype=np.float64)))
    return replace(model, parties={**model.parties, model.label_party: replace(leader, outputs=outputs)})


# --- what was asked for -----------------------------------------------------------------------------------------


def _chosen_algorithm(algorithm: Any) -> Any:
    """Settings of an algorithm, from themselves or its name."""
    if algorithm is None:
        algorithm = algorithms.DEFAULT
    return algorithms.find(algorithm).settings() if isinstance(algorithm, str) else algorithm


def chosen_runtime(runtime: str | Processes | Ray, simulate: Simulate) -> Simulate | Processes | Ray:
    """Settings of a runtime, from themselves or its name."""
    if not isinstance(runtime, str):
        return runtime
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    if runtime == Simulate.name:
        return simulate
    return Processes() if runtime == Processes.name else Ray()


def _settings_values(data: FederatedData, plan: Plan, simulate: Simulate) -> dict[str, Any]:
    """What was given from Python, as a federation.toml would say it; a user's module by its class name."""

    def described(model: Any) -> Any:
        if isinstance(model, nn.Module):
            return {"module": type(model).__name__}
        if isinstance(model, Mapping):
            return {party: described(given) for party, given in model.items()}
        return as_values(model)

    return {
        "federation": {"name": "", "label_party": data.label_party, "seed": plan.seed},
        "algorithm": {"name": algorithms.name_of(plan.algorithm), **as_values(plan.algorithm)},
        "data": {"name": data.name},
        "training": as_values(plan.training),
        "privacy": as_values(plan.privacy),
        "bottom": described(plan.bottom),
        "top": described(plan.top),
        "simulate": as_values(simulate),
    }


# --- what it takes ----------------------------------------------------------------------------------------------


def _agreed(data: FederatedData, plan: Plan, options: RunOptions) -> BuiltFederation:
    """The parties, built by the plan with the noise that its targets ask for."""
    check_plan(plan, data.rows, (data.label_party, *data.feature_parties), data.columns, data.validation_rows)
    facts = facts_of(data, plan)
    starts = spent = None
    if options.start is not None:
        parties = (data.label_party, *data.feature_parties)
        start = joint_start(options.start)
        starts, spent = starts_of(start, data.label_party, parties), _spent(data, start)
    plan = calibrated(plan, facts)  # noise changes nobody's shape
    return build_federation(data, plan, facts, starts, spent, options.device)
