"""Honest parties and one that does whatever it likes: the honest ones end, with the right model, within their bounds.

Real algorithms on tiny data, over the fake carrier. The hostile party connects, greets or does not, sends messages of
every kind and bytes of none, repeats, skips, acknowledges what it likes, falls silent, says that it is done; honest
parties are killed meanwhile. COLONNADE_HOSTILE_EXAMPLES tries as many mixtures as it says.
"""

import os
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from peer import Mole

from colonnade import BottomSettings, PerturbationSettings, Split, TopSettings, Vafl, from_arrays
from colonnade.algorithms.training import DecidedTraining
from colonnade.federation.building import build_party, facts_of, private_data_of
from colonnade.federation.plan import Facts, Plan
from colonnade.messages import (
    BatchRequest,
    BudgetSpent,
    EmbeddingUpload,
    EvaluationEmbedding,
    Message,
    RefreshedEmbedding,
    Stop,
    WarmUpUpload,
)
from colonnade.party import Party
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.replay import replay
from colonnade.testing import FakeCarrier, weights
from colonnade.trace import read_trace

EXAMPLES = int(os.environ.get("COLONNADE_HOSTILE_EXAMPLES", "12"))
HONEST = ("label", "party1", "party2")
HOSTILE = "party3"
ALGORITHMS: dict[str, Any] = {"split": Split(party_timeout_seconds=0.5), "vafl": Vafl()}
ENDURANCE = Endurance(
    notice_seconds=1.0,
    arrival_seconds=5.0,
    silent_seconds=4.0,
    checkpoint_seconds=1.0,
    waiting_frames=16,
    waiting_bytes=20_000,
)
MOST_DISK_BYTES = 2_000_000
SECONDS_TO_END = 600


@cache
def data() -> Any:
    """24 training rows and 8 test rows of six columns, two a party."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 6))
    y = (X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) > 0).astype(int)
    return from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=3, task="binary", standardise=False)


@cache
def agreed(name: str) -> tuple[Plan, Facts]:
    models = {"bottom": BottomSettings("linear", embedding=2), "top": TopSettings("concat-linear")}
    training = DecidedTraining(epochs=2, batch_size=8, observe_every_epochs=0.5)
    plan = Plan(ALGORITHMS[name], training, PerturbationSettings(), **models, seed=0)  # type: ignore[arg-type]
    return plan, facts_of(data(), plan)


def build(name: str, party: str) -> Party:
    plan, facts = agreed(name)
    return build_party(private_data_of(data(), party, plan), facts, plan)


def town_of(name: str, directory: Path) -> tuple[FakeCarrier, Mole]:
    """The label party begins without the hostile one, who may come or not."""
    names = [*HONEST, HOSTILE]
    town = FakeCarrier(
        directory, names, lambda party: build(name, party), endurance=ENDURANCE, without=[HOSTILE], trace=True
    )
    return town, Mole(town, HOSTILE)


def end(town: FakeCarrier) -> None:
    """Until every honest party has finished and has what the label party sent."""
    for _ in range(SECONDS_TO_END * 20):
        for name in HONEST:
            if name not in town.stations:
                town.revive(name)
        town.join_all()
        town.go_on()
        town.clock.tick(0.05)
        if all(town.stations[name].finished for name in HONEST):
            return
    raise AssertionError(f"the training does not end; refused: {town.refusals[-3:]}")


def models_of(town: FakeCarrier) -> dict[str, torch.Tensor]:
    return weights({name: town.stations[name].party.model() for name in HONEST})


@cache
def without_the_hostile_one(name: str) -> dict[str, torch.Tensor]:
    with TemporaryDirectory() as folder:
        town, _ = town_of(name, Path(folder))
        end(town)
        town.close()
        return models_of(town)


def numbers(rows: int, value: float, width: int = 2) -> Any:
    return np.full((rows, width), value, np.float32)


some_rows = st.sampled_from([(0, 1, 2, 3, 4, 5, 6, 7), (0,) * 8, (1, 2), (23,) * 8, (10**6,), ()])
values = st.sampled_from([0.0, 1.0, 1e6, 3e38])
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        lambda number, rows, value, width: EmbeddingUpload(
            number, np.array(rows, np.uint32), numbers(len(rows), value, width)
        ),
        st.integers(0, 9),
        some_rows,
        values,
        st.sampled_from([2, 2, 2, 0, 3]),
    ),
    st.builds(
        lambda rows, value: WarmUpUpload(np.array(rows, np.uint32), numbers(len(rows), value)), some_rows, values
    ),
    st.builds(
        lambda request, rows, value: RefreshedEmbedding(request, np.array(rows, np.uint32), numbers(len(rows), value)),
        st.integers(0, 3),
        some_rows,
        values,
    ),
    st.builds(
        lambda number, first, rows, value: EvaluationEmbedding(number, first, numbers(rows, value)),
        st.integers(0, 3),
        st.sampled_from([0, 4, 10**9]),
        st.sampled_from([0, 4, 8]),
        values,
    ),
    st.builds(lambda step: BatchRequest(step, np.zeros(8, np.uint32)), st.integers(0, 3)),
    st.builds(BudgetSpent, st.sampled_from(["columns", "labels", "\x1b[2J\n"])),
    st.just(Stop("because")),
)


class AnyMixture(RuleBasedStateMachine):
    @initialize(algorithm=st.sampled_from(sorted(ALGORITHMS)))
    def begin(self, algorithm: str) -> None:
        self.folder = TemporaryDirectory()
        self.algorithm = algorithm
        self.town, self.mole = town_of(algorithm, Path(self.folder.name))
        self.town.join_all()
        self.connected = False

    def after(self, went: bool) -> None:
        """What a connection that the label party refuses leads to."""
        self.connected = self.connected and went

    # --- what the hostile one does ---

    @rule(resumes=st.booleans(), held=st.sampled_from([None, 0, 10**9]))
    def connects(self, resumes: bool, held: int | None) -> None:
        refusals = len(self.mole.refused)
        self.mole.connect(resumes=False)
        if resumes and HOSTILE not in self.town.stations["label"].expelled:
            self.mole.part()
            self.mole.connect(held=held)
        self.connected = len(self.mole.refused) == refusals

    @precondition(lambda self: self.connected)
    @rule()
    def goes(self) -> None:
        self.mole.part()
        self.connected = False

    @precondition(lambda self: self.connected)
    @rule(message=messages, times=st.sampled_from([1, 1, 1, 5, 40]))
    def sends(self, message: Message, times: int) -> None:
        for _ in range(times):
            if self.connected and self.town.stations["label"].wants_more(HOSTILE):
                self.after(self.mole.send(message))

    @precondition(lambda self: self.connected)
    @rule(data=st.binary(max_size=80))
    def sends_no_message(self, data: bytes) -> None:
        self.after(self.mole.frame(data))

    @precondition(lambda self: self.connected)
    @rule(data=st.binary(max_size=80))
    def sends_no_packet(self, data: bytes) -> None:
        self.after(self.mole.raw(data))

    @precondition(lambda self: self.connected)
    @rule(number=st.sampled_from([1, 2, 7, 10**9]), message=messages)
    def repeats_or_skips(self, number: int, message: Message) -> None:
        self.after(self.mole.send(message, number=number))

    @precondition(lambda self: self.connected)
    @rule(number=st.sampled_from([0, 1, 10**9]), times=st.sampled_from([1, 200]))
    def acknowledges(self, number: int, times: int) -> None:
        for _ in range(times):
            if self.connected:
                self.after(self.mole.acknowledge(number))

    @precondition(lambda self: self.connected)
    @rule()
    def says_that_it_is_done(self) -> None:
        self.after(self.mole.done())

    # --- what happens besides ---

    @rule(steps=st.integers(1, 30), seconds=st.sampled_from([0.01, 0.3]))
    def time_passes(self, steps: int, seconds: float) -> None:
        for _ in range(steps):
            self.town.join_all()
            self.town.go_on()
            self.town.clock.tick(seconds)
        station = self.town.stations["label"]
        held = station.links[HOSTILE]
        assert held.kept_frames < 10 * ENDURANCE.waiting_frames
        assert station.queue_depth() < 4 * ENDURANCE.waiting_frames

    @rule(name=st.sampled_from(HONEST), torn=st.sampled_from([0.0, 0.5, 1.0]))
    def an_honest_party_dies(self, name: str, torn: float) -> None:
        self.town.kill(name, torn)
        self.town.revive(name)
        self.connected = self.connected and name != "label"

    # --- and how it must end ---

    def teardown(self) -> None:
        if not hasattr(self, "town"):
            return
        end(self.town)
        models = models_of(self.town)
        self.town.close()
        directory = Path(self.folder.name)
        kept = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and "trace" not in path.parts)
        assert kept < MOST_DISK_BYTES
        assert {(name, peer) for name, peer, _ in self.town.refusals} <= {("label", HOSTILE)}
        for name in HONEST:
            again = build(self.algorithm, name)
            replay(again, directory / "trace" / f"{name}.trace")
            for key, tensor in weights({name: again.model()}).items():
                assert torch.equal(models[key], tensor), key
        events = read_trace(directory / "trace" / "label.trace")
        heard = any(one.type == "Received" and one.fields[1] == HOSTILE for one in events)
        if not heard and self.algorithm == "split":  # nothing of it was taken, so nothing of it is in the model
            for key, tensor in without_the_hostile_one("split").items():
                assert torch.equal(models[key], tensor), key
        self.folder.cleanup()


AnyMixture.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
test_any_mixture = AnyMixture.TestCase


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_who_is_connected_and_silent_holds_nobody_up(algorithm: str, tmp_path: Path) -> None:
    town, mole = town_of(algorithm, tmp_path)
    with closing(town):
        mole.connect()
        end(town)
        models, others = models_of(town), without_the_hostile_one(algorithm)
        assert [key for key in models if not torch.equal(models[key], others[key])] == []
        assert not town.refusals
