"""The program of one party's process, which a fork server starts: `python -m colonnade.launch.party_process SOCKET`.

Reads its seat, takes up its state where a process before it left off, and carries on until the training ends or it is
asked to stop. What it has to say goes to standard output, one JSON object per line, for the process that started it.
"""

import importlib
import json
import os
import shutil
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode
from colonnade.files import make_folder
from colonnade.launch.seated_party import Seat, SeatedParty, read_any_seat, unwritable
from colonnade.runtimes.interrupt import stop_on_interrupt
from colonnade.runtimes.processes.fork_server import serve
from colonnade.runtimes.processes.sockets import SocketCarrier
from colonnade.runtimes.run_lock import only_process_in
from colonnade.threads import compute_with

_ORPHANS_SECONDS = 10.0  # for a process of the same party whose parent was killed: it saves its state and ends


def main(folder: Path) -> int:
    compute_with(1)
    seat = read_any_seat(folder)
    directory = Path(seat.life.directory)
    try:
        make_folder(directory / "journal")
        with only_process_in(directory / "journal", f"{seat.name}.lock", _ORPHANS_SECONDS):
            return take_part(folder, seat)
    except OSError as error:
        failure = unwritable(seat.name, directory, error)
        say({"note": str(failure)})  # for on a full disk the log has no room for it either
        raise failure from None


def take_part(folder: Path, seat: Seat) -> int:
    """A party's whole life, as the exit code of its process."""
    life = seat.life
    if seat.name != seat.label_party:
        os.nice(5)  # where there are fewer cores than parties, the one that everybody waits for goes first
    seated = SeatedParty(seat, say)
    with stop_on_interrupt(quiet=True) as stop, closing(seated):
        carrier = SocketCarrier(
            seated.station,
            life.order,
            Path(life.sockets),
            linger_seconds=life.endurance.linger_seconds,
            stop_requested=stop,
            watch=seated.report,
            parent=0,
        )
        with closing(carrier):
            finished = carrier.run()
            seated.save()
    if carrier.parent_is_gone:
        shutil.rmtree(folder, ignore_errors=True)  # nobody else will: it holds this party's data
        for shared in (folder.parent, Path(life.sockets)):
            with suppress(OSError):
                shared.rmdir()  # the last one's deed
    return ExitCode.DONE if finished else ExitCode.STOPPED


def say(line: dict[str, Any]) -> None:
    """Tell the process that started this one."""
    with suppress(BrokenPipeError, ValueError):  # nobody listens any more; the end of the other pipe says so too
        print(json.dumps(line), flush=True)


def run(arguments: list[str]) -> int:
    """A started process: its exit code, and one sentence in its log if it failed by itself."""
    try:
        return main(Path(arguments[0]))
    except ColonnadeError as error:
        with suppress(OSError):  # the log is a file, too
            print(error, file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    importlib.import_module("numba")  # which each party of a linear federation would load again
    serve(int(sys.argv[1]), run)
