"""The checks for authors of algorithms find what they look for: each flaw is one, and is named in words."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade import Vafl
from colonnade.algorithms import ALGORITHMS, Algorithm, find, register
from colonnade.party import Checkpoint, Effect, Event, Party, Received
from colonnade.state import State
from colonnade.testing import CHECKS, Candidate, check_algorithm


@dataclass(frozen=True)
class Flawed(Vafl):
    """`[algorithm]` with name = "flawed"."""


class Flawless:
    """A party like the one it is made of; each flaw below changes one thing."""

    def __init__(self, party: Party) -> None:
        self.party = party

    def handle(self, event: Event) -> Sequence[Effect]:
        return self.party.handle(event)

    def state(self) -> State:
        return self.party.state()

    def restore(self, state: State) -> None:
        self.party.restore(state)

    def model(self) -> dict[str, torch.nn.Module]:
        return self.party.model()

    def counts(self) -> dict[str, Any]:
        return self.party.counts()


class Forgetful(Flawless):
    """Saves after every fourth event, and does not remember how many there were."""

    events = 0

    def handle(self, event: Event) -> Sequence[Effect]:
        self.events += 1
        more = [] if self.events % 4 else [Checkpoint()]
        return [*self.party.handle(event), *more]


class Gambler(Flawless):
    def handle(self, event: Event) -> Sequence[Effect]:
        random.random()
        return self.party.handle(event)


class Punctual(Flawless):
    def handle(self, event: Event) -> Sequence[Effect]:
        time.monotonic()
        return self.party.handle(event)


class Generous(Flawless):
    """Hands out its only model."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self.only = party.model()

    def model(self) -> dict[str, torch.nn.Module]:
        return self.only


class Unsure(Flawless):
    """Has a state that goes on changing after it was taken."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self.log: list[int] = []

    def handle(self, event: Event) -> Sequence[Effect]:
        self.log.append(len(self.log))
        return self.party.handle(event)

    def state(self) -> State:
        state = self.party.state()
        return State(state.tensors, {**state.values, "log": self.log})


class Stubborn(Flawless):
    """Learns nothing from what it is sent."""

    def model(self) -> dict[str, torch.nn.Module]:
        models = self.party.model()
        with torch.no_grad():
            for module in models.values():
                for parameter in module.parameters():
                    parameter.zero_()
        return models


@pytest.fixture(autouse=True)
def the_table_as_it_was() -> Iterator[None]:
    table = dict(ALGORITHMS)
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(table)


def row_of(flaw: type[Flawless]) -> Algorithm:
    vafl = find("vafl")
    build = vafl.feature_party
    assert build is not None
    row = replace(vafl, name="flawed", settings=Flawed, feature_party=lambda seat: flaw(build(seat)))
    register(row)
    return row


@pytest.mark.parametrize(
    ("flaw", "check", "words"),
    [
        (Forgetful, "a_party_restored_from_its_state_is_that_party", "its state lacks something"),
        (Gambler, "handling_events_neither_reads_nor_moves_global_randomness", "global generator"),
        (Punctual, "replay_needs_no_clock_and_gives_the_same_bits", "looked at the clock"),
        (Generous, "a_model_that_was_handed_out_is_a_copy", "changes its party"),
        (Unsure, "a_party_restored_from_its_state_is_that_party", "changed after it was taken"),
        (Stubborn, "it_learns_and_reports", "the summary says"),
    ],
)
def test_a_flaw_is_found_and_named(flaw: type[Flawless], check: str, words: str, tmp_path: Path) -> None:
    candidate = Candidate(row_of(flaw))
    with pytest.raises(AssertionError, match=rf"^flawed: .*{words}"):
        CHECKS[check](candidate, tmp_path)


def test_a_row_must_stand_in_the_table() -> None:
    with pytest.raises(AssertionError, match="register this one first"):
        check_algorithm(replace(find("vafl"), summary="another one"))


def test_an_algorithm_without_a_flaw_passes() -> None:
    check_algorithm(row_of(Flawless), Flawed(wait_for=2))


def test_an_error_of_the_algorithm_fails_its_check() -> None:
    class Deaf(Flawless):
        def handle(self, event: Event) -> Sequence[Effect]:
            return [] if isinstance(event, Received) else self.party.handle(event)

    with pytest.raises(AssertionError, match="flawed: it learns and reports"):
        check_algorithm(row_of(Deaf))
