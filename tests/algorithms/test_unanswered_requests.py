"""A party that does not answer though nobody is told that it is lost: requests wait only so long, and the others go on.

In the simulations it is away and the news of it takes longer than the run: as with a process that is held still, whose
connection stands.
"""

from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from papers_form import papers_form
from recorded_runs import Item, read_run, sends

from colonnade import Outcome, SettingsError, Simulate, SimulatedParty, Training
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.trees import different_pair
from colonnade.messages import Abandoned, MaskedSum, Message, ProductRequest, ProductSum, ResidualReply, ResidualRequest
from colonnade.party import Effect, Party, Received, Send, SetTimer, Started, TimerFired
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
TRAINING = Training(epochs=20, batch_size=8, l2=0.01, evaluate_every_epochs=5)
ASYNCHRONOUS = ["afsgd", "afsvrg", "afsaga", "asysqn-sgd", "asysqn-svrg", "asysqn-saga"]
STILL = (0.3, 1.5)  # a run without faults takes about 0.8 virtual seconds
ROWS = np.arange(8, dtype=np.uint32)


# --- by hand ----------------------------------------------------------------------------------------------------


def introduced(who: str, **settings: Any) -> Party:
    """A party of `afsgd` to which everybody has said who they are."""
    parties = TinyFederation(DATA, papers_form("afsgd", **settings), Training(epochs=9, batch_size=8)).parties()
    for other, party in parties.items():
        for effect in party.handle(Started(0.0)):
            if isinstance(effect, Send) and effect.to == who:
                parties[who].handle(Received(0.0, other, effect.message))
    return parties[who]


def sent(effects: Any, kind: type[Message]) -> list[str]:
    """To whom messages of that kind go."""
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def timers(effects: Any) -> list[tuple[str, float]]:
    return [(effect.name, effect.seconds) for effect in effects if isinstance(effect, SetTimer)]


class Label:
    """The label party of a star of three, whom party1 asks and others answer."""

    def __init__(self, **settings: Any) -> None:
        self.party = introduced("label", arity=3, request_timeout_seconds=2.0, **settings)
        self.number = 0

    def ask(self, now: float) -> Any:
        self.number += 1
        return self.party.handle(Received(now, "party1", ResidualRequest(self.number, ROWS)))

    def answer(self, now: float, *who: str) -> list[Effect]:
        part = np.ones((8, 1))
        effects: list[Effect] = []
        for name in who:
            effects += self.party.handle(Received(now, name, ProductSum("label", self.number, part)))
        return effects

    def late_rows(self) -> int:
        return int(self.party.counts()["late_rows"])


def test_a_request_waits_so_long_and_then_uses_what_was_known_last() -> None:
    label = Label()
    asked = label.ask(0.0)
    assert sent(asked, ProductRequest) == ["party1", "party2", "party3"]
    assert timers(asked) == [("request", 2.0)]
    assert sent(label.answer(0.5, "party1", "party2", "party3"), ResidualReply) == ["party1"]
    assert timers(label.ask(1.0)) == []  # one timer for all; when it runs out, it is set for what waits then
    assert label.answer(1.5, "party1", "party2") == []
    assert timers(label.party.handle(TimerFired(2.0, "request"))) == [("request", 1.0)]
    assert label.late_rows() == 0
    went_on = label.party.handle(TimerFired(3.0, "request"))
    assert sent(went_on, ResidualReply) == ["party1"]
    assert timers(went_on) == []
    assert label.late_rows() == 8


def test_who_did_not_answer_is_not_waited_for_until_it_is_heard_of() -> None:
    label = Label()
    label.ask(0.0)
    label.answer(0.0, "party1", "party2", "party3")
    label.ask(0.0)
    label.answer(0.0, "party1", "party2")
    label.party.handle(TimerFired(2.0, "request"))
    assert sent(label.ask(2.0), ProductRequest) == ["party1", "party2", "party3"]  # it may be back by now
    assert sent(label.answer(2.0, "party1", "party2"), ResidualReply) == ["party1"]
    assert label.late_rows() == 16
    assert label.answer(2.5, "party3") == []  # too late for its request, but it is there
    label.ask(3.0)
    assert label.answer(3.0, "party1", "party2") == []
    assert sent(label.answer(3.5, "party3"), ResidualReply) == ["party1"]
    assert label.late_rows() == 16


def test_without_known_products_the_request_is_abandoned_and_the_next_one_is_given_longer() -> None:
    label = Label(max_product_age_epochs=0.0)
    label.ask(0.0)
    label.answer(0.0, "party1", "party2")
    assert sent(label.party.handle(TimerFired(2.0, "request")), Abandoned) == ["party1"]
    assert timers(label.ask(2.0)) == [("request", 4.0)]
    assert label.party.counts()["abandoned_sums"] == 1
    asker = introduced("party1", arity=3)
    repeated = asker.handle(Received(3.0, "label", Abandoned("label", 1)))
    assert timers(repeated) == [("repeat", 0.0)]
    assert sent(asker.handle(TimerFired(3.0, "repeat")), ResidualRequest) == ["label"]


def test_whoever_is_nearer_to_the_silent_party_goes_on_first() -> None:
    """A chain: label, party1, party2, party3. Its ends are three messages apart."""
    chain = {"arity": 1, "request_timeout_seconds": 3.0}
    assert timers(introduced("label", **chain).handle(Received(0.0, "party1", ResidualRequest(1, ROWS)))) == [
        ("request", 3.0)
    ]
    for above, who, seconds in (("label", "party1", 2.0), ("party1", "party2", 1.0)):
        asked = introduced(who, **chain).handle(Received(0.0, above, ProductRequest("label", 1, ROWS)))
        assert timers(asked) == [("request", seconds)]
    assert timers(introduced("party3", **chain).handle(Received(0.0, "party2", ProductRequest("label", 1, ROWS)))) == []


def test_parts_that_come_after_their_sum_was_abandoned_are_dropped() -> None:
    """With two trees a part may come before its request, and is kept; one that comes after the end is not."""
    trees = different_pair(("label", "party1", "party2", "party3"), "label")
    who, tree, below = next(
        (name, tree, child) for name in trees[0].parent for tree in (0, 1) for child in trees[tree].children(name)
    )
    party = introduced(who, sums="two-tree", request_timeout_seconds=3.0)
    above = trees[0].parent[who]
    party.handle(Received(0.0, above, ProductRequest("label", 1, ROWS)))
    assert sent(party.handle(TimerFired(3.0, "request")), Abandoned) == ["label"]
    party.handle(Received(4.0, below, MaskedSum("label", 1, tree + 1, np.zeros((8, 1), np.uint64))))
    assert party.state().part("member").part("sums").values["open"] == []


def test_no_limit_sets_no_timer() -> None:
    label = introduced("label", request_timeout_seconds=0.0)
    assert timers(label.handle(Received(0.0, "party1", ResidualRequest(1, ROWS)))) == []


@pytest.mark.parametrize("seconds", [-1.0, inf, float("nan")])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(SettingsError, match=r"algorithm\.request_timeout_seconds is .*; it must be finite"):
        ALGORITHMS["afsaga"].settings(request_timeout_seconds=seconds)


# --- whole runs -------------------------------------------------------------------------------------------------


def run(name: str, out: Path, **settings: Any) -> tuple[Outcome, dict[str, list[Item]]]:
    world = Simulate(parties={"party3": SimulatedParty(crashes=(STILL,))}, notice_seconds=1000.0)
    algorithm = papers_form(name, search_every_epochs=0, **settings)
    outcome = TinyFederation(DATA, algorithm, TRAINING, simulate=world).run(out)
    return outcome, read_run(out)


def replies(trace: dict[str, list[Item]]) -> int:
    """Residuals that the label party gave the others until party3 was heard of again: it had sent none in between."""
    times = [item.fields[0] for item in trace["label"] if item.type == "Received" and item.peer == "party3"]
    back = next(now for before, now in pairwise(times) if now - before > 1.0)
    count, now = 0, 0.0
    for item in trace["label"]:
        now = item.fields[0] if item.type in ("Received", "TimerFired") else now
        given = item.type == "Send" and isinstance(item.message, ResidualReply) and item.peer != "party3"
        count += given and STILL[0] < now < back
    return count


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_plain_sums_go_on_without_the_silent_party(name: str, tmp_path: Path) -> None:
    settings = {"arity": 3, "max_product_age_epochs": 100.0}
    waited, trace = run(name, tmp_path / "waits", **settings, request_timeout_seconds=0.0)
    assert waited.finished and replies(trace) <= 2  # those that were under way
    assert waited.summary["counts"]["late_rows"] == 0
    went_on, trace = run(name, tmp_path / "goes on", **settings, request_timeout_seconds=0.1)
    assert went_on.finished and replies(trace) > 10
    assert went_on.summary["counts"]["late_rows"] > 0


@pytest.mark.parametrize("sums", ["pairwise", "two-tree"])
def test_masked_sums_are_abandoned_and_asked_for_again(sums: str, tmp_path: Path) -> None:
    outcome, trace = run("afsaga", tmp_path / "run", sums=sums, request_timeout_seconds=0.1)
    assert outcome.finished and outcome.summary["counts"]["late_rows"] == 0
    assert sends(trace["label"], Abandoned)
    for items in trace.values():
        parts = [(p.message.root, p.message.number, p.message.tree) for p in sends(items, MaskedSum)]  # type: ignore[union-attr]
        assert len(set(parts)) == len(parts)


@pytest.mark.parametrize("sums", ["plain", "two-tree"])
def test_a_limit_shorter_than_answers_take_does_not_stop_the_training(sums: str, tmp_path: Path) -> None:
    world = Simulate(latency_seconds=0.05)
    algorithm = papers_form("afsgd", search_every_epochs=0, sums=sums, request_timeout_seconds=0.001)
    outcome = TinyFederation(DATA, algorithm, TRAINING, simulate=world).run(tmp_path / "run")
    assert outcome.finished and outcome.summary["counts"]["abandoned_sums"] > 0


def test_the_same_seed_gives_the_same_trace(tmp_path: Path) -> None:
    for out in ("one", "other"):
        run("afsvrg", tmp_path / out, request_timeout_seconds=0.1, sums="pairwise")
    for name in ("label", "party1", "party2", "party3"):
        one, other = ((tmp_path / out / "trace" / f"{name}.trace").read_bytes() for out in ("one", "other"))
        assert one == other
