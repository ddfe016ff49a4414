"""Whatever changes in a party while it handles an event is remembered, or declared as derived (state.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forgetting import changed_without_a_word, lost_by_a_restart

from colonnade import PerturbationSettings, Simulate, SimulatedParty, Training
from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.runtimes.replay import event_of
from colonnade.state import Remembering, part, value
from colonnade.testing import StopAfter, TinyFederation, tiny_data
from colonnade.trace import read_trace

EVENTS = 40  # of each party: its introduction, some steps, an evaluation, a peer that was away
ROUGH = Simulate(
    latency_seconds={"distribution": "exponential", "mean": 0.01},
    reorder=True,
    parties={"party1": SimulatedParty(crashes=((0.02, 0.05),))},
)
BUDGET = PerturbationSettings(
    bottom_update="dp-sgd", clip=1.0, noise=3.0, update_clip=0.1, update_noise=0.5, columns_epsilon=5.0
)
NOISE = PerturbationSettings(noise=0.3, inner_noise=0.1, clip=1.0)
NO_NOISE = PerturbationSettings()
# Together they make every part move, if not in every algorithm.
SETTINGS: dict[str, dict[str, Any]] = {
    "vafl": {"in_flight": 2, "wait_for": 2, "max_delay": 3},
    "split": {"party_timeout_seconds": 0.01},
    "cascaded": {"activation_seconds": 0.01},
    "dpzv": {"server_update": "private-zo", "clip": 1.0, "noise": 0.5, "server_noise": 0.5},
    "afsgd": {"sums": "two-tree", "updates": "one"},
    "afsvrg": {"precondition": "curvature"},
    "afsaga": {"updates": "everybody", "in_flight": 2, "search_every_epochs": 0.2},
    "asysqn-svrg": {"updates": "everybody", "sums": "two-tree"},
    "fsgd": {"party_timeout_seconds": 0.02},
    "synsqn-saga": {"search_every_epochs": 0.2},
    "asysqn-sgd": {"search_every_epochs": 0.2, "updates": "one"},
    "fcg": {"sums": "pairwise"},
}
PRIVACY = {"vafl": BUDGET, "czofo": NOISE, "zoo": NOISE, "dpzv": PerturbationSettings(labels_epsilon=20.0)}
VALIDATED = ("vafl", "split", "zoo", "dpzv", "centralised", "afsgd", "fsaga", "fcg")  # these have validation rows
OWN_COLUMNS = ("split", "zoo-sync", "dpzv", "afsaga")


def plan(row: Algorithm) -> TinyFederation:
    optimiser = "sgd" if row.name == "dpzv" or row.linear_party else "adam"
    often = Training(4, 8, optimiser=optimiser, observe_every_epochs=0.2, evaluate_every_epochs=0.4)
    settings, privacy = row.settings(**SETTINGS.get(row.name, {})), PRIVACY.get(row.name, NO_NOISE)
    data = tiny_data(label_party_columns=row.name in OWN_COLUMNS)
    data = data.with_validation(0.25) if row.name in VALIDATED else data
    return TinyFederation(data, settings, training=often, privacy=privacy, simulate=ROUGH)


# --- every algorithm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ALGORITHMS.values(), ids=list(ALGORITHMS))
def test_whatever_changes_is_remembered_or_derived(row: Algorithm, tmp_path: Path) -> None:
    given = plan(row)
    given.run(tmp_path / "run", stop_requested=StopAfter(EVENTS * len(given.names)))
    parties, restored = given.parties(), given.parties()
    for name, party in parties.items():
        recorded = (one for one in read_trace(tmp_path / "run" / "trace" / f"{name}.trace") if one.is_event)
        events = [event_of(one) for one, _ in zip(recorded, range(EVENTS), strict=False)]
        assert len(events) > 5, name
        assert changed_without_a_word(party, events) == set()
        assert lost_by_a_restart(party, restored[name]) == set()


# --- and the check itself ---------------------------------------------------------------------------------------


class Inner(Remembering):
    MEMORY = (value("count"),)
    DERIVED = ("twice",)

    def __init__(self) -> None:
        self.count = self.twice = self.forgotten = 0
        self.constant = {"rows": np.zeros(3)}


class Outer(Remembering):
    """A party of which nothing is forgotten, until a test makes it forget something."""

    MEMORY = (value("numbers"),)

    def __init__(self, what: Any = None) -> None:
        self.numbers = [0]
        self.same_numbers = self.numbers  # shared: remembered once is enough
        self.what = what
        self.held: Any = None

    def handle(self, event: Any) -> list[Any]:
        self.numbers.append(event)
        if callable(self.what):
            self.what()
        return []


def test_a_party_that_forgets_nothing_passes() -> None:
    assert changed_without_a_word(Outer(), [1, 2]) == set()


def test_a_forgotten_attribute_is_found_wherever_it_lies() -> None:
    network = torch.nn.Linear(2, 1)
    closed_over: list[int] = []
    generator = torch.Generator()
    array = np.zeros(3)
    slotted = type("Slotted", (), {"__slots__": ("at",)})()
    slotted.at = {1}
    forgotten = {
        "a weight": (network, lambda: network.weight.data.add_(1)),
        "a list": (closed_over, lambda: closed_over.append(1)),
        "a generator": ([generator], lambda: torch.rand(1, generator=generator)),
        "one number of an array": ({"in": (array,)}, lambda: array.__setitem__(2, 5.0)),
        "a set in slots": (slotted, lambda: slotted.at.add(2)),
    }
    for what, (held, change) in forgotten.items():
        party = Outer(change)
        party.held = held
        assert "Outer.held (Outer)" in changed_without_a_word(party, [1]), what
    counter: list[int] = []
    party = Outer(lambda: counter.append(1))
    assert changed_without_a_word(party, [1]) == {"Outer.what (Outer)"}, "closed over"


def test_a_forgotten_attribute_of_a_part_is_found_and_a_derived_one_is_not() -> None:
    class Whole(Outer):
        MEMORY = (part("inner"),)

        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def handle(self, event: Any) -> list[Any]:
            self.inner.count += 1
            self.inner.twice += 2
            if event == "forget":
                self.inner.forgotten += 1
            return super().handle(event)

    assert changed_without_a_word(Whole(), ["remember"]) == set()
    found = changed_without_a_word(Whole(), ["forget"])
    assert found == {"Whole.inner.forgotten (Inner)"}


def test_what_is_shared_must_still_be_shared_after_a_restart() -> None:
    """`numbers` is replaced by what is restored, so that whoever holds the list of before holds an old one."""
    party = Outer()
    party.handle(1)
    assert lost_by_a_restart(party, Outer()) == {"Outer.same_numbers (Outer)"}
