"""Spares these tests the waiting for the disk.

Thousands of checkpoints are written here; whether one survives a power cut is not the question.
"""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
