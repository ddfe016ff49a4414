"""Checks for those who write an algorithm or a carrier: what our own tests use, for yours.

`FakeCarrier` plays the world around stations, on a `FakeClock`: every byte moves when a test says so. `Scripted`
parties are small enough to follow by hand.
"""

from colonnade.testing.fake_carrier import PATIENT, FakeCarrier, KilledError
from colonnade.testing.fake_clock import FakeClock
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

__all__ = [
    "LETTER_BYTES",
    "PATIENT",
    "FakeCarrier",
    "FakeClock",
    "KilledError",
    "Scripted",
    "evaluation",
    "finishes_after",
    "letter",
    "question",
    "says",
    "sends",
    "short",
]
