"""Ctrl-C and SIGTERM as a request: the run stops at the next event and saves its state."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopOnInterrupt:
    """Turns the first Ctrl-C (or SIGTERM) into a request to stop at the next exchange; a second one is not caught."""

    def __init__(self, quiet: bool = False) -> None:
        self.requested = False
        self._quiet = quiet

    def __call__(self) -> bool:
        return self.requested

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._quiet:
            return
        # Not print: the signal may have come in the middle of one, which may not be entered twice.
        os.write(2, "\nStopping: the checkpoint is being written …\n".encode())


@contextmanager
def stop_on_interrupt(quiet: bool = False) -> Iterator[StopOnInterrupt]:
    """While this holds, Ctrl-C and SIGTERM end a run cleanly."""
    stop = StopOnInterrupt(quiet)
    before = {number: signal.signal(number, stop._request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
