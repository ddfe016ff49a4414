"""A town of parties on a clock turned by hand, for tests of stations."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from towns import Build

from colonnade.runtimes.endurance import Endurance
from colonnade.testing import PATIENT, FakeCarrier


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Callable[..., FakeCarrier]]:
    """Makes a town of parties that are built anew for every life, and closes it."""
    towns: list[FakeCarrier] = []

    def make(parties: dict[str, Build], endurance: Endurance = PATIENT, **more: Any) -> FakeCarrier:
        towns.append(FakeCarrier(tmp_path, [*parties], lambda name: parties[name](), endurance=endurance, **more))
        return towns[-1]

    yield make
    for one in towns:
        one.close()
