"""Lets these tests import the tiny federations of tests/reference, and spares them the waiting for the disk.

Thousands of checkpoints are written here; whether one survives a power cut is not the question.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
