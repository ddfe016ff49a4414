"""Every federation's processes are gone when its test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parties import Town

from colonnade.runtimes.processes.fork_server import ForkServer


@pytest.fixture
def town(fork_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Town]]:
    """Builds federations that do not outlive the test."""
    built: list[Town] = []

    def build(*arguments: Any, **options: Any) -> Town:
        one = Town(fork_server, tmp_path / f"town{len(built)}", *arguments, **options)
        built.append(one)
        return one

    yield build
    for one in built:
        one.close()
