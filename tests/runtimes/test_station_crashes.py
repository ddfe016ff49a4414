"""Whatever dies, breaks or tears, and whenever: the training ends, and its history is one that could have been.

Real algorithms on tiny data. A party is killed between any two of its steps or in the middle of a turn, its journal
torn in what it had not acted upon, its newest checkpoint damaged, connections cut with bytes on their way.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade import (
    BottomSettings,
    PerturbationSettings,
    Split,
    TopSettings,
    Vafl,
    algorithms,
    from_arrays,
    train,
)
from colonnade.algorithms.linear_models.afsaga import Afsaga
from colonnade.algorithms.training import DecidedTraining
from colonnade.federation.building import build_party, facts_of, private_data_of
from colonnade.federation.plan import Facts, Plan
from colonnade.messages import EmbeddingUpload, GradientReply
from colonnade.party import Party
from colonnade.runtimes import checkpoint
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.replay import event_of, replay
from colonnade.testing import FakeCarrier, KilledError
from colonnade.trace import Record, read_trace
from colonnade.wire.codec import decode

NAMES = ("label", "party1", "party2")
TRAINING = DecidedTraining(epochs=2, batch_size=8, observe_every_epochs=0.5)
NOISE = PerturbationSettings(noise=0.3, clip=1.0)
PLANS: dict[str, tuple[Any, PerturbationSettings]] = {
    "split": (Split(), PerturbationSettings()),
    "split, noise": (Split(), NOISE),
    "vafl": (Vafl(), PerturbationSettings()),
    "vafl, noise": (Vafl(in_flight=3, max_delay=4, wait_for=2), NOISE),
    "afsaga": (Afsaga(), PerturbationSettings()),
}


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Processes die here, not machines: what the operating system has is safe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@cache
def tiny_data() -> Any:
    """24 training rows and 8 test rows of four columns, two a party."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 4))
    y = (X @ np.array([1.0, -1.0, 0.5, 1.5]) > 0).astype(int)
    return from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=2, task="binary", standardise=False)


def models_for(name: str) -> dict[str, Any]:
    if algorithms.find(algorithms.name_of(PLANS[name][0])).linear_party is not None:
        return {"bottom": BottomSettings(), "top": TopSettings()}
    return {"bottom": BottomSettings("linear", embedding=2), "top": TopSettings("concat-linear")}


@cache
def agreed(name: str) -> tuple[Plan, Facts]:
    algorithm, privacy = PLANS[name]
    plan = Plan(algorithm, TRAINING, privacy, **models_for(name), seed=0)
    return plan, facts_of(tiny_data(), plan)


def build(name: str, party: str) -> Party:
    """A party as it is before its first event."""
    plan, facts = agreed(name)
    return build_party(private_data_of(tiny_data(), party, plan), facts, plan)


@cache
def undisturbed(name: str) -> dict[str, torch.Tensor]:
    """Every weight after the same training in which nobody died: in virtual time, where that draws the same noise.

    (There an evaluation, which draws noise too, is off the clock and may come before the reply that was sent sooner.)
    """
    algorithm, privacy = PLANS[name]
    if privacy == PerturbationSettings():
        return weights(train(tiny_data(), algorithm, training=TRAINING, **models_for(name)).models)
    with TemporaryDirectory() as folder:
        town = town_of(name, Path(folder))
        town.finish()
        town.close()
        return weights({party: station.party.model() for party, station in town.stations.items()})


def weights(models: Any) -> dict[str, torch.Tensor]:
    return {
        f"{party} {model} {key}": tensor
        for party, own in models.items()
        for model, module in own.items()
        for key, tensor in module.state_dict().items()
    }


def town_of(plan: str, directory: Path, checkpoint_seconds: float = 1e9) -> FakeCarrier:
    peers = algorithms.find(algorithms.name_of(PLANS[plan][0])).linear_party is not None
    links = [(one, other) for one, other in permutations(NAMES, 2) if NAMES.index(one) < NAMES.index(other)]
    return FakeCarrier(
        directory,
        NAMES,
        lambda name: build(plan, name),
        links if peers else None,
        Endurance(notice_seconds=1.0, arrival_seconds=5.0, checkpoint_seconds=checkpoint_seconds),
    )


# --- what must hold at the end ----------------------------------------------------------------------------------


def assert_sound(town: FakeCarrier, plan: str) -> None:
    """The surviving history is one of a federation in which nobody ever died."""
    assert town.refusals == []
    assert all(station.finished for station in town.stations.values())
    final = weights({name: station.party.model() for name, station in town.stations.items()})
    ledgers = {name: station._ledger.summary() for name, station in town.stations.items()}
    released = {name: sum(kind["releases"] for kind in own) for name, own in ledgers.items()}
    town.close()
    traces = {name: [*read_trace(town.directory / "trace" / f"{name}.trace")] for name in NAMES}
    for sender, receiver in permutations(NAMES, 2):
        sent = [record.fields[1] for record in traces[sender] if record.type == "Send" and record.fields[0] == receiver]
        taken = [r.fields[2] for r in traces[receiver] if r.type == "Received" and r.fields[1] == sender]
        assert taken == sent[: len(taken)], f"{receiver} did not handle {sender}'s frames once each, in order"
        carried = {n: frame for (a, b, n), frame in town.carried.items() if (a, b) == (sender, receiver)}
        assert all(sent[number - 1] == frame for number, frame in carried.items())
    for name in NAMES:
        assert_one_life(traces[name])
        path = town.directory / "ledger" / f"{name}.jsonl"
        spent = sum(record.type == "Spend" for record in traces[name])
        assert released[name] == spent
        # A line is written before its value leaves: of one who died between the two, it stays.
        assert len(path.read_text().splitlines()) >= spent
    fresh = {name: build(plan, name) for name in NAMES}
    for name, party in fresh.items():
        replay(party, town.directory / "trace" / f"{name}.trace")
    replayed = weights({name: party.model() for name, party in fresh.items()})
    assert final.keys() == replayed.keys()
    assert [key for key in final if not torch.equal(final[key], replayed[key])] == []
    observed = [record.fields for record in traces["label"] if record.type == "Observe"]
    assert [line["exchange"] for line in town.metrics()] == [fields[0] for fields in observed]
    if plan.startswith("split"):
        assert [key for key, tensor in undisturbed(plan).items() if not torch.equal(tensor, final[key])] == []
    if plan.startswith("vafl"):
        counts = {name: party.counts()["exchanges"] for name, party in fresh.items()}
        assert counts["label"] in (12, 13)  # two epochs of three batches, for two parties; two may be taken at once
        assert counts["party1"] + counts["party2"] == counts["label"]
        for name in NAMES[1:]:
            assert_in_order(traces["label"], EmbeddingUpload, name)
            assert_in_order(traces[name], GradientReply, "label")


def assert_one_life(trace: list[Record]) -> None:
    events = [event_of(record) for record in trace if record.is_event]
    assert [type(event).__name__ for event in events].count("Started") == 1
    assert type(events[0]).__name__ == "Started"
    assert all(before.now <= after.now for before, after in pairwise(events))


def assert_in_order(trace: list[Record], kind: type, sender: str) -> None:
    messages = [decode(bytearray(r.fields[2])) for r in trace if r.type == "Received" and r.fields[1] == sender]
    numbers = [message.exchange for message in messages if isinstance(message, kind)]  # type: ignore[attr-defined]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


# --- any schedule -----------------------------------------------------------------------------------------------

parts = st.sampled_from([0.0, 0.3, 0.7, 1.0])
disturbances = st.one_of(
    st.tuples(st.just("kill"), st.sampled_from(NAMES), parts),
    st.tuples(st.just("kill in a turn"), st.sampled_from(NAMES), st.integers(0, 3), parts),
    st.tuples(st.just("kill and tear"), st.sampled_from(NAMES), st.sampled_from(["json", "safetensors"]), parts),
    st.tuples(st.just("part"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.2, 3.0, 9.0])),
)


def disturb(town: FakeCarrier, what: tuple[Any, ...]) -> None:
    match what:
        case ("kill", name, torn) if name in town.stations:
            town.kill(name, torn)
        case ("kill in a turn", name, events, torn) if name in town.stations:
            town.turn_and_die(name, events, torn)
        case ("kill and tear", name, suffix, kept_part) if name in town.stations:
            town.kill(name)
            town.tear_checkpoint(name, suffix, 0.9 * kept_part)
        case ("part", place):
            town.part(*town.links[place % len(town.links)])
        case ("wait", seconds):
            town.clock.tick(seconds)


@given(
    plan=st.sampled_from(sorted(PLANS)),
    seed=st.integers(0, 2**32 - 1),
    story=st.lists(st.tuples(st.integers(0, 120), disturbances), max_size=12),
    checkpoint_seconds=st.sampled_from([0.0, 0.5, 1e9]),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_the_training_ends_as_if_nobody_had_died(
    plan: str, seed: int, story: list[tuple[int, tuple[Any, ...]]], checkpoint_seconds: float
) -> None:
    with TemporaryDirectory() as folder, closing(town_of(plan, Path(folder), checkpoint_seconds)) as town:
        town.join_all()
        random = Random(seed)
        for steps, what in story:
            town.wander(random, steps)
            disturb(town, what)
        town.finish()
        assert_sound(town, plan)


# --- deaths at moments that a schedule seldom hits --------------------------------------------------------------


def go_on_until(town: FakeCarrier, plan: str, exchanges: int) -> None:
    town.join_all()
    while town.stations["label"].party.counts()["exchanges"] < exchanges:
        town.go_on()
        town.clock.tick(0.01)


@pytest.mark.parametrize("plan", ["split", "vafl"])
@pytest.mark.parametrize("dying", ["label", "party1"])
@pytest.mark.parametrize("after", ["the tensors", "the checkpoint", "the journal's begin"])
def test_death_in_a_checkpoint(
    plan: str, dying: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = town_of(plan, tmp_path)
    go_on_until(town, plan, 2)
    town.stations[dying].save()
    go_on_until(town, plan, 4)
    station = town.stations[dying]
    written: list[Path] = []

    def write_and_die(path: Path, content: bytes) -> None:
        if after == "the tensors":
            raise KilledError
        written.append(path)
        whole(path, content)

    def begin_or_die(number: int, oldest: int | None = None) -> None:
        if after == "the checkpoint":
            raise KilledError
        begin(number, oldest)
        raise KilledError

    whole, begin = checkpoint.write_atomically, station._keeper.journal.begin
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(checkpoint, "write_atomically", write_and_die)
        patch.setattr(station._keeper.journal, "begin", begin_or_die)
        station.save()
    assert len(written) == (0 if after == "the tensors" else 1)  # the description, which goes last
    town.kill(dying)
    town.finish()
    assert_sound(town, plan)


@pytest.mark.parametrize(("plan", "checkpoint_seconds"), [("split", 1e9), ("vafl, noise", 0.0)])
def test_everybody_dies_again_and_again(plan: str, checkpoint_seconds: float, tmp_path: Path) -> None:
    """Every party dies after half of its turns, some times before its bytes leave and some times after."""
    town = town_of(plan, tmp_path, checkpoint_seconds)
    for life in range(2000):
        name = NAMES[life % 3]
        town.join_all()
        for peer in town.peers_of(name):
            town.write(peer)
            town.carry(peer, name)
        town.turn(name)
        if life % 2:
            town.write(name)
            for peer in town.peers_of(name):
                town.carry(name, peer)
        town.clock.tick(0.05)
        if life % 4 < 2:
            town.kill(name, torn=(life % 3) / 2)
            town.revive(name)
        if all(station.finished for station in town.stations.values()):
            break
    assert life > 30
    town.finish()
    assert_sound(town, plan)


def test_a_resumed_party_goes_on_with_its_time(tmp_path: Path) -> None:
    town = town_of("vafl", tmp_path)
    go_on_until(town, "vafl", 3)
    town.stations["party1"].save()
    town.clock.tick(0.5)
    go_on_until(town, "vafl", 5)
    before = town.stations["party1"].now()
    town.kill("party1")
    town.clock.tick(100.0)  # nobody lives in this time
    town.revive("party1")
    after = town.stations["party1"].now()
    assert before - 0.1 < after <= before
    town.finish()
    assert_sound(town, "vafl")
