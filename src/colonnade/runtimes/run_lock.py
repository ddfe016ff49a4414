"""One process at a time in a run directory: two would write the same checkpoints, journals and ledger.

The lock is the operating system's, on the file `lock`: it goes with the process, however that ends. Of a run with a
process for each party, each holds one of its own besides: it may outlive the one that started it by a moment.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import RunError
from colonnade.files import open_private


@contextmanager
def only_process_in(directory: Path, lock: str = "lock", patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold a run directory against a second process. RunError if there is one, and it does not end in time."""
    handle = open_private(directory / lock, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + patience_seconds
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RunError(
                        f"Another process takes part from {directory} already. Wait for its end, or stop it; or choose "
                        "another directory with --out."
                    ) from None
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)
