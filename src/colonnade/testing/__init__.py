"""Checks for those who write an algorithm or a carrier: what our own tests use, for yours.

`check_algorithm` holds a row of the table to the contract. `HandTurnedParties` gives parties events and looks at their
effects; `TinyFederation` runs them. `FakeCarrier` plays the world around stations, on a `FakeClock`: every byte moves
when a test says so. `Scripted` parties are small enough to follow by hand. None of this needs pytest.
"""

from colonnade.testing.algorithm_checks import CHECKS, Candidate, check_algorithm
from colonnade.testing.fake_carrier import PATIENT, FakeCarrier, KilledError
from colonnade.testing.fake_clock import FakeClock
from colonnade.testing.hand_turned_parties import HandTurnedParties
from colonnade.testing.scripted_party import (
    LETTER_BYTES,
    Scripted,
    evaluation,
    finishes_after,
    letter,
    question,
    says,
    sends,
    short,
)
from colonnade.testing.tiny_federation import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

__all__ = [
    "CHECKS",
    "LETTER_BYTES",
    "PATIENT",
    "Candidate",
    "FakeCarrier",
    "FakeClock",
    "HandTurnedParties",
    "KilledError",
    "Scripted",
    "StopAfter",
    "TinyFederation",
    "assert_same_bits",
    "check_algorithm",
    "evaluation",
    "finishes_after",
    "letter",
    "question",
    "says",
    "sends",
    "short",
    "tiny_data",
    "weights",
]
