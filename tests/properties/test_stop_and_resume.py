"""A run that was stopped anywhere and resumed is the run that was never stopped: models, metrics, traces, summary.

For every algorithm of the table with its defaults, and for the settings that leave something in the air when a
checkpoint is taken: uploads in flight, refreshes awaited, noise and dropout drawn, frames lost, parties away.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from colonnade import (
    Afsaga,
    Afsgd,
    Cascaded,
    Centralised,
    Czofo,
    Dpzv,
    FlatModel,
    Fsgd,
    PerturbationSettings,
    RunError,
    Simulate,
    SimulatedParty,
    Split,
    Training,
    Vafl,
    Zoo,
    ZooSync,
)
from colonnade.algorithms import ALGORITHMS
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

DATA = tiny_data()
UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "exponential", "mean": 0.004},
    parties={"party1": SimulatedParty(slowdown=3.0)},
)
ROUGH = Simulate(
    latency_seconds={"distribution": "exponential", "mean": 0.01},
    loss=0.3,
    reorder=True,
    parties={
        "label": SimulatedParty(crashes=((0.05, 0.09),)),
        "party1": SimulatedParty(crashes=((0.03, 0.06), (0.2, 0.3)), straggle_probability=0.2),
        "party2": SimulatedParty(crashes=((0.04, 0.15),)),
    },
)
# Observed every six exchanges, so that most checkpoints fall between two observations.
TRAINING = Training(epochs=2, batch_size=8, observe_every_epochs=0.7)
ADAM = Training(epochs=2, batch_size=8, optimiser="adam", learning_rate=0.02, l1=0.01, l2=0.01, observe_every_epochs=0)
MOMENTUM = Training(epochs=2, batch_size=8, optimiser="momentum", learning_rate=0.05, observe_every_epochs=0.3)
CHOOSING = Training(epochs=2, batch_size=8, learning_rate=1.0, evaluate_every_epochs=0.4, metric="log_loss")
BOLD = Training(epochs=12, batch_size=8, learning_rate=300.0, optimiser="sgd", evaluate_every_epochs=3)
LINEAR_BOLD = Training(epochs=12, batch_size=8, learning_rate=50.0, evaluate_every_epochs=3)
SEARCHING = Training(epochs=4, batch_size=8, evaluate_every_epochs=1.5)
TARGETS = tiny_data("regression")
VALIDATED = DATA.with_validation(0.25)
NOISE = PerturbationSettings(noise=0.3, inner_noise=0.1, clip=1.0)
DP_SGD = PerturbationSettings(noise=0.3, clip=1.0, bottom_update="dp-sgd", update_clip=0.1, update_noise=0.05)
FROZEN = PerturbationSettings(noise=0.3, clip=1.0, bottom_update="frozen")
FROZEN_BUDGET = PerturbationSettings(clip=1.0, bottom_update="frozen", columns_epsilon=8.0)


def dropout() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))


def normalised() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def stumps() -> nn.Module:
    return FlatModel(torch.tensor([0.2, -0.3]), lambda w, x: (x > w).float())


def plan(algorithm: Any, **changes: Any) -> TinyFederation:
    return TinyFederation(algorithm=algorithm, **{"data": DATA, "simulate": UNEVEN, "training": TRAINING, **changes})


PLANS = {
    **{f"{name}, defaults": plan(row.settings()) for name, row in ALGORITHMS.items()},
    "in_flight 3": plan(Vafl(in_flight=3)),
    "in_flight 3, Adam": plan(Vafl(in_flight=3), training=ADAM),
    "wait_for 2": plan(Vafl(wait_for=2, in_flight=2)),
    "wait_for 3, momentum": plan(Vafl(wait_for=3), training=MOMENTUM),
    "max_delay 3": plan(Vafl(max_delay=3)),
    "max_delay 3, time-outs": plan(Vafl(max_delay=3, wait_for=2, refresh_timeout_seconds=0.005)),
    "activation": plan(Vafl(activation_seconds=0.01, in_flight=2)),
    "warm_up, shared rows": plan(Vafl(warm_up=True, shared_rows=True)),
    "noise": plan(Vafl(in_flight=2, max_delay=4), privacy=NOISE),
    "noise, split": plan(Split(), privacy=NOISE),
    "dropout": plan(Vafl(), bottom=dropout()),
    "dropout, in_flight 3": plan(Vafl(in_flight=3), bottom=dropout()),
    "dropout, split": plan(Split(), bottom=dropout()),
    "dropout, centralised": plan(Centralised(), bottom=dropout(), training=ADAM),
    "batch normalisation": plan(Vafl(), bottom=normalised()),
    "batch normalisation, in_flight 3": plan(Vafl(in_flight=3), bottom=normalised()),
    "batch normalisation, split": plan(Split(), bottom=normalised()),
    "rough": plan(Vafl(in_flight=3, wait_for=2, max_delay=4), simulate=ROUGH),
    "rough, noise": plan(Vafl(in_flight=2, max_delay=2), simulate=ROUGH, privacy=NOISE),
    "rough, split": plan(Split(party_timeout_seconds=0.03), simulate=ROUGH, training=ADAM),
    "rough, split that waits": plan(Split(), simulate=ROUGH),
    "own columns": TinyFederation(
        tiny_data(label_party_columns=True), Vafl(in_flight=2), simulate=UNEVEN, training=ADAM
    ),
    # Directions in the air, and generators that have been drawn from.
    "cascaded, 3 in flight, Adam": plan(Cascaded(in_flight=3, directions=2), training=ADAM),
    "cascaded, rough, noise": plan(
        Cascaded(in_flight=2, max_delay=3, two_sided=True, distribution="signs"), simulate=ROUGH, privacy=NOISE
    ),
    "cascaded, stumps": plan(Cascaded(in_flight=3, smoothing_radius=0.1), bottom=stumps()),
    "cascaded, batch normalisation": plan(Cascaded(in_flight=2), bottom=normalised()),
    "zoo, rough": plan(Zoo(in_flight=3, wait_for=2, directions=2), simulate=ROUGH, training=MOMENTUM),
    "zoo-sync, rough": plan(ZooSync(party_timeout_seconds=0.03), simulate=ROUGH, training=ADAM),
    "zoo-sync, noise": plan(ZooSync(directions=2, two_sided=True), privacy=NOISE),
    # Steps of DP-SGD that are owed to the ledger when the checkpoint is taken, and uploads that need no gradient.
    "dp-sgd below, rough": plan(Vafl(in_flight=2, max_delay=3), simulate=ROUGH, privacy=DP_SGD, training=MOMENTUM),
    "dp-sgd below, split": plan(Split(), privacy=DP_SGD, bottom=dropout()),
    "dp-sgd below, czofo": plan(Czofo(in_flight=2), privacy=DP_SGD),
    "frozen below": plan(Vafl(in_flight=3, max_delay=3), privacy=FROZEN, bottom=dropout()),
    "frozen below, budget": plan(Vafl(in_flight=2), privacy=FROZEN_BUDGET),
    "czofo, rough, noise": plan(Czofo(in_flight=3, directions=2), simulate=ROUGH, privacy=NOISE, training=ADAM),
    "czofo, dropout": plan(Czofo(in_flight=3), bottom=dropout()),
    "dpzv, rough, noise": plan(
        Dpzv(in_flight=3, max_delay=4, noise=0.3, server_update="private-zo", server_noise=0.2), simulate=ROUGH
    ),
    "dpzv, dp-sgd": plan(Dpzv(in_flight=2, noise=0.3, server_update="dp-sgd", server_noise=0.2), privacy=NOISE),
    "dpzv, first-order": plan(Dpzv(wait_for=2, distribution="gaussian", server_update="first-order")),
    # Copies of models that await a verdict, and parties that go back to one.
    "validation, rough": plan(Vafl(in_flight=2, max_delay=3), data=VALIDATED, simulate=ROUGH, training=CHOOSING),
    "validation, split, noise": plan(Split(), data=VALIDATED, privacy=NOISE, training=CHOOSING),
    "validation, dpzv": plan(Dpzv(in_flight=2), data=VALIDATED, training=replace(CHOOSING, keep="best")),
    # A search that everybody has offered a point for, or has not taken yet.
    "searches, afsaga": plan(Afsaga(search_every_epochs=0.3), training=SEARCHING),
    "searches, rough, everybody": plan(
        Afsaga(search_every_epochs=0.2, updates="everybody"), simulate=ROUGH, training=SEARCHING
    ),
    "searches, rough, fsaga": plan(
        ALGORITHMS["fsaga"].settings(search_every_epochs=0.2, party_timeout_seconds=0.03),
        simulate=ROUGH,
        training=SEARCHING,
    ),
    "searches, rough, asysqn-sgd": plan(
        ALGORITHMS["asysqn-sgd"].settings(search_every_epochs=0.2, labels="everywhere", sums="pairwise"),
        simulate=ROUGH,
        training=SEARCHING,
    ),
    "validation, afsaga": plan(Afsaga(), data=VALIDATED, training=Training(2, 8, evaluate_every_epochs=0.4)),
    "validation, fsgd": plan(Fsgd(), data=VALIDATED, training=Training(2, 8, evaluate_every_epochs=0.4)),
    "validation, centralised": plan(Centralised(), data=VALIDATED, training=CHOOSING),
    # Everybody goes back to the first weights, or to a version that was kept, and takes shorter steps.
    "healing, rough": plan(Vafl(in_flight=2, max_delay=3), simulate=ROUGH, training=BOLD),
    "healing, validation": plan(Vafl(), data=VALIDATED, training=replace(BOLD, evaluate_every_epochs=0.5)),
    "healing, split": plan(Split(party_timeout_seconds=0.03), simulate=ROUGH, training=BOLD),
    "healing, centralised": plan(Centralised(), training=BOLD),
    "healing, afsgd": plan(Afsgd(step="fixed", decay=0.0, precondition="none"), data=TARGETS, training=LINEAR_BOLD),
    "healing, fsgd": plan(Fsgd(step="fixed", decay=0.0, precondition="none"), data=TARGETS, training=LINEAR_BOLD),
    "dpzv, frozen": plan(Dpzv(distribution="signs", server_update="frozen"), bottom=stumps()),
}


class Books(NamedTuple):
    """All that a run leaves behind, without wall time."""

    models: dict[str, torch.Tensor]
    metrics: list[dict[str, Any]]
    summary: dict[str, Any]
    files: dict[str, bytes]


def books(run: Path, models: dict[str, Any]) -> Books:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [{**line, "wall_seconds": 0.0} for line in lines]
    summary = {**json.loads((run / "summary.json").read_text()), "wall_seconds": 0.0}
    kept = [*sorted((run / "trace").iterdir()), *(run / name for name in ("ledger.jsonl", "timeline.jsonl"))]
    return Books(weights(models), metrics, summary, {path.name: path.read_bytes() for path in kept})


def assert_same(one: Books, other: Books) -> None:
    assert_same_bits(one.models, other.models)
    assert one.metrics == other.metrics
    assert one.summary == other.summary
    assert one.files.keys() == other.files.keys()
    assert [name for name in one.files if one.files[name] != other.files[name]] == []


@cache
def uninterrupted(name: str) -> tuple[Books, int]:
    """The whole run, and how often it could have been stopped."""
    with TemporaryDirectory() as folder:
        asked = StopAfter()
        outcome = PLANS[name].run(Path(folder) / "run", stop_requested=asked)
        assert outcome.finished
        return books(Path(folder) / "run", outcome.models), asked.asked


def run_with_stops(name: str, out: Path, stops: Iterator[int] | list[int], **how: Any) -> Books:
    """Stop after so many events each time, then go on to the end."""
    resume = False
    for events in stops:
        outcome = PLANS[name].run(out, stop_requested=StopAfter(events), resume=resume, **how)
        resume = True
        if outcome.finished:
            break
    else:
        outcome = PLANS[name].run(out, resume=True, **how)
    assert outcome.finished
    return books(out, outcome.models)


@pytest.mark.parametrize("name", PLANS)
def test_stopped_early_halfway_and_late(name: str, tmp_path: Path) -> None:
    whole, events = uninterrupted(name)
    before = 0
    for place in (1, events // 4, events // 2, events - 2):
        stopped = PLANS[name].run(tmp_path / "run", stop_requested=StopAfter(place - before), resume=before > 0)
        assert not stopped.finished
        assert stopped.summary["status"] == "stopped"
        before = place
    resumed = PLANS[name].run(tmp_path / "run", resume=True)
    assert resumed.finished
    assert_same(whole, books(tmp_path / "run", resumed.models))


@given(name=st.sampled_from(sorted(PLANS)), stops=st.lists(st.integers(0, 60), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_stopped_anywhere_and_often(name: str, stops: list[int]) -> None:
    whole, _ = uninterrupted(name)
    with TemporaryDirectory() as folder:
        assert_same(whole, run_with_stops(name, Path(folder) / "run", stops))


@pytest.mark.parametrize("name", ["in_flight 3", "rough", "noise", "dropout, centralised", "rough, split"])
def test_with_a_checkpoint_at_every_good_moment(name: str, tmp_path: Path) -> None:
    """A checkpoint changes nothing, and the newest one is what a run that was killed goes on from."""
    whole, events = uninterrupted(name)
    unbroken = PLANS[name].run(tmp_path / "unbroken", checkpoint_seconds=0.0)
    assert_same(whole, books(tmp_path / "unbroken", unbroken.models))
    assert_same(whole, run_with_stops(name, tmp_path / "stopped", [events // 3, events // 3], checkpoint_seconds=0.0))


class KilledError(Exception):
    """Stands for the end of the process between two events."""


def kill_after(events: int) -> Any:
    count = StopAfter(events)

    def stop_requested() -> bool:
        if count():
            raise KilledError
        return False

    return stop_requested


@pytest.mark.parametrize(
    "name", ["in_flight 3", "rough", "noise", "split, defaults", "zoo, rough", "dpzv, rough, noise"]
)
def test_a_killed_run_goes_on_from_its_last_checkpoint(name: str, tmp_path: Path) -> None:
    """What was recorded after that checkpoint is done again, not kept twice."""
    whole, events = uninterrupted(name)
    with pytest.raises(KilledError):
        PLANS[name].run(tmp_path / "run", stop_requested=kill_after(events - 3), checkpoint_seconds=0.0)
    resumed = PLANS[name].run(tmp_path / "run", resume=True)
    assert_same(whole, books(tmp_path / "run", resumed.models))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
@pytest.mark.parametrize("torn", ["label", "party2", "simulate"])
@pytest.mark.parametrize("name", ["in_flight 3", "noise"])
def test_a_torn_checkpoint_is_passed_over(name: str, torn: str, suffix: str, tmp_path: Path) -> None:
    whole, events = uninterrupted(name)
    stopped = PLANS[name].run(tmp_path / "run", stop_requested=StopAfter(events // 2), checkpoint_seconds=0.0)
    assert not stopped.finished
    newest = max((tmp_path / "run" / "checkpoints").glob(f"{torn}-*.{suffix}"))
    tear(newest)
    resumed = PLANS[name].run(tmp_path / "run", resume=True)
    assert_same(whole, books(tmp_path / "run", resumed.models))


def test_without_any_whole_checkpoint_the_run_says_so(tmp_path: Path) -> None:
    PLANS["in_flight 3"].run(tmp_path / "run", stop_requested=StopAfter(20))
    for path in (tmp_path / "run" / "checkpoints").glob("label-*.safetensors"):
        tear(path)
    with pytest.raises(RunError, match="no whole checkpoint"):
        PLANS["in_flight 3"].run(tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["in_flight 3", "rough", "centralised, defaults"])
def test_resuming_a_finished_run_changes_nothing(name: str, tmp_path: Path) -> None:
    whole, _ = uninterrupted(name)
    PLANS[name].run(tmp_path / "run")
    again = PLANS[name].run(tmp_path / "run", resume=True)
    assert again.finished
    assert_same(whole, books(tmp_path / "run", again.models))
