"""The one way to write a file: it appears with its whole content, synced, or stays as it was.

And a few file descriptors kept back, so that what must be written can be when a process may open no more.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """The file appears with its whole content, or stays as it was.

    `mode`: who may read it, nobody else from its first byte on; else as the user's umask says.
    """
    with appearing(path) as unfinished:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        _fill(handle, content)
        if mode is not None:
            unfinished.chmod(mode)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """The file is made here or not at all: of two who do this at once, one gets a FileExistsError."""
    _fill(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), content)
    sync_path(path)


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Where to write what is to stand under `path`: at the end it does, synced, or nothing has changed."""
    _remove_leftovers(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield unfinished
        sync_path(unfinished)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


class KeptFiles:
    """File descriptors held open for nothing, to be had when there are no others."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._take()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While this lasts, they are free; afterwards they are taken back, as far as there are any."""
        self.close()
        try:
            yield
        finally:
            self._take()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def __del__(self) -> None:
        self.close()

    def _take(self) -> None:
        with suppress(OSError):  # what is missing is taken the next time
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY))


def sync_path(path: Path) -> None:
    """A file's content is on the disk; of a folder, the names in it."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _fill(handle: int, content: bytes) -> None:
    """Write an open file and close it."""
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _remove_leftovers(path: Path) -> None:
    """What a process that was killed while writing left behind; another one that still writes is left alone."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        process = left.name.split(".")[-2]
        if process == str(os.getpid()) or (process.isdigit() and not _is_alive(int(process))):
            left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and alive
    return True
