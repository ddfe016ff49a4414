"""The program of one party's process, started by a fork server: `python -m colonnade.launch.party_process SOCKET`.

Reads its seat, takes up its state where a process before it left off, and carries on until the training ends or it is
asked to stop. What it has to say goes to standard output, one JSON object a line, for the process that started it.
"""

import importlib
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from colonnade.cli.output import stop_on_interrupt
from colonnade.errors import ColonnadeError, RunError
from colonnade.federation.building import build_alone, build_party
from colonnade.launch.seat_files import SeatFiles, read_seat
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Company
from colonnade.runtimes.processes.fork_server import serve
from colonnade.runtimes.processes.sockets import SocketCarrier
from colonnade.runtimes.processes.supervisor import STOPPED
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.station import Books, Pace, Station
from colonnade.settings import build

_REPORT_SECONDS = 0.5
_ORPHANS_SECONDS = 10.0  # for a process of the same party whose parent was killed: it saves its state and ends


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    seat = read_seat(folder)
    directory = Path(seat.life["directory"])
    try:
        (directory / "journal").mkdir(exist_ok=True)
        with only_process_in(directory / "journal", f"{seat.owns[0].name}.lock", _ORPHANS_SECONDS):
            return take_part(folder, seat)
    except OSError as error:
        failure = unwritable(seat.owns[0].name, directory, error)
        say({"note": str(failure)})  # for on a full disk the log has no room for it either
        raise failure from None


def unwritable(name: str, directory: Path, error: OSError) -> RunError:
    """A party's disk has failed it: which file or directory, how, and what to do."""
    return RunError(
        f"{name} could not write its state in {error.filename or directory}: {error.strerror or error}. Free some "
        "space there, then continue with --resume: every party goes on where its journal ends."
    )


def take_part(folder: Path, seat: SeatFiles) -> int:
    """A party's whole life, as the exit code of its process."""
    life = seat.life
    name = seat.owns[0].name
    directory = Path(life["directory"])
    endurance = build(Endurance, life["endurance"], "endurance")
    leads = name == seat.facts.label_party
    if not leads:
        os.nice(5)  # where there are fewer cores than parties, the one that everybody waits for goes first
    recorder = Recorder(
        seat.facts.label_party, directory if leads else None, lambda line: say({"line": line}), virtual=False
    )
    station = Station(
        name,
        build_seat(seat),
        Company(life["peers"], seat.facts.label_party),
        directory,
        Books(
            recorder,
            lambda position: Ledger(directory / "ledger" / f"{name}.jsonl", position),
            trace=life["trace"],
        ),
        endurance=endurance,
        pace=Pace(life["slowdown"], life["compute_seconds"]),
    )
    with stop_on_interrupt(quiet=True) as stop:
        carrier = SocketCarrier(
            station,
            [*life["order"]],
            Path(life["sockets"]),
            linger_seconds=endurance.linger_seconds,
            stop_requested=stop,
            watch=Reports(station),
            parent=0,
        )
        try:
            finished = carrier.run()
            station.save()
        finally:
            carrier.close()
            station.close()
            recorder.close()
    if carrier.parent_is_gone:
        shutil.rmtree(folder, ignore_errors=True)  # nobody else will: it holds this party's data
        for shared in (folder.parent, Path(life["sockets"])):
            with suppress(OSError):
                shared.rmdir()  # the last one's deed
    return 0 if finished else STOPPED


def build_seat(seat: SeatFiles) -> Party:
    if seat.plan.is_alone:
        return build_alone(seat.owns, seat.facts, seat.plan)
    return build_party(seat.owns[0], seat.facts, seat.plan)


class Reports:
    """Tells the parent, twice a second, how far this party is."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _REPORT_SECONDS
        counts = self._station.party.counts()
        say(
            {
                "exchanges": counts["exchanges"],
                "steps": counts["steps"],
                "waits_for": self._station.absent() if self._station.started else [],
                "queue": self._station.queue_depth(),
            }
        )


def say(line: dict[str, Any]) -> None:
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
    importlib.import_module("sklearn.metrics")  # what a first evaluation would load in every party's process
    serve(int(sys.argv[1]), run)
