"""A process that has loaded everything once and becomes a party on request: by fork, in milliseconds.

Loading PyTorch takes seconds, and a federation would pay them once per party and again for every restart. This process
does nothing but wait, so it has no threads and no work under way when it forks (forking after either can hang). It is
told what to start over a socket, and tells of every party's end over the same; when that is closed it ends, too.
"""

import atexit
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from colonnade.errors import RunError
from colonnade.files import open_private

_LONGEST_REQUEST = 1 << 16
_PR_SET_NAME = 15
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
"""One thread per party: more would fight over the cores with the other parties. And none before a fork."""


class Child:
    """A started process: as much of `subprocess.Popen` as its owner needs."""

    def __init__(self, fork_server: "ForkServer", pid: int, stdin: int, stdout: int) -> None:
        self._fork_server = fork_server
        self.pid = pid
        self.stdin = stdin  # while this end is open, the process knows that its owner lives
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._fork_server.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended within the time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        for handle in (self.stdin, self.stdout):
            with suppress(OSError):
                os.close(handle)


class ForkServer:
    """The owner's end."""

    def __init__(self, module: str) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ended: dict[int, int] = {}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **THREADS},
                start_new_session=True,  # Ctrl-C reaches the owner alone, who then asks everybody to save
            )

    def start(self, title: str, arguments: list[str], log: Path) -> Child:
        """Start a party; what it says besides goes to the end of the log."""
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        with os.fdopen(open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
            request = json.dumps([title, arguments]).encode()
            try:
                socket.send_fds(self._link, [request], [stdin_read, stdout_write, file.fileno()])
                pid = self._answer()
            except OSError:
                raise self._gone() from None
            finally:
                os.close(stdin_read)
                os.close(stdout_write)
        os.set_blocking(stdout_read, False)
        return Child(self, pid, stdin_write, stdout_read)

    def _answer(self) -> int:
        while True:
            word, *numbers = self._hear()
            if word == "started":
                return int(numbers[0])

    def ended(self, pid: int) -> int | None:
        """How a process ended, if it has."""
        self._link.setblocking(False)
        try:
            while pid not in self._ended:
                self._hear()
        except BlockingIOError:
            pass
        finally:
            self._link.setblocking(True)
        return self._ended.pop(pid, None)

    def _hear(self) -> list[Any]:
        data = self._link.recv(_LONGEST_REQUEST)
        if not data:
            raise self._gone()
        said: list[Any] = json.loads(data)
        if said[0] == "ended":
            self._ended[said[1]] = said[2]
        return said

    def _gone(self) -> RunError:
        return RunError("The process that starts the parties has ended. Resume the run: every party has its journal.")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._link.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


_fork_servers: dict[str, ForkServer] = {}


def fork_server_for(module: str) -> ForkServer:
    """This process's fork server for that program, started when it is first needed."""
    fork_server = _fork_servers.get(module)
    if fork_server is None or not fork_server.alive:
        if fork_server is None:
            atexit.register(lambda: _fork_servers[module].close())
        else:
            fork_server.close()
        fork_server = _fork_servers[module] = ForkServer(module)
    return fork_server


# --- the fork server's own end ----------------------------------------------------------------------------------


def serve(handle: int, main: Callable[[list[str]], int]) -> None:
    """Start what is asked for until the other end is closed. `main` is what a started process runs."""
    link = socket.socket(fileno=handle)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    gc.freeze()  # so that collecting in a child does not copy what it shares with the others
    selector = selectors.DefaultSelector()
    selector.register(link, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is link:
                try:
                    request, handles, _, _ = socket.recv_fds(link, _LONGEST_REQUEST, 3)
                except ConnectionResetError:  # the owner is gone, and has not heard everything
                    return
                if not request:
                    return
                title, arguments = json.loads(request)
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    link.close()
                    _become(title, handles, arguments, main)
                for one in handles:
                    os.close(one)
                link.send(json.dumps(["started", pid]).encode())
            else:
                os.read(wake_read, 512)
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                link.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def _become(title: str, handles: list[int], arguments: list[str], main: Callable[[list[str]], int]) -> NoReturn:
    """The rest of a started process's life."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for place, handle in enumerate(handles):
            os.dup2(handle, place)
            os.close(handle)
        with suppress(OSError, AttributeError):  # what `ps` and `top` call it; only Linux has this
            ctypes.CDLL(None).prctl(_PR_SET_NAME, title.encode()[:15], 0, 0, 0)
        code = main(arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
