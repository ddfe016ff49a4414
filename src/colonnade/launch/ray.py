"""A federation as Ray actors: each is handed its own seat and nobody else's, and lives where the cluster has room.

An actor that Ray starts again, perhaps on another node, takes up its state from the run directory, which all nodes must
therefore see. When all have ended, their books are brought together from there.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from colonnade.errors import ColonnadeError, RunError
from colonnade.federation.building import PrivateData
from colonnade.federation.plan import Facts, Plan
from colonnade.launch.party_process import build_seat, unwritable
from colonnade.launch.processes import RunRecord, gather, peers_of
from colonnade.launch.seat_files import SeatFiles, read_seat, write_seat
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Company
from colonnade.runtimes.ray.carrier import CallCarrier
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.ray.supervisor import ActorSupervisor
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import Books, Station
from colonnade.settings import as_values, build

_REPORT_SECONDS = 0.5


class PartyActor:
    """One party's actor. It is given bytes, text and plain tables, and gives no other things back."""

    def __init__(self, name: str) -> None:
        torch.set_num_threads(1)
        self._name = name  # by which Ray knows it
        self._carrier: CallCarrier | None = None
        self._news: list[dict[str, Any]] = []
        self._stop = False
        self._next_report = 0.0

    @ray.method(max_task_retries=-1)  # lived again whenever Ray starts the actor again
    async def live(self, files: dict[str, bytes], peers: dict[str, Any]) -> dict[str, Any]:
        """A party's whole life: `{"finished": …}`, or `{"failed": why}`. `peers` are the others' actors."""

        async def call(peer: str, method: str, *arguments: Any) -> bool:
            try:
                return bool(await getattr(peers[peer], method).remote(*arguments))
            except RayError as error:
                raise ConnectionError(peer) from error

        directory = Path(tempfile.gettempdir())  # where the seat is laid down, and then the run's
        try:
            with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
                for file, content in files.items():
                    (Path(folder) / file).write_bytes(content)
                seat = read_seat(Path(folder))
            directory = Path(seat.life["directory"])
            return {"finished": await self._take_part(seat, call)}
        except ColonnadeError as error:
            return {"failed": str(error)}
        except OSError as error:
            return {"failed": str(unwritable(self._name, directory, error))}

    async def _take_part(self, seat: SeatFiles, call: Callable[..., Any]) -> bool:
        life = seat.life
        name = seat.owns[0].name
        directory = Path(life["directory"])
        if not (directory / "federation.toml").exists():
            raise RunError(
                f"The run directory {directory} is not there on the node on which {name} lives. Choose one with --out "
                "that all nodes of the cluster share."
            )
        endurance = build(Endurance, life["endurance"], "endurance")
        leads = name == seat.facts.label_party
        recorder = Recorder(seat.facts.label_party, directory if leads else None, self._tell_line, virtual=False)
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
        )
        self._carrier = CallCarrier(
            station,
            life["order"],
            call,
            calls_in_flight=life["calls_in_flight"],
            linger_seconds=endurance.linger_seconds,
            stop_requested=lambda: self._stop,
            watch=lambda: self._report(station),
        )
        try:
            finished = await self._carrier.run()
            station.save()
        finally:
            station.close()
            recorder.close()
        self._next_report = 0.0
        self._report(station)
        return finished

    async def meet(self, peer: str, token: str) -> bool:
        """A peer proposes a link."""
        return self._carrier is not None and self._carrier.meet(peer, token)

    async def deliver(self, peer: str, token: str, number: int, batch: bytes) -> bool:
        """A peer's bytes."""
        return self._carrier is not None and await self._carrier.deliver(peer, token, number, batch)

    async def news(self) -> list[dict[str, Any]]:
        """What has been said since this was last asked."""
        news, self._news = self._news, []
        return news

    async def stop(self) -> None:
        """Save and end."""
        self._stop = True

    def _tell_line(self, line: dict[str, Any]) -> None:
        self._news.append({"line": line})

    def _report(self, station: Station) -> None:
        if time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + _REPORT_SECONDS
        counts = station.party.counts()
        # One report stands for those before it that nobody has asked for.
        self._news = [one for one in self._news if "line" in one]
        self._news.append(
            {
                "exchanges": counts["exchanges"],
                "steps": counts["steps"],
                "waits_for": station.absent() if station.started else [],
                "queue": station.queue_depth(),
                "actor": self._name,
                "node": ray.get_runtime_context().get_node_id(),
            }
        )


def run_actors(
    parties: Mapping[str, Party],
    owns: list[PrivateData],
    facts: Facts,
    plan: Plan,
    settings: Ray,
    directory: Path,
    *,
    trace: bool,
    checkpoint_seconds: float,
    watch: Callable[[dict[str, Any]], None] | None,
    report: Callable[[str, dict[str, Any]], None] | None,
    stop_requested: Callable[[], bool],
) -> RunRecord:
    """Run every party as an actor of the cluster that Ray is connected to; `parties` are then given their states."""

    def hear(party: str, said: dict[str, Any]) -> None:
        if "line" in said:
            if watch is not None:
                watch(said["line"])
        elif report is not None:
            report(party, said)

    order = [*parties]
    seats = {}
    peers = {name: peers_of(name, order, facts, plan) for name in order}
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
        for name in order:
            life = {
                "directory": str(directory.absolute()),
                "order": order,
                "peers": peers[name],
                "endurance": {**as_values(settings.endurance), "checkpoint_seconds": checkpoint_seconds},
                "calls_in_flight": settings.calls_in_flight,
                "trace": trace,
            }
            own = tuple(owns) if plan.is_alone else tuple(one for one in owns if one.name == name)
            seat = Path(folder) / f"seat-{name}"
            write_seat(seat, own, facts, plan, life)
            seats[name] = {file.name: file.read_bytes() for file in seat.iterdir()}
    supervisor = ActorSupervisor(PartyActor, seats, peers, settings, watch=hear, stop_requested=stop_requested)
    return gather(parties, facts.label_party, directory, supervisor.run())
