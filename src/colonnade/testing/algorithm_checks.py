"""What every algorithm owes its users, as checks that its author can run: `check_algorithm(row)`.

It learns, and reports what it did; its bytes are those of its frames; its parties are pure state machines, so that a
run replays from its trace and resumes to the same bits; a party's state is all that it must remember. Our own
algorithms are held to the same checks. What does not hold is an AssertionError that says so in words.
"""

import dataclasses
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from colonnade.algorithms import Algorithm, find, name_of
from colonnade.algorithms.training import Training
from colonnade.data.loading import dataset
from colonnade.errors import ColonnadeError
from colonnade.launch.experiment import train
from colonnade.messages import KINDS
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Event, Party, Send
from colonnade.runtimes.replay import event_of, replay
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.state import State
from colonnade.testing.tiny_federation import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.trace import Record, read_trace, record_of
from colonnade.wire.codec import decode, encode

UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "exponential", "mean": 0.004},
    parties={"label": SimulatedParty(straggle_probability=0.1)},
)
LOSSY = dataclasses.replace(UNEVEN, loss=0.2, reorder=True)
WORLDS = {"uneven": UNEVEN, "lossy": LOSSY}

SUMMARY_KEYS = {
    *("algorithm", "runtime", "seed", "exchanges", "epochs", "wall_seconds", "virtual_seconds", "bytes_up"),
    *("bytes_down", "bytes_by_message", "train_loss", "test", "staleness", "parties", "privacy", "versions"),
}


@dataclass(frozen=True)
class Candidate:
    """An algorithm to be checked: its row, which stands in the table, and how it is asked to learn."""

    row: Algorithm
    settings: Any = None  # None: the defaults, by the row's name alone
    bottom: Any = dataclasses.field(default_factory=BottomSettings)  # models to learn with
    top: Any = dataclasses.field(default_factory=TopSettings)
    epochs: float = 8  # in which it must have learnt

    def federation(self, **changes: Any) -> TinyFederation:
        settings = self.row.settings() if self.settings is None else self.settings
        return TinyFederation(tiny_data(), settings, **{"simulate": UNEVEN, **changes})

    def require(self, holds: bool, words: str) -> None:
        if not holds:
            raise AssertionError(f"{self.row.name}: {words}")


def check_algorithm(
    row: Algorithm,
    settings: Any = None,
    *,
    bottom: Any = None,
    top: Any = None,
    epochs: float = 8,
) -> None:
    """Hold one row of the table of algorithms to all checks; AssertionError for the first that fails.

    Register the row first. `settings` are those to be checked, the defaults if there are none. It must learn the data
    set "synthetic" in so many `epochs`, with the default models or those that are given.
    """
    candidate = Candidate(row, settings, bottom or BottomSettings(), top or TopSettings(), epochs)
    for check in CHECKS.values():
        with TemporaryDirectory() as folder:
            try:
                check(candidate, Path(folder))
            except ColonnadeError as error:
                raise AssertionError(f"{row.name}: {check.__name__.replace('_', ' ')}: {error}") from error


# --- the row and its settings -----------------------------------------------------------------------------------


def the_row_is_complete(candidate: Candidate, folder: Path) -> None:
    row, require = candidate.row, candidate.require
    require(find(row.name) is row, "the table has another row of this name; register this one first.")
    require(bool(row.summary), "the row has no summary; say in a line what the algorithm is.")
    settings = row.settings
    frozen = dataclasses.is_dataclass(settings) and settings.__dataclass_params__.frozen  # type: ignore[attr-defined]
    require(frozen, f"its settings, {settings.__name__}, are not a frozen dataclass.")
    for field in dataclasses.fields(settings):
        given = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        require(given, f"the setting {field.name} has no default; a user must be able to name the algorithm alone.")
    require(name_of(row.settings()) == row.name, "its settings belong to another row.")


# --- training ---------------------------------------------------------------------------------------------------


def it_learns_and_reports(candidate: Candidate, folder: Path) -> None:
    """By its name alone, with the defaults of everything that the candidate does not say."""
    require, name = candidate.require, candidate.row.name
    data = dataset("synthetic", parties=3)
    algorithm = name if candidate.settings is None else candidate.settings
    training = Training(epochs=candidate.epochs)
    outcome = train(data, algorithm, training=training, bottom=candidate.bottom, top=candidate.top)
    summary: dict[str, Any] = {**outcome.summary}
    require(outcome.finished and summary["status"] == "finished", "the training did not finish.")
    require(summary["algorithm"] == name, f"the summary names the algorithm {summary['algorithm']!r}.")
    for place, wanted in (
        (summary, SUMMARY_KEYS),
        (summary["staleness"], {"mean", "p95", "max"}),
        (summary["privacy"], {"claimed", "sound", "observed", "delta", "conditions"}),
    ):
        require(place.keys() >= wanted, f"the summary lacks {', '.join(sorted(wanted - place.keys()))}.")
    require(summary["epochs"] >= candidate.epochs, f"it ended after {summary['epochs']} epochs.")
    for party, own in summary["parties"].items():
        wanted = {"exchanges", "steps", "busy_seconds", "idle_seconds"}
        require(own.keys() >= wanted, f"the counts of {party} lack {', '.join(sorted(wanted - own.keys()))}.")
        spent = own["busy_seconds"] + own["idle_seconds"]
        fits = math.isclose(spent, summary["virtual_seconds"], rel_tol=1e-6)
        require(fits, f"{party} was busy and idle {spent} s of {summary['virtual_seconds']}.")
    require(json.loads(json.dumps(summary)) == summary, "the summary does not survive JSON; give plain values.")

    _foretells_its_end(candidate, outcome.metrics)
    losses = [line["loss"] for line in outcome.metrics if line["loss"] is not None]
    # A quick learner is past chance, ln 2, before its first observation.
    learnt = bool(losses) and losses[-1] < 0.7 * max(losses[0], math.log(2))
    require(learnt, f"the loss did not fall: it was {losses[0] if losses else None}, then {losses[-1:]}.")
    told = summary["test"]["accuracy"]
    require(told > 0.8, f"after {candidate.epochs:g} epochs the accuracy is {told}; it must be above 0.8.")
    predicted = outcome.outputs({party: own.test for party, own in data.columns.items()})[:, 0] > 0
    accuracy = float((predicted == data.labels.test).double().mean())
    require(abs(accuracy - told) <= 0.005, f"the models predict with accuracy {accuracy}; the summary says {told}.")


def _foretells_its_end(candidate: Candidate, metrics: list[dict[str, Any]]) -> None:
    """Progress is told by epochs: from half of the way on they foretell how many exchanges there will be."""
    require, epochs = candidate.require, [line["epoch"] for line in metrics]
    rises = all(before <= after for before, after in pairwise(epochs))
    require(rises, "the epochs of its lines of metrics fall.")
    end = metrics[-1]["exchange"]
    for line in metrics:
        if line["epoch"] >= candidate.epochs / 2:
            foretold = max(line["exchange"], line["exchange"] * candidate.epochs / line["epoch"])
            fits = math.isclose(foretold, end, rel_tol=0.25)  # a full pass may be still to come
            require(fits, f"at epoch {line['epoch']:g} it foretells {foretold:.0f} exchanges; there were {end}.")


def evaluation_costs_neither_time_nor_training_bytes(candidate: Candidate, folder: Path) -> None:
    require = candidate.require
    for world, simulate in WORLDS.items():
        # So many epochs that the exchanges' numbers need another byte.
        given = candidate.federation(simulate=simulate).training_with(epochs=12)
        often = given.training_with(evaluate_every_epochs=0.5).run(folder / world / "often", trace=False)
        once = given.training_with(evaluate_every_epochs=0.0).run(folder / world / "once", trace=False)
        evaluated = [sum(bool(line["metric"]) for line in run.metrics) for run in (often, once)]
        require(
            evaluated[0] > evaluated[1] == 1, f"it was evaluated {evaluated[0]} and {evaluated[1]} times, not ≥ 2, 1."
        )
        keys = ("virtual_seconds", "bytes_up", "bytes_down", "retransmitted_bytes", "exchanges", "staleness", "parties")
        many: dict[str, Any] = {**often.summary}
        one: dict[str, Any] = {**once.summary}
        for key in keys:
            require(many[key] == one[key], f"evaluations change {key}: {many[key]} with many, {one[key]} with one.")
        if len(given.parties()) > 1:
            paid = often.summary["evaluation_bytes"] > once.summary["evaluation_bytes"] > 0
            require(paid, "evaluations cross without being counted as such; their messages must be off the clock.")
        _same_models(candidate, often.models, once.models, "evaluations change the models")


# --- what crosses -----------------------------------------------------------------------------------------------


def bytes_are_the_lengths_of_the_frames_that_were_sent(candidate: Candidate, folder: Path) -> None:
    require = candidate.require
    given = candidate.federation()
    summary = given.run(folder / "run").summary
    up = down = evaluation = 0
    by_message: Counter[str] = Counter()
    crossed: dict[str, Counter[bytes]] = {"Send": Counter(), "Received": Counter()}
    names = list(given.parties())
    for name in names:
        for record in _read(folder / "run", name):
            if record.type not in crossed:
                continue
            frame = record.fields[-1]
            crossed[record.type][frame] += 1
            message = decode(bytearray(frame))
            kind = type(message).__name__
            require(KINDS[kind].message is type(message), f"{kind} is not the message declared under its name.")
            require(encode(message) == frame, f"a {kind} is another frame when it is encoded again.")
            if record.type == "Send":
                by_message[kind] += len(frame)
                if message.off_clock:
                    evaluation += len(frame)
                elif name == given.data.label_party:
                    down += len(frame)
                else:
                    up += len(frame)
    told = (summary["bytes_up"], summary["bytes_down"], summary["evaluation_bytes"])
    require(
        told == (up, down, evaluation), f"frames of {(up, down, evaluation)} bytes were sent; the summary has {told}."
    )
    require(summary["bytes_by_message"] == dict(by_message), "bytes_by_message are not those of the frames.")
    # What was sent arrived, once, unchanged; but what arrives after the end is not given to anybody.
    require(crossed["Received"] <= crossed["Send"], "a frame arrived that was not sent, or twice.")
    if len(names) > 1:
        require(min(up, down, evaluation) > 0, "nothing crossed in one direction, or in evaluations.")


# --- purity -----------------------------------------------------------------------------------------------------


def handling_events_neither_reads_nor_moves_global_randomness(candidate: Candidate, folder: Path) -> None:
    dropout = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    given = candidate.federation(bottom=dropout)
    outcome = given.run(folder / "run")
    parties = given.parties()
    torch.rand(3)
    before = _global_randomness()
    for name, party in parties.items():
        replay(party, folder / "run" / "trace" / f"{name}.trace")
    candidate.require(_global_randomness() == before, "a party draws from a global generator.")
    _same_models(candidate, outcome.models, _models(parties), "a party's models depend on a global generator")


def replay_needs_no_clock_and_gives_the_same_bits(candidate: Candidate, folder: Path) -> None:
    clocks = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")

    def no_clock() -> float:
        raise AssertionError(f"{candidate.row.name}: a party looked at the clock; the time comes with the event.")

    for world, simulate in WORLDS.items():
        given = candidate.federation(simulate=simulate)
        outcome = given.run(folder / world)
        parties = given.parties()
        with ExitStack() as patched:
            for clock in clocks:
                patched.enter_context(patch.object(time, clock, no_clock))
            events = {name: replay(one, folder / world / "trace" / f"{name}.trace") for name, one in parties.items()}
        for name, number in events.items():
            candidate.require(number > 0, f"{name} was given no event.")
        _same_models(candidate, outcome.models, _models(parties), "a replay gives other models")


def a_party_restored_from_its_state_is_that_party(candidate: Candidate, folder: Path) -> None:
    """Halfway through a run; and a state, once taken, does not change with its party."""
    require = candidate.require
    given = candidate.federation()
    given.run(folder / "run")
    for name, party in given.parties().items():
        events = [event_of(record) for record in _read(folder / "run", name) if record.is_event]
        half = len(events) // 2
        _effects_of(party, events[:half])
        state = party.state()
        saved = deepcopy(state)
        effects = _effects_of(party, events[half:])
        require(_same_state(state, saved), f"a state of {name} changed after it was taken; return copies.")
        plain = json.loads(json.dumps(state.values)) == state.values
        require(plain, f"the state's values of {name} do not survive JSON; give plain values, and tensors as tensors.")
        require(not _same_state(party.state(), saved), f"{name} has the same state after half a training.")
        other = given.parties()[name]
        other.restore(State(dict(saved.tensors), json.loads(json.dumps(saved.values))))
        require(_same_state(other.state(), saved), f"{name} has another state than the one it was restored from.")
        same = _effects_of(other, events[half:]) == effects
        require(same, f"{name}, restored, returns other effects: its state lacks something that it must remember.")
        _same_models(
            candidate, _models({name: party}), _models({name: other}), f"{name}, restored, trains other models"
        )
        require(party.counts() == other.counts(), f"{name}, restored, counts differently.")


def a_model_that_was_handed_out_is_a_copy(candidate: Candidate, folder: Path) -> None:
    for name, party in candidate.federation().parties().items():
        before = deepcopy(_models({name: party}))
        with torch.no_grad():
            for module in party.model().values():
                for parameter in module.parameters():
                    parameter.add_(1.0)
        _same_models(candidate, before, _models({name: party}), "who changes a handed out model changes its party")


# --- stop and resume --------------------------------------------------------------------------------------------


def a_stopped_run_resumes_to_the_same_bits(candidate: Candidate, folder: Path) -> None:
    given = candidate.federation(simulate=LOSSY)
    whole = given.run(folder / "whole")
    for events in (0, 7, 25):
        own = folder / f"after {events}"
        stopped = given.run(own, stop_requested=StopAfter(events))
        resumed = given.run(own, resume=True) if not stopped.finished else stopped
        when = f"stopped after {events} events and resumed"
        _same_models(candidate, whole.models, resumed.models, f"{when}, it has other models")
        same = {**resumed.summary, "wall_seconds": 0} == {**whole.summary, "wall_seconds": 0}
        candidate.require(same, f"{when}, it has another summary.")
        traces = _traces(own) == _traces(folder / "whole")
        candidate.require(traces, f"{when}, its parties saw or did something else.")


def a_finished_run_goes_on_with_more_epochs(candidate: Candidate, folder: Path) -> None:
    """Also when it is stopped meanwhile, and where frames are lost: counts go on, and the models learn on."""
    require, row = candidate.require, candidate.row
    short, longer = candidate.federation(), candidate.federation().training_with(epochs=4)
    for own in ("whole", "stopped"):
        short.run(folder / own, trace=False)
    before = json.loads((folder / "whole" / "metrics.jsonl").read_text().splitlines()[-1])
    whole = longer.run(folder / "whole", trace=False, resume=True)
    require(whole.finished and whole.summary["epochs"] >= 4, "a finished run does not go on to the epochs asked for.")
    require(whole.metrics[-1]["step"] > before["step"], "a run that goes on after its end counts its steps anew.")
    stopped = longer.run(folder / "stopped", trace=False, resume=True, stop_requested=StopAfter(7))
    require(not stopped.finished, "seven events after its end a run has finished twice as many epochs.")
    resumed = longer.run(folder / "stopped", trace=False, resume=True)
    _same_models(candidate, whole.models, resumed.models, "stopped after its end and resumed, it has other models")
    lossy = candidate.federation(simulate=LOSSY)
    lossy.run(folder / "lossy", trace=False)
    again = lossy.training_with(epochs=3).run(folder / "lossy", trace=False, resume=True)
    require(
        again.finished and again.summary["epochs"] >= 3, f"{row.name} does not go on after its end over a bad link."
    )


Check = Callable[[Candidate, Path], None]

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        the_row_is_complete,
        it_learns_and_reports,
        evaluation_costs_neither_time_nor_training_bytes,
        bytes_are_the_lengths_of_the_frames_that_were_sent,
        handling_events_neither_reads_nor_moves_global_randomness,
        replay_needs_no_clock_and_gives_the_same_bits,
        a_party_restored_from_its_state_is_that_party,
        a_model_that_was_handed_out_is_a_copy,
        a_stopped_run_resumes_to_the_same_bits,
        a_finished_run_goes_on_with_more_epochs,
    )
}
"""All of them by name, the cheap and telling ones first; each is given a candidate and an empty folder."""


def _read(run: Path, name: str) -> list[Record]:
    return list(read_trace(run / "trace" / f"{name}.trace"))


def _traces(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "trace").iterdir()}


def _models(parties: dict[str, Party]) -> dict[str, dict[str, torch.nn.Module]]:
    return {name: party.model() for name, party in parties.items()}


def _same_models(candidate: Candidate, one: Any, other: Any, otherwise: str) -> None:
    try:
        assert_same_bits(weights(one), weights(other))
    except AssertionError as error:
        raise AssertionError(f"{candidate.row.name}: {otherwise}. {error}") from None


def _effects_of(party: Party, events: list[Event]) -> list[Record]:
    return [
        record_of(effect, encode(effect.message) if isinstance(effect, Send) else None)
        for event in events
        for effect in party.handle(event)
    ]


def _same_state(one: State, other: State) -> bool:
    same_names = one.tensors.keys() == other.tensors.keys() and one.values == other.values
    return same_names and all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def _global_randomness() -> tuple[Any, ...]:
    return (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state()))
