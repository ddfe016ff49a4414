"""Counts of releases by the row take two bytes each until one might need more, and are right all the same."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger


def release(rows: list[int]) -> PrivacyEvent:
    ids = np.array(rows, np.uint32)
    return PrivacyEvent("gaussian", 2.0, 4.0, len(rows), row_ids=ids, protects="one row", viewers=("label",))


def counts(ledger: Ledger) -> dict[int, int]:
    (kind,) = ledger.by_row()
    return {row: int(kind["per_row"][row]) for row in np.flatnonzero(kind["per_row"])}


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=150), min_size=1, max_size=40))
def test_as_a_plain_count(events: list[list[int]]) -> None:
    ledger, again = Ledger(), Ledger()
    for place, rows in enumerate(events):
        if place == len(events) // 2 and place:
            again.restore(ledger.state())
            ledger = again
        ledger.spend("bank", release(rows))
    assert counts(ledger) == Counter(row for rows in events for row in rows)


@pytest.mark.parametrize("often", [1, 300, 32_768, 65_535, 65_536, 70_000])
def test_no_count_runs_over(often: int) -> None:
    """In one event, and from one event to the next."""
    ledger = Ledger()
    for _ in range(70_000 // often + 2):
        ledger.spend("bank", release([1] * often))
    assert counts(ledger) == {1: often * (70_000 // often + 2)}
    again = Ledger()
    again.restore(ledger.state())
    again.spend("bank", release([1]))
    assert counts(again) == {1: often * (70_000 // often + 2) + 1}


def test_a_million_rows_take_two_bytes_each() -> None:
    ledger = Ledger()
    ledger.spend("bank", release([999_999]))
    ledger.spend("bank", release([0]))
    (kind,) = ledger.by_row()
    assert kind["per_row"].nbytes == 2_000_000
