"""Where one sum teaches everybody: how many sums are under way, how old what is learnt from is, along which tree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import ProtocolError, SettingsError, Simulate, SimulatedParty, Training
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.settings import IN_FLIGHT, MOST_IN_FLIGHT
from colonnade.messages import LessonStep, ProductSum, SharedRequest, SharedResiduals
from colonnade.party import Party, Received, Send, Started, TimerFired
from colonnade.runtimes.checkpoint import read_latest
from colonnade.testing import TinyFederation, tiny_data

PEERS = ("party1", "party2", "party3")
TRAINING = Training(epochs=40, batch_size=2, l2=0.01, evaluate_every_epochs=0)
WITH_LINKS = {"compute_seconds": 0.01, "label_compute_seconds": 0.001}


def plan(simulate: Simulate | None = None, training: Training = TRAINING, **own: Any) -> TinyFederation:
    settings = ALGORITHMS["afsaga"].settings(updates="everybody", search_every_epochs=0, **own)
    return TinyFederation(tiny_data(), settings, training, simulate=simulate or Simulate())


def introduced(who: str, **own: Any) -> Party:
    parties = plan(**own).parties()
    said = {name: party.handle(Started(0.0)) for name, party in parties.items()}
    for name, effects in said.items():
        for effect in effects:
            if isinstance(effect, Send) and effect.to == who:
                parties[who].handle(Received(0.0, name, effect.message))
    return parties[who]


class Leader:
    """The label party alone: its peers answer every request at once, and say what the test wants them to say."""

    def __init__(self, **own: Any) -> None:
        self.party: Any = introduced("label", **own)
        self.number = self.lesson = 0
        self.teach(waiting=0)  # the first pass

    def teach(self, waiting: int) -> None:
        self.number += 1
        rows = len(self.party._asked[self.number].rows)
        for peer in PEERS:
            self.party.handle(Received(1.0, peer, ProductSum("label", self.number, np.zeros((rows, 1)))))
        self.lesson += 1
        self.party.handle(TimerFired(1.0, "step"))
        for peer in PEERS:
            self.party.handle(Received(1.0, peer, LessonStep(self.lesson, waiting)))


def test_more_sums_are_under_way_while_parties_have_nothing_to_do() -> None:
    leader = Leader()
    assert leader.party._in_flight == IN_FLIGHT  # nothing waits during a pass: that says nothing
    met = []
    for _ in range(60):
        leader.teach(waiting=0)
        met.append(leader.party._in_flight)
        assert len(leader.party._asked) == leader.party._in_flight
    assert met == sorted(met) and met[-1] == MOST_IN_FLIGHT
    # A change is looked at before the next: as many lessons as were asked for before it do not count.
    assert met[1] == IN_FLIGHT + 1 and met[2:4] == [IN_FLIGHT + 1] * 2
    again: Any = introduced("label")
    again.restore(leader.party.state())
    assert again._in_flight == MOST_IN_FLIGHT


def test_fewer_are_while_lessons_wait_and_one_waiting_is_right() -> None:
    leader = Leader()
    for waiting, wanted in ((1, IN_FLIGHT), (5, 1), (1, 1)):
        for _ in range(12):
            leader.teach(waiting)
        assert leader.party._in_flight == wanted


def test_a_number_that_was_given_stays() -> None:
    leader = Leader(in_flight=3)
    for _ in range(12):
        leader.teach(waiting=0)
    assert leader.party._in_flight == 3


@pytest.mark.parametrize(("latency", "wanted"), [(0.0005, {2}), (0.02, {MOST_IN_FLIGHT})])
def test_far_links_have_more_sums_under_way_and_a_straggler_does_not_count(
    latency: float, wanted: set[int], tmp_path: Path
) -> None:
    world = Simulate(latency_seconds=latency, **WITH_LINKS, parties={"party2": SimulatedParty(slowdown=3.0)})
    federation = plan(world, Training(epochs=12, batch_size=2, l2=0.01, evaluate_every_epochs=0))
    federation.run(tmp_path / "run")
    label = read_latest(tmp_path / "run" / "checkpoints", federation.names)[1]["label"]
    assert label.values["in_flight"] in wanted


def test_steps_are_as_short_as_what_they_are_made_on_is_old() -> None:
    """A party that is asked for three sums before it is told of the first: they are 0, 1 and 2 lessons late."""
    party: Any = introduced("party1", in_flight=3)

    def ask(number: int, rows: Any, in_pass: int = 0) -> None:
        party.handle(Received(1.0, "label", SharedRequest(number, in_pass, 0, np.array(rows, np.uint32))))

    def tell(lesson: int, rows: int) -> None:
        party.handle(Received(1.0, "label", SharedResiduals(lesson, lesson, np.full((rows, 1), 0.1))))

    ask(1, range(24), in_pass=1)
    tell(1, 24)
    party.handle(TimerFired(1.0, "step"))
    for number in (2, 3, 4):
        ask(number, [0, 1])
    lengths, sizes = [], party._solver._step_size
    for lesson in (2, 3, 4):
        tell(lesson, 2)
        party.handle(TimerFired(1.0, "step"))
        lengths.append(sizes.value)
        assert sizes._late == lesson - 2
    assert lengths == [party._block_party.sound_step(late) for late in (0, 1, 2)]
    assert lengths[0] > lengths[1] > lengths[2] > 0
    again: Any = introduced("party1", in_flight=3)
    again.restore(party.state())
    assert again._solver._step_size.value == lengths[2]


def test_sums_run_along_a_star_unless_another_tree_is_asked_for() -> None:
    kind = ALGORITHMS["afsaga"].settings
    assert kind(updates="everybody").children_of_a_party(9) == 8
    assert kind(updates="everybody", arity=3).children_of_a_party(9) == 3
    assert kind().children_of_a_party(9) == 2 == ALGORITHMS["fsaga"].settings().children_of_a_party(9)
    assert kind(updates="everybody").children_of_a_party(1) == 1
    with pytest.raises(SettingsError, match="arity is 0"):
        kind(arity=0)
    party = introduced("party3")
    (part,) = party.handle(Received(1.0, "label", SharedRequest(1, 0, 0, np.array([1], np.uint32))))
    assert isinstance(part, Send) and part.to == "label"
    with pytest.raises(ProtocolError, match="does not run through here"):
        party.handle(Received(1.0, "party1", ProductSum("label", 1, np.zeros((1, 1)))))
