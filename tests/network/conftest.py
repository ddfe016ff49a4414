"""One nursery for all tests here; every federation's processes are gone when its test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parties import Town, start_nursery

from colonnade.runtimes.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    one = start_nursery()
    yield one
    one.close()


@pytest.fixture
def town(nursery: Nursery, tmp_path: Path) -> Iterator[Callable[..., Town]]:
    """Builds federations that do not outlive the test."""
    built: list[Town] = []

    def build(*arguments: Any, **options: Any) -> Town:
        one = Town(nursery, tmp_path / f"town{len(built)}", *arguments, **options)
        built.append(one)
        return one

    yield build
    for one in built:
        one.close()
