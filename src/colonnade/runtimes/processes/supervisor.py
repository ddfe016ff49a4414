"""One operating-system process per party, watched over by the one that started them.

The parent starts every party, shows what they report, starts a party again that was killed, and gives up with that
party's last words if it fails by itself. A party reads the parent's end of a pipe: when the parent is gone, however it
went, the party saves its state and ends, so no orphan is left.
"""

import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.exit_codes import ExitCode
from colonnade.files import make_folder
from colonnade.runtimes.processes.fork_server import Child, ForkServer
from colonnade.runtimes.processes.settings import Processes

_STOP_SECONDS = 20.0
"""How long a party may take to save its state before it is killed."""
_LAST_LINES = 8


@dataclass
class _Child:
    """A party's process, and what it said last."""

    name: str
    arguments: list[str]
    log: Path
    process: Child
    said: bytes = b""
    starts: int = 1
    finished: bool = False
    last_note: str = ""  # what it had to say when its log could not be written any more


class ProcessSupervisor:
    """The parties' processes, from their start to the last one's end."""

    def __init__(
        self,
        fork_server: ForkServer,
        arguments: Mapping[str, list[str]],
        logs: Path,
        settings: Processes,
        *,
        watch: Callable[[str, dict[str, Any]], None],
        stop_requested: Callable[[], bool],
    ) -> None:
        self._fork_server = fork_server
        self._settings = settings
        self._watch = watch
        self._stop_requested = stop_requested
        self._selector = selectors.DefaultSelector()
        self.restarts = 0
        make_folder(logs)
        self._children: dict[str, _Child] = {}
        try:
            for name, own in arguments.items():
                log = logs / f"{name}.log"
                child = _Child(name, own, log, fork_server.start(name, own, log))
                self._children[name] = child
                self._selector.register(child.process.stdout, selectors.EVENT_READ, child)
        except OSError as error:
            self.kill()
            raise RunError(f"A party's process could not be started: {error.strerror}.") from None
        except RunError:
            self.kill()
            raise

    def run(self) -> bool:
        """Watch until everybody has finished (True) or a stop was asked for and everybody has saved (False)."""
        try:
            while not all(child.finished for child in self._children.values()):
                if self._stop_requested():
                    self._stop()
                    return False
                for key, _ in self._selector.select(0.1):
                    self._hear(key.data)
                for child in self._children.values():
                    if not child.finished and child.process.poll() is not None:
                        self._reap(child)
            return True
        finally:
            self.kill()

    def _hear(self, child: _Child) -> None:
        try:
            said = os.read(child.process.stdout, 1 << 16)
        except BlockingIOError:
            return
        if not said:
            self._selector.unregister(child.process.stdout)
            return
        *lines, child.said = (child.said + said).split(b"\n")
        for line in lines:
            told = json.loads(line)
            child.last_note = told.get("note", child.last_note)
            self._watch(child.name, told)

    def _reap(self, child: _Child) -> None:
        """A process has ended: well, by its own failure, or by somebody's signal."""
        while child.process.stdout in self._selector.get_map():
            self._hear(child)  # to the end: the process holds its end of the pipe no more
        code = child.process.poll() or 0
        if code == 0:
            child.finished = True
            return
        how = f"was ended by {_signal_name(-code)}" if code < 0 else "was told to stop by somebody else"
        if (code < 0 or code == ExitCode.STOPPED) and self.restarts < self._settings.restarts:
            self.restarts += 1
            child.starts += 1
            child.said = b""
            self._watch(child.name, {"note": f"{child.name} {how}; it is started again"})
            child.process.close()
            child.process = self._fork_server.start(child.name, child.arguments, child.log)
            self._selector.register(child.process.stdout, selectors.EVENT_READ, child)
            return
        what = how if code < 0 or code == ExitCode.STOPPED else "failed"
        if child.last_note:
            raise RunError(f"The party {child.name} {what}: {child.last_note}")
        raise RunError(f"The party {child.name} {what}. The end of its log, {child.log}:\n{last_lines(child.log)}")

    def _stop(self) -> None:
        """Ask everybody to save and end; who does not in time is killed, and goes on from its journal."""
        for child in self._children.values():
            child.process.send(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children.values():
            child.process.wait(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Leave nobody behind."""
        for child in self._children.values():
            with suppress(RunError):  # the fork server is gone: then a closed pipe tells the party to end
                child.process.send(signal.SIGKILL)
                child.process.wait(_STOP_SECONDS)
            child.process.close()
        self._selector.close()


def last_lines(log: Path) -> str:
    """The end of a party's log."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join(lines[-_LAST_LINES:]) or "(it is empty)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
