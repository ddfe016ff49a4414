"""Files that grow while they are read: each look gives the whole lines that have come since the one before."""

import os
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.files import check_depth, json_of, open_to_read

_MOST_BYTES = 64 << 20
"""Read at once. What a longer file held before is left out."""


class Tail:
    """The lines of one file. One that was written anew is read from its beginning."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._position = 0
        self._inode: int | None = None

    def look(self) -> tuple[bool, list[bytes]]:
        """Whether to forget the earlier lines, and the lines that are new."""
        try:
            with open_to_read(self._path) as file:
                found = os.fstat(file.fileno())
                anew = self._inode is not None and (found.st_ino != self._inode or found.st_size < self._position)
                if self._inode is None or anew:
                    self._inode, self._position = found.st_ino, max(0, found.st_size - self._most_bytes)
                if found.st_size == self._position:
                    return anew, []
                file.seek(self._position)
                new = file.read()
        except (OSError, RunError):
            return False, []  # not there yet, or gone: what was read of it stays
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        return anew, whole.splitlines()


def objects(lines: list[bytes]) -> list[dict[str, Any]]:
    """The JSON objects among these lines; a line that is torn, or anything else, is left out."""
    found = []
    for line in lines:
        try:
            value = json_of(line)
            check_depth(value)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
