"""The one way to make, write, open and read files.

Written, a file appears with its whole content, synced, or stays as it was. What may hold private data is its owner's
alone, whatever the umask says: folders 0700, files 0600. What is gone on with must be ours or root's, with nobody else
able to change it, and no link: a run directory that another user has laid out is refused, not used. A few file
descriptors are kept back, so that what must be written can be when a process may open no more.
"""

import fcntl
import json
import logging
import os
import pwd
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from colonnade.errors import RunError

FOLDER = 0o700
PRIVATE = 0o600
SHARED = None
"""For pages and pictures that somebody asked for by name: as the umask says, and never for others to change."""

MOST_BYTES = 1 << 30
"""What is read at once of a file that somebody else may have written."""

_OTHERS = 0o077
_OTHERS_WRITE = 0o022

log = logging.getLogger("colonnade")


# --- writing ------------------------------------------------------------------------------------------------------


def make_folder(path: Path, exist_ok: bool = True, mode: int | None = FOLDER) -> None:
    """A folder of ours alone, if there is none. Those above it, if they are missing, are made as the umask says."""
    try:
        path.mkdir(0o755 if mode is SHARED else mode, parents=True)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        _check_owner(path, path.lstat())  # of a link: who made it has chosen where it leads
        return
    if mode is not SHARED:
        path.chmod(mode)


def write_atomically(path: Path, content: bytes, mode: int | None = PRIVATE) -> None:
    """The file appears with its whole content, or stays as it was."""
    with appearing(path, mode) as unfinished:
        _fill(os.open(unfinished, os.O_WRONLY | os.O_NOFOLLOW), content)


def write_private(path: Path, content: bytes) -> None:
    """A file of ours with this content, neither synced nor whole after a crash: for what can be written again."""
    _fill(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), content)


def write_new(path: Path, content: bytes, mode: int | None = PRIVATE) -> None:
    """The file is made here or not at all: of two who do this at once, one gets a FileExistsError."""
    _fill(_created(path, mode), content)
    sync_path(path)


@contextmanager
def appearing(path: Path, mode: int | None = PRIVATE) -> Iterator[Path]:
    """Where to write what is to stand under `path`: at the end it does, synced, or nothing has changed.

    The file is there already, empty, so that nobody else can read it from its first byte on.
    """
    _remove_leftovers(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.close(_created(unfinished, mode))
        yield unfinished
        if mode is not SHARED:
            unfinished.chmod(mode)  # a library may have put a file of its own there
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


def _created(path: Path, mode: int | None) -> int:
    """A new file, open for writing, with its mode whatever the umask says, unless the umask is to say."""
    first = 0o644 if mode is SHARED else PRIVATE
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, first)
    if mode is not SHARED:
        os.fchmod(handle, mode)
    return handle


def _remove_leftovers(path: Path) -> None:
    """What a process that was killed while writing left behind; another one that still writes is left alone."""
    start = f".{path.name}."
    for name in names_in(path.parent):
        if name.startswith(start) and name.endswith(".tmp"):
            process = name.split(".")[-2]
            if process == str(os.getpid()) or (process.isdigit() and not _is_alive(int(process))):
                path.with_name(name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and alive
    return True


# --- opening what we have written -----------------------------------------------------------------------------------


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One process at a time; others wait. The lock is the operating system's: it goes with its process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_private(path: Path, flags: int) -> int:
    """A file of ours, opened as `os.open` does, made with 0600 if `flags` say so. RunError if it cannot be trusted."""
    handle = _opened(path, flags & ~os.O_TRUNC)
    try:
        found = os.fstat(handle)
        _check_owner(path, found)
        if found.st_mode & _OTHERS_WRITE:
            raise _changeable(path, path, found)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != PRIVATE:
            os.fchmod(handle, PRIVATE)
        if flags & os.O_TRUNC:
            os.ftruncate(handle, 0)  # not before it is known whose it is
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_private(path: Path) -> bytes:
    """The content of a file of ours."""
    with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read()


def names_in(folder: Path) -> list[str]:
    """Of the files there; none where there is no such folder, or we may not look."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def take_over(directory: Path) -> None:
    """Make sure that a run directory can be gone on with: that nobody else can have laid it out or changed it.

    Where others could only read it, they no longer can, and a line says so. RunError names what cannot be trusted.
    """
    top = directory.lstat()
    _check_owner(directory, top)  # of a link, too: who made it has chosen where it leads
    top = directory.stat()
    _check_owner(directory, top)
    if not stat.S_ISDIR(top.st_mode):
        raise RunError(f"{directory} is not a directory. Choose another one with --out.")
    if top.st_mode & _OTHERS_WRITE:
        raise _changeable(directory, directory, top)
    was_closed = not top.st_mode & _OTHERS  # then nobody else has come to what is in it
    wider = [] if was_closed else [(directory, top)]
    for path, found in _everything_in(directory):
        _check_owner(path, found)
        if not was_closed and found.st_mode & _OTHERS_WRITE:
            raise _changeable(path, directory, found)
        if found.st_mode & _OTHERS:
            wider.append((path, found))
    for path, found in wider:
        if found.st_uid == os.geteuid():
            with suppress(FileNotFoundError):  # a process that still writes has renamed it
                path.chmod(FOLDER if stat.S_ISDIR(found.st_mode) else PRIVATE)
    if not was_closed and top.st_uid == os.geteuid():
        log.warning("%s could be read by other users of this machine; it no longer can (0700, files 0600).", directory)


def _everything_in(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All files and folders below, with what they are; RunError for a link or anything stranger."""
    for entry in sorted(directory.iterdir()):
        try:
            found = entry.lstat()
        except FileNotFoundError:
            continue  # a process that still writes has renamed it
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            raise _no_file(entry, found)
        yield entry, found
        if stat.S_ISDIR(found.st_mode):
            yield from _everything_in(entry)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise RunError(
            f"{path} belongs to {_user(found.st_uid)}, and this program runs as {_user(os.geteuid())}: what another "
            "user has laid out is not used. Choose another directory with --out; if the file is yours after all, "
            f"`chown` it to {_user(os.geteuid())}."
        )


def _changeable(path: Path, directory: Path, found: os.stat_result) -> RunError:
    return RunError(
        f"{path} belongs to {_user(found.st_uid)}, but others may change it (mode {stat.S_IMODE(found.st_mode):04o}). "
        f"If nobody has, run `chmod -R go-w {directory}`; else begin a new run in another directory (--out)."
    )


def _no_file(path: Path, found: os.stat_result) -> RunError:
    if stat.S_ISLNK(found.st_mode):
        return RunError(
            f"{path} is a link (made by {_user(found.st_uid)}), and links in a run directory are not followed. Put the "
            "file itself there, or remove the link."
        )
    return RunError(f"{path} is {_kind(found.st_mode)}, not a file. Remove it, or give the path of a file.")


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


# --- reading what anybody may have written --------------------------------------------------------------------------


def open_to_read(path: Path) -> BinaryIO:
    """A file that somebody gave us: whoever owns it, but neither a link nor anything that is no file."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def read_whole(path: Path, most_bytes: int = MOST_BYTES, *, links: bool = False) -> bytes:
    """The content of such a file; with `links` also through a link. RunError if it is larger, or no file."""
    with os.fdopen(_opened(path, os.O_RDONLY, links), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise RunError(f"{path} is larger than the {most_bytes:,} bytes that such a file may have.")
        return file.read()


def json_of(content: bytes | str) -> Any:
    """A JSON value. A ValueError is all that can go wrong, also for brackets too deep and numbers too long."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def json_text(value: Any, **how: Any) -> bytes:
    """For people to read, byte for byte as `json.dumps` writes it with `indent=1`, which takes three times as long.

    `how`: for `json.dumps`. A number that is not finite stands in no JSON, and only `json.dumps` writes it.
    """
    try:
        return msgspec.json.format(json.dumps(value, **how).encode(), indent=1)
    except msgspec.DecodeError:
        return json.dumps(value, indent=1, **how).encode()


def toml_of(content: bytes) -> dict[str, Any]:
    """The values of a TOML file; the same of errors. Whoever walks through the values need not fear their depth."""
    try:
        values = tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None
    check_depth(values)
    return values


def check_depth(value: Any, deepest: int = 64) -> None:
    """ValueError for tables in tables in tables, or an integer that TOML does not know."""
    tables = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        level = [inner for one in tables for inner in _inner(one)]
        if not level:
            return
        tables = [one for one in level if isinstance(one, (dict, list))]  # a union type would take longer
        if any(not -(1 << 63) <= one < 1 << 63 for one in level if isinstance(one, int)):
            raise ValueError("an integer has more than 64 bits")
    raise ValueError(f"tables or lists are nested more than {deepest} deep")


def _inner(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _opened(path: Path, flags: int, links: bool = False) -> int:
    """Opening waits for nobody: a pipe would else wait for whoever writes to it."""
    following = 0 if links else os.O_NOFOLLOW
    try:
        handle = os.open(path, flags | following | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE)
    except OSError:
        with suppress(OSError):
            found = path.stat() if links else path.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise _no_file(path, found) from None
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise _no_file(path, found)
    return handle


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
