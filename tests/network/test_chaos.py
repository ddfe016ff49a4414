"""Somebody is killed all the time, the label party included: the training ends as well as undisturbed, nothing twice.

Killed means SIGKILL to the whole process, at a random moment of its life, and started again at once.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parties import LINEAR_SPLIT, Organisation, Town, assert_same_bits, shared, with_tables

from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint
from colonnade.runtimes.replay import replay
from colonnade.trace import Record, read_trace
from colonnade.wire.codec import decode

KILLS = 20  # of each algorithm's parties
SECONDS_BETWEEN = (0.4, 1.4)
TRAINING_SECONDS = 3.0 * KILLS * sum(SECONDS_BETWEEN) / 2  # of the disturbed part: longer than it takes, on any machine
EPOCHS = 4
EXCHANGES = 128 * EPOCHS  # 32 batches of 64 rows, 4 parties

PLANS: dict[str, dict[str, Any]] = {
    "vafl": shared("vafl", {}, EPOCHS, 64, training={"learning_rate": 0.5}, **LINEAR_SPLIT),
    "cascaded": shared(
        {"name": "cascaded", "directions": 4}, {}, EPOCHS, 64, training={"learning_rate": 0.3}, **LINEAR_SPLIT
    ),
    "afsaga": shared("afsaga", {}, EPOCHS, 64, training={"l2": 0.001}),
}
EVENTS_AN_EXCHANGE = {"vafl": 1, "cascaded": 1, "afsaga": 3}  # at the label party: a request, and two sums from below
REPLY = {"vafl": "GradientReply", "cascaded": "LossReply", "afsaga": "ResidualReply"}


def kill_and_restart(town: Town, kills: int, chance: random.Random) -> Counter[str]:
    """Kill somebody, now and then, until it was done so often."""
    killed: Counter[str] = Counter()
    while killed.total() < kills:
        time.sleep(chance.uniform(*SECONDS_BETWEEN))
        running = [one for one in town.parties.values() if one.alive()]
        assert len(running) == len(town.parties), f"the training ended after {killed.total()} kills"
        one = chance.choice(running)
        one.kill()
        one.start("--trace")
        killed[one.name] += 1
    return killed


def records(one: Organisation) -> Iterator[Record]:
    return read_trace(one.out / "trace" / f"{one.name}.trace")


def replies_sent(label: Organisation, kind: str) -> dict[str, list[int]]:
    """The numbers of the exchanges that the label party answered, by party, in order."""
    sent: dict[str, list[int]] = {}
    for record in records(label):
        if record.type == "Send":
            message = decode(record.fields[1])
            if type(message).__name__ == kind:
                sent.setdefault(record.fields[0], []).append(message.exchange)  # type: ignore[attr-defined]
    return sent


def replies_taken(one: Organisation, kind: str) -> list[int]:
    received = (decode(record.fields[2]) for record in records(one) if record.type == "Received")
    return [message.exchange for message in received if type(message).__name__ == kind]  # type: ignore[attr-defined]


def assert_nothing_twice(town: Town, algorithm: str) -> None:
    """Every answer that was given was taken, once and in order; what was applied adds up to what was counted."""
    sent = replies_sent(town.label, REPLY[algorithm])
    for one in town.feature_parties:
        taken = replies_taken(one, REPLY[algorithm])
        assert taken == sent[one.name]
        assert taken == sorted({*taken})
    steps = {one.name: one.summary()["steps"] for one in town.feature_parties}
    if algorithm == "afsaga":
        # A request that had to be repeated is counted again, and the first answer fills each party's table of rows.
        assert sum(map(len, sent.values())) == sum(steps.values()) + len(steps)
        assert town.label.summary()["exchanges"] >= sum(steps.values())
    else:
        assert steps == {name: len(numbers) for name, numbers in sent.items()}
        assert town.label.summary()["exchanges"] == sum(steps.values()) == EXCHANGES


def assert_checkpoints_whole(town: Town) -> None:
    for one in town.parties.values():
        folder = one.out / "checkpoints"
        numbers = numbers_of(folder, one.name)
        assert numbers
        for number in numbers:
            assert read_checkpoint(folder, one.name, number) is not None
        for suffix in ("json", "safetensors"):
            torn = folder / f"{one.name}-{numbers[-1]:010d}.{suffix}"
            whole = torn.read_bytes()
            torn.write_bytes(whole[: len(whole) // 2])
            assert read_checkpoint(folder, one.name, numbers[-1]) is None
            torn.write_bytes(whole)


@pytest.mark.parametrize("algorithm", PLANS)
def test_the_training_ends_as_if_nobody_had_died(algorithm: str, town: Callable[..., Town]) -> None:
    undisturbed = with_tables(town, PLANS[algorithm])
    # The slowest, so that nobody has done all before others come.
    undisturbed.label.options["milliseconds_an_event"] = 1.0
    undisturbed.start()
    expected = undisturbed.end()["test"]["accuracy"]
    assert expected > 0.93  # it depends on who comes when: .93875 was seen, and .95

    one = with_tables(town, PLANS[algorithm], checkpoint_seconds=0.7, linger_seconds=60.0)
    # So that the training lasts long enough to be disturbed so often; then the label party does as undisturbed.
    events = EXCHANGES * EVENTS_AN_EXCHANGE[algorithm]
    one.label.options["milliseconds_an_event"] = 1000 * TRAINING_SECONDS / events
    for party in one.parties.values():
        party.start("--trace")
    killed = kill_and_restart(one, KILLS, random.Random(algorithm))
    one.label.kill()
    one.label.options = undisturbed.label.options
    one.label.start("--trace")
    summary = one.end()
    assert summary["test"]["accuracy"] == pytest.approx(expected, abs=0.01)
    assert killed.total() == KILLS
    assert sum(party.started - 1 for party in one.parties.values()) == KILLS + 1
    assert_nothing_twice(one, algorithm)
    assert_checkpoints_whole(one)
    assert_replayed(one)


def assert_replayed(town: Town) -> None:
    """What everybody saw, crashes and all, gives the same models again in one process."""
    parties = town.built()
    for name, party in parties.items():
        assert replay(party, town[name].out / "trace" / f"{name}.trace") > 0
    assert_same_bits({name: party.model() for name, party in parties.items()}, town.models())


def test_processes_that_are_killed_go_on_as_well(town: Callable[..., Town], tmp_path: Path) -> None:
    """The same with Unix sockets, where the parent starts them again; everybody dies once, the label party too."""
    one = with_tables(town, {**PLANS["vafl"], "processes": {"compute_seconds": 0.002}})
    living = {*one.parties}

    def report(party: str, said: dict[str, Any]) -> None:
        if party in living and said.get("exchanges", 0) > 20:
            living.discard(party)
            one.supervisor.started[party].send(signal.SIGKILL)

    outcome = one.processed(out=tmp_path / "run", report=report)
    restarts = {name: own["restarts"] for name, own in outcome.summary["parties"].items()}
    assert not living
    assert restarts == dict.fromkeys(one.parties, 1)
    steps = {name: own["steps"] for name, own in outcome.summary["parties"].items() if name != one.label.name}
    assert outcome.summary["exchanges"] == sum(steps.values()) == EXCHANGES
    assert outcome.summary["test"]["accuracy"] > 0.94
