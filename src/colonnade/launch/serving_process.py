"""The program of a serving feature party's process on one machine, which a fork server starts."""

import json
import sys
import time
from pathlib import Path
from typing import cast

from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode
from colonnade.federation.file import read_federation
from colonnade.prediction.own_rows import id_form
from colonnade.runtimes.interrupt import stop_on_interrupt
from colonnade.runtimes.links import Peers
from colonnade.runtimes.processes.fork_server import serve
from colonnade.runtimes.processes.sockets import SocketCarrier
from colonnade.runtimes.station import Station
from colonnade.serving.feature_party import ServingFeatureParty
from colonnade.serving.live_rows import LiveRows
from colonnade.serving.station import LiveStation
from colonnade.serving.versions import Versions
from colonnade.threads import compute_with

_LOOK_SECONDS = 1.0


def main(name: str, run: Path, sockets: Path, order: list[str], shadow: str) -> int:
    compute_with(1)
    label_party = order[0]
    federation = read_federation(run / "federation.toml")
    form = id_form(order, federation.data, federation.alignment)
    rows = LiveRows(name, federation.party_data()[name], federation.data, form, run)
    versions = Versions(run, name)
    beside = Versions(Path(shadow), name) if shadow else None
    party = ServingFeatureParty(name, label_party, versions, rows, run / f"served-{name}.jsonl", beside)
    station = LiveStation(name, Peers([label_party], label_party), party.handle, party.notice, strangers=False)
    next_look = 0.0

    def look() -> None:
        nonlocal next_look
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + _LOOK_SECONDS
            if versions.look() and station.present:
                for news in party.told():
                    station.ask(label_party, news)

    with stop_on_interrupt(quiet=True) as stop:
        carrier = SocketCarrier(
            cast(Station, station),  # which it turns alike
            order,
            sockets,
            linger_seconds=0,
            stop_requested=stop,
            watch=look,
            parent=0,
        )
        try:
            carrier.run()
        finally:
            carrier.close()
    return ExitCode.DONE


def run(arguments: list[str]) -> int:
    """A started process: its exit code, and one sentence in its log if it failed by itself."""
    name, directory, sockets, order, shadow = arguments
    try:
        return main(name, Path(directory), Path(sockets), json.loads(order), shadow)
    except ColonnadeError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    serve(int(sys.argv[1]), run)
