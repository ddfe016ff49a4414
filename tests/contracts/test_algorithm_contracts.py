"""What every algorithm owes its users: one row in the table of algorithms buys all of these tests."""

import dataclasses
import inspect
import json
import math
import random
import re
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import Plan, StopAfter, assert_same_bits, read_run, tiny_data, weights

from colonnade import BottomSettings, Simulate, SimulatedParty, TopSettings, Training, dataset, train
from colonnade.algorithms import ALGORITHMS, Algorithm, find, name_of
from colonnade.messages import KINDS
from colonnade.party import Event, Party, Send
from colonnade.runtimes.replay import event_of, replay
from colonnade.state import State
from colonnade.trace import read_trace, record_of
from colonnade.wire.codec import decode, encode

pytestmark = pytest.mark.parametrize("row", ALGORITHMS.values(), ids=list(ALGORITHMS))

DATA = tiny_data()
UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "exponential", "mean": 0.004},
    parties={"label": SimulatedParty(straggle_probability=0.1)},
)
LOSSY = dataclasses.replace(UNEVEN, loss=0.2, reorder=True)


def plan(row: Algorithm, **changes: Any) -> Plan:
    return Plan(DATA, row.settings(), **{"simulate": UNEVEN, **changes})


# --- the row and its settings -----------------------------------------------------------------------------------


def test_the_row_is_complete(row: Algorithm) -> None:
    assert find(row.name) is row
    assert name_of(row.settings()) == row.name
    assert row.summary
    roles = (row.label_party, row.feature_party)
    assert all(roles) or not any(roles)
    assert sum((all(roles), row.alone is not None, row.linear_party is not None)) == 1
    assert (row.bottom is None) == (row.top is None)


def test_settings_are_frozen_and_every_default_is_explained(row: Algorithm) -> None:
    settings = row.settings
    assert dataclasses.is_dataclass(settings) and settings.__dataclass_params__.frozen
    assert settings.__doc__ and f'name = "{row.name}"' in settings.__doc__
    source = "".join(inspect.getsource(cls) for cls in settings.__mro__[:-1])
    for field in dataclasses.fields(settings):
        given = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        assert given, f"{field.name} has no default"
        assert re.search(rf"^    {field.name}: .*  # \S", source, re.MULTILINE), f"{field.name} has no comment"


# --- training ---------------------------------------------------------------------------------------------------

SUMMARY_KEYS = {
    *("algorithm", "runtime", "seed", "exchanges", "epochs", "wall_seconds", "virtual_seconds", "bytes_up"),
    *("bytes_down", "bytes_by_message", "train_loss", "test", "staleness", "parties", "privacy", "versions"),
}


# The noise of a zeroth-order estimate grows with the number of weights. On both sides of the default networks it needs
# other learning rates and many more epochs; logistic regression needs nothing but its own default settings.
LINEAR: dict[str, Any] = {"bottom": BottomSettings("linear"), "top": TopSettings("sum")}
MODELS = {"zoo": LINEAR, "zoo-sync": LINEAR, "dpzv": LINEAR}


def test_it_learns_and_reports(row: Algorithm) -> None:
    """By its name alone, with the defaults of everything but the epochs (and see MODELS)."""
    data = dataset("synthetic", parties=3)
    outcome = train(data, row.name, training=Training(epochs=8), **MODELS.get(row.name, {}))
    summary = outcome.summary
    assert outcome.finished
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["algorithm"] == row.name
    assert summary["status"] == "finished"
    assert summary["staleness"].keys() >= {"mean", "p95", "max"}
    assert summary["privacy"].keys() >= {"claimed", "sound", "observed", "delta", "conditions"}
    assert summary["epochs"] >= 8
    for own in summary["parties"].values():
        assert own.keys() >= {"exchanges", "steps", "busy_seconds", "idle_seconds"}
        assert own["busy_seconds"] + own["idle_seconds"] == pytest.approx(summary["virtual_seconds"])
    assert json.loads(json.dumps(summary)) == summary

    losses = [line["loss"] for line in outcome.metrics if line["loss"] is not None]
    # A quick learner is past chance, ln 2, before its first observation.
    assert losses[-1] < 0.7 * max(losses[0], math.log(2))
    assert summary["test"]["accuracy"] > 0.8
    predicted = outcome.outputs({name: own.test for name, own in data.columns.items()})[:, 0] > 0
    accuracy = float((predicted == data.labels.test).double().mean())
    assert accuracy == pytest.approx(summary["test"]["accuracy"], abs=0.005)


@pytest.mark.parametrize("world", [UNEVEN, LOSSY], ids=["uneven", "lossy"])
def test_evaluation_costs_neither_time_nor_training_bytes(row: Algorithm, world: Simulate, tmp_path: Path) -> None:
    given = plan(row, simulate=world).training_with(epochs=12)  # so many sums that their numbers need another byte
    often = given.training_with(evaluate_every_epochs=0.5).run(tmp_path / "often")
    once = given.training_with(evaluate_every_epochs=0.0).run(tmp_path / "once")
    assert sum(bool(line["metric"]) for line in often.metrics) > sum(bool(line["metric"]) for line in once.metrics) == 1
    for key in ("virtual_seconds", "bytes_up", "bytes_down", "retransmitted_bytes", "exchanges", "staleness"):
        assert often.summary[key] == once.summary[key]
    for name, own in often.summary["parties"].items():
        assert own == once.summary["parties"][name]
    if len(given.parties()) > 1:
        assert often.summary["evaluation_bytes"] > once.summary["evaluation_bytes"] > 0
    assert_same_bits(weights(often.models), weights(once.models))


# --- what crosses -----------------------------------------------------------------------------------------------


def test_bytes_are_the_lengths_of_the_frames_that_were_sent(row: Algorithm, tmp_path: Path) -> None:
    given = plan(row)
    summary = given.run(tmp_path / "run").summary
    up = down = evaluation = 0
    by_message: Counter[str] = Counter()
    crossed: dict[str, Counter[bytes]] = {"Send": Counter(), "Received": Counter()}
    for name in given.names if row.alone is None else ["label"]:
        for record in read_trace(tmp_path / "run" / "trace" / f"{name}.trace"):
            if record.type not in crossed:
                continue
            frame = record.fields[-1]
            crossed[record.type][frame] += 1
            message = decode(bytearray(frame))
            assert KINDS[type(message).__name__].message is type(message)
            assert encode(message) == frame
            if record.type == "Send":
                by_message[type(message).__name__] += len(frame)
                if message.off_clock:
                    evaluation += len(frame)
                elif name == "label":
                    down += len(frame)
                else:
                    up += len(frame)
    assert (summary["bytes_up"], summary["bytes_down"], summary["evaluation_bytes"]) == (up, down, evaluation)
    assert summary["bytes_by_message"] == dict(by_message)
    # What was sent arrived, once, unchanged; but what arrives after the end is not given to anybody.
    assert crossed["Received"] <= crossed["Send"]
    if row.alone is None:
        assert min(up, down, evaluation) > 0


# --- purity -----------------------------------------------------------------------------------------------------


def global_randomness() -> tuple[Any, ...]:
    return (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state()))


def test_handling_events_neither_reads_nor_moves_global_randomness(row: Algorithm, tmp_path: Path) -> None:
    dropout = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    given = plan(row, bottom=dropout)
    outcome = given.run(tmp_path / "run")
    parties = given.parties()
    torch.rand(3)
    before = global_randomness()
    for name, party in parties.items():
        replay(party, tmp_path / "run" / "trace" / f"{name}.trace")
    assert global_randomness() == before
    assert_same_bits(weights(outcome.models), weights({name: own.model() for name, own in parties.items()}))


@pytest.mark.parametrize("world", [UNEVEN, LOSSY], ids=["uneven", "lossy"])
def test_replay_needs_no_clock_and_gives_the_same_bits(
    row: Algorithm, world: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = plan(row, simulate=world)
    outcome = given.run(tmp_path / "run")
    parties = given.parties()

    def no_clock() -> float:
        raise AssertionError("a party looked at the clock")

    for clock in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
        monkeypatch.setattr(time, clock, no_clock)
    try:
        for name, party in parties.items():
            assert replay(party, tmp_path / "run" / "trace" / f"{name}.trace") > 0
    finally:
        monkeypatch.undo()
    assert_same_bits(weights(outcome.models), weights({name: own.model() for name, own in parties.items()}))


def effects_of(party: Party, events: list[Event]) -> list[Any]:
    return [
        record_of(effect, encode(effect.message) if isinstance(effect, Send) else None)
        for event in events
        for effect in party.handle(event)
    ]


def same_state(one: State, other: State) -> bool:
    tensors = one.tensors.keys() == other.tensors.keys()
    return (
        tensors
        and one.values == other.values
        and all(torch.equal(one.tensors[k], other.tensors[k]) for k in one.tensors)
    )


def test_a_party_restored_from_its_state_is_that_party(row: Algorithm, tmp_path: Path) -> None:
    """Halfway through a run; and a state, once taken, does not change with its party."""
    given = plan(row)
    given.run(tmp_path / "run")
    for name, party in given.parties().items():
        path = tmp_path / "run" / "trace" / f"{name}.trace"
        events = [event_of(record) for record in read_trace(path) if record.is_event]
        half = len(events) // 2
        effects_of(party, events[:half])
        state = party.state()
        saved = deepcopy(state)
        effects = effects_of(party, events[half:])
        assert same_state(state, saved)
        assert json.loads(json.dumps(state.values)) == state.values
        assert not same_state(party.state(), saved)
        other = given.parties()[name]
        other.restore(State(dict(saved.tensors), json.loads(json.dumps(saved.values))))
        assert same_state(other.state(), saved)
        assert effects_of(other, events[half:]) == effects
        assert_same_bits(weights({name: party.model()}), weights({name: other.model()}))
        assert party.counts() == other.counts()


def test_a_model_that_was_handed_out_is_a_copy(row: Algorithm) -> None:
    for party in plan(row).parties().values():
        before = weights({"party": party.model()})
        for module in party.model().values():
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.add_(1.0)
        assert_same_bits(before, weights({"party": party.model()}))


# --- stop and resume --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 7, 25])
def test_a_stopped_run_resumes_to_the_same_bits(row: Algorithm, events: int, tmp_path: Path) -> None:
    given = plan(row, simulate=LOSSY)
    whole = given.run(tmp_path / "whole")
    stopped = given.run(tmp_path / "run", stop_requested=StopAfter(events))
    resumed = given.run(tmp_path / "run", resume=True) if not stopped.finished else stopped
    assert_same_bits(weights(whole.models), weights(resumed.models))
    assert {**resumed.summary, "wall_seconds": 0} == {**whole.summary, "wall_seconds": 0}
    assert read_traces(tmp_path / "run") == read_traces(tmp_path / "whole")


def read_traces(run: Path) -> dict[str, bytes]:
    assert read_run(run)
    return {path.name: path.read_bytes() for path in (run / "trace").iterdir()}
