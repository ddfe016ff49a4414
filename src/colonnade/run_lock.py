"""One process at a time in a run directory: two would write the same checkpoints, journals and ledger.

The lock is the operating system's, on the file `lock`: it goes with the process, however that ends.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import RunError


@contextmanager
def only_process_in(directory: Path) -> Iterator[None]:
    """Hold a run directory against a second process. RunError if there is one."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"Another process takes part from {directory} already. Wait for its end, or stop it; or choose another "
                "directory with --out."
            ) from None
        yield
    finally:
        os.close(handle)
