"""Messages that a party could not handle, put aside: what was sent, by whom, and which error it ended in.

Of the error only its kind and the place in the program are kept, no words: these may hold values. The folder is its
user's alone, and bounded: what does not fit is described, or at last only logged, and not kept.
"""

import json
import traceback
from pathlib import Path

from colonnade.files import make_folder, write_private
from colonnade.party import Received

MOST_EVENTS = 16
MOST_BYTES = 64 << 20
"""Of frames together. A sender is expelled for its first, so more events than peers never come."""


def kind_and_place(error: BaseException) -> tuple[str, str]:
    """An error without its words: what it is called, and where in the program it arose."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "an unknown place"
    return type(error).__name__, place


class Quarantine:
    """The folder `quarantine` of a run directory, for one party's share of it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.folder = directory / "quarantine"
        self._name = name

    def put(self, event: Received, frame: bytes | bytearray, error: BaseException) -> Path | None:
        """Keep an event with its error; where. None if there is no room for it."""
        kept = sorted(self.folder.glob(f"{self._name}-*.json"))
        if len(kept) >= MOST_EVENTS:
            return None
        make_folder(self.folder)
        held = sum(path.stat().st_size for path in self.folder.glob(f"{self._name}-*.frame"))
        path = self.folder / f"{self._name}-{len(kept) + 1:04d}.json"
        fits = held + len(frame) <= MOST_BYTES
        described = {
            "sender": event.sender,
            "now": event.now,
            "message": type(event.message).__name__,
            "frame_bytes": len(frame),
            "frame_is_kept": fits,
            **dict(zip(("error", "where"), kind_and_place(error), strict=True)),
        }
        if fits:
            write_private(path.with_suffix(".frame"), bytes(frame))
        write_private(path, json.dumps(described).encode() + b"\n")
        return path


def is_our_own(error: Exception) -> bool:
    """Whether an error is this machine's: a disk, or a want of memory, of which torch has an error of its own."""
    return isinstance(error, OSError | MemoryError) or "allocate memory" in str(error)
