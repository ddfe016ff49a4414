"""The memory of this process and of all that it starts, looked at from time to time while something runs (Linux)."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def watched(sizes: dict[int, int], size: Callable[[int], int], every_seconds: float) -> Iterator[None]:
    """While this holds, `sizes` gains the most that `size` tells of each process."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(every_seconds):
            for process in descendants(os.getpid()):
                sizes[process] = max(sizes.get(process, 0), size(process))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def descendants(root: int) -> set[int]:
    """A process, and all that it has started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = {root}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def peak_bytes(process: int) -> int:
    """The peak of its resident memory; 0: it has ended."""
    return _told(process, "status", "VmHWM")


def private_bytes(process: int) -> int:
    """What it has written to and shares with nobody; 0: it has ended."""
    return _told(process, "smaps_rollup", "Private_Dirty")


def _told(process: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
