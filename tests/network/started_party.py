"""The fork server of the parties that tests start: `python -m started_party SOCKET` loads everything once, then forks.

What it starts is the command line itself. Before that, a test may choose its folder and environment, give it a
terminal, shorten one of the product's pauses, have every byte that is given to a carrier written down, slow the party
down, limit the size of its files or put it on a host of its own (`hosts.py`).
"""

import ctypes
import importlib
import io
import json
import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import colonnade
from colonnade import cli
from colonnade.algorithms.linear_models.afsaga import Afsaga
from colonnade.cli.application import command
from colonnade.launch import party_process
from colonnade.reports import explanation_page, run_page
from colonnade.runtimes import station
from colonnade.runtimes.network.stream import Stream
from colonnade.runtimes.processes import sockets
from colonnade.runtimes.processes.fork_server import serve
from colonnade.wire import certificate_files, certificates


def main(arguments: list[str]) -> int:
    options, *command = arguments
    _prepare(json.loads(options))
    if command[0] == "party":  # of a run with processes, as `colonnade.launch.party_process` starts it
        return party_process.run(command[1:])
    sys.argv = ["colonnade", *command]
    try:
        cli.main()
    except SystemExit as ending:
        return int(ending.code or 0)
    return 0


def _prepare(options: dict[str, Any]) -> None:
    if not options.get("report"):
        run_page.write_report = lambda run, audit=None: run  # figures take seconds to draw
        explanation_page.explanation_page = lambda told: ""
    for place, value in options.get("patches", {}).items():
        module, _, name = place.rpartition(".")
        getattr(importlib.import_module(module), name)  # a name that is gone must not pass for patched
        setattr(importlib.import_module(module), name, value)
    os.environ.update(options.get("environment", {}))
    if "folder" in options:
        os.chdir(options["folder"])
    if "terminal" in options:
        _use_terminal(options["terminal"])
    if "record" in options:
        record_bytes(Path(options["record"]))
    if "milliseconds_an_event" in options:
        _take_time(options["milliseconds_an_event"] / 1000)
    if "milliseconds_a_sync" in options:
        _sync_slowly(options["milliseconds_a_sync"] / 1000)
    if "clock" in options:
        _follow_clock(Path(options["clock"]))
    if "host" in options:
        _move_to(Path(options["host"]))
    if "file_bytes" in options:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["file_bytes"], resource.RLIM_INFINITY))


def _use_terminal(path: str) -> None:
    """What it is told and says, it is told and says there."""
    terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
    for standard in (0, 1, 2):
        os.dup2(terminal, standard)
    os.environ.update(TERM="xterm", NO_COLOR="1")


def record_bytes(path: Path) -> None:
    """Every byte that either carrier is given to write, before any encryption of the link."""
    file: BinaryIO = path.open("ab", buffering=0)
    stream, socket_write = Stream.__init__, sockets.SocketCarrier._write

    def watched(self: Any, *given: Any) -> None:
        stream(self, *given)
        write, put = self.write, self.put

        async def tell(data: bytes) -> None:
            file.write(data)
            await write(data)

        def tell_at_once(data: bytes) -> None:
            file.write(data)
            put(data)

        self.write, self.put = tell, put and tell_at_once

    def watched_socket(self: Any, connection: Any) -> bool:
        for part in connection.unsent:
            file.write(part)  # perhaps again, if the socket takes only a part of it: that hides nothing
        return socket_write(self, connection)

    Stream.__init__ = watched  # type: ignore[method-assign]
    sockets.SocketCarrier._write = watched_socket  # type: ignore[method-assign]


def _take_time(seconds: float) -> None:
    """Every event takes so long: a training that lasts long enough to be disturbed."""
    handle = station.Station._handle

    def slowly(self: Any, item: Any) -> None:
        time.sleep(seconds)
        handle(self, item)

    station.Station._handle = slowly  # type: ignore[method-assign]


def _sync_slowly(seconds: float) -> None:
    """A disk that takes its time."""
    sync = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(seconds)
        sync(descriptor)

    os.fsync = slowly


def _follow_clock(path: Path) -> None:
    """The wall clock is wrong by the seconds in a file, which a test changes while the party runs."""
    true_time, true_now = time.time, certificate_files.utc_now

    def error() -> float:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return float(text or 0)

    time.time = lambda: true_time() + error()
    certificates.utc_now = lambda: true_now() + timedelta(seconds=error())


def _move_to(host: Path) -> None:
    """From here on this process has the network of another host. `os.setns` is there from Python 3.12 on."""
    with host.open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"{host} cannot be entered")


def _load_everything() -> None:
    """What a training would load or compile in every process anew: everything that a small one does."""
    for module in ("sklearn.metrics", "colonnade.launch.join", "colonnade.runtimes.operations"):
        importlib.import_module(module)
    for module in ("colonnade.runtimes.network.tls_lines", "pyarrow.csv", "pyarrow.pandas_compat"):
        importlib.import_module(module)
    data = colonnade.from_arrays(np.arange(24.0).reshape(6, 4), np.arange(6) % 2, parties=2, test_fraction=0.5)
    colonnade.train(data, Afsaga(), training=colonnade.Training(epochs=1, batch_size=3))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "federation.toml"
        file.write_text(
            '[data]\nset = "iris"\nparties = 2\n[training]\nepochs = 1\nbatch_size = 60\n', encoding="utf-8"
        )
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # for people, which takes more words
            command()(["run", str(file), "--out", f"{folder}/run", "--no-report"], standalone_mode=False)
    assert threading.active_count() == 1, "a process with threads must not fork"


if __name__ == "__main__":
    os.fsync = lambda handle: None  # as in conftest.py: no test pulls the plug
    _load_everything()
    serve(int(sys.argv[1]), main)
