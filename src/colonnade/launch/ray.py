"""A federation as Ray actors: each is handed its own seat and nobody else's, and lives where the cluster has room.

An actor that Ray starts again, perhaps on another node, takes up its state from the run directory, which all nodes must
therefore see. When all have ended, their records are brought together from there.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from colonnade.errors import ColonnadeError, RunError
from colonnade.files import write_private
from colonnade.launch.processes import check_named, lives_of
from colonnade.launch.run_options import RunOptions
from colonnade.launch.run_record import RunRecord, gather
from colonnade.launch.runnable import Runnable, write_seats
from colonnade.launch.seated_party import Seat, SeatedParty, progress_of, read_any_seat, unwritable
from colonnade.runtimes.ray.carrier import CallCarrier
from colonnade.runtimes.ray.cluster import cluster
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.ray.supervisor import ActorSupervisor
from colonnade.threads import compute_with


class PartyActor:
    """One party's actor. It is given bytes, text and plain tables, and gives no other things back."""

    def __init__(self, name: str) -> None:
        compute_with(1)
        self._name = name  # by which Ray knows it
        self._life: asyncio.Task[dict[str, Any]] | None = None
        self._carrier: CallCarrier | None = None
        self._news: list[dict[str, Any]] = []
        self._stop = False

    async def live(self, files: dict[str, bytes], peers: dict[str, Any]) -> dict[str, Any]:
        """A party's whole life: `{"finished": …}`, or `{"failed": why}`. `peers` are the others' actors.

        An actor has one life: whoever asks again is told how that one ends.
        """
        if self._life is None:
            self._life = asyncio.create_task(self._live(files, peers))
        return await asyncio.shield(self._life)

    async def _live(self, files: dict[str, bytes], peers: dict[str, Any]) -> dict[str, Any]:
        async def call(peer: str, method: str, *arguments: Any) -> bool:
            try:
                return bool(await getattr(peers[peer], method).remote(*arguments))
            except RayError as error:
                raise ConnectionError(peer) from error

        directory = Path(tempfile.gettempdir())  # where the seat is laid down, and then the run's
        try:
            with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
                for file, content in files.items():
                    write_private(Path(folder) / file, content)
                seat = read_any_seat(Path(folder))
            directory = Path(seat.life.directory)
            return {"finished": await self._take_part(seat, call)}
        except ColonnadeError as error:
            return {"failed": str(error)}
        except OSError as error:
            return {"failed": str(unwritable(self._name, directory, error))}

    async def _take_part(self, seat: Seat, call: Callable[..., Any]) -> bool:
        directory = Path(seat.life.directory)
        if not (directory / "federation.toml").exists():
            raise RunError(
                f"The run directory {directory} is not there on the node on which {seat.name} lives. Choose one with "
                "--out that all nodes of the cluster share."
            )
        with closing(SeatedParty(seat, self._tell)) as seated:
            self._carrier = CallCarrier(
                seated.station,
                seat.life.order,
                call,
                calls_in_flight=seat.life.calls_in_flight,
                linger_seconds=seat.life.endurance.linger_seconds,
                stop_requested=lambda: self._stop,
                watch=seated.report,
            )
            finished = await self._carrier.run()
            seated.save()
        self._tell(progress_of(seated.station))  # how far it came
        return finished

    async def meet(self, peer: str, token: str) -> bool:
        """A peer proposes a link."""
        return self._carrier is not None and self._carrier.meet(peer, token)

    async def deliver(self, peer: str, token: str, number: int, batch: bytes) -> bool:
        """A peer's bytes."""
        return self._carrier is not None and await self._carrier.deliver(peer, token, number, batch)

    async def news(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether its life has begun, and what has been said since this was last asked."""
        news, self._news = self._news, []
        return self._life is not None, news

    async def stop(self) -> None:
        """Save and end."""
        self._stop = True

    def _tell(self, news: dict[str, Any]) -> None:
        if "line" not in news:
            # One report stands for those before it that nobody has asked for.
            self._news = [one for one in self._news if "line" in one]
            news = {**news, "actor": self._name, "node": ray.get_runtime_context().get_node_id()}
        self._news.append(news)


@dataclass(frozen=True)
class RayLaunch:
    """The runtime "ray"."""

    federation: Runnable
    settings: Ray

    runtime = Ray.name
    needs_directory = True

    @contextmanager
    def ready(self) -> Iterator[None]:
        check_named("ray.resources", self.settings.resources, self.federation)
        with cluster(self.settings.address, [self.settings.needs_of(party) for party in self.federation.parties]):
            yield

    def run(self, options: RunOptions) -> RunRecord:
        """Run every party as an actor of the cluster that is connected; those here are then given their states."""
        federation, settings = self.federation, self.settings
        directory, lives = lives_of(federation, settings.endurance, options)
        lives = {name: replace(life, calls_in_flight=settings.calls_in_flight) for name, life in lives.items()}
        with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
            written = write_seats(Path(folder), federation, lives)
            seats = {name: {file.name: file.read_bytes() for file in seat.iterdir()} for name, seat in written.items()}
        supervisor = ActorSupervisor(
            PartyActor,
            seats,
            {name: [*life.peers] for name, life in lives.items()},
            settings,
            watch=options.pass_on,
            stop_requested=options.stop_requested,
        )
        finished = supervisor.run()
        return gather(self.runtime, federation.parties, federation.label_party, directory, finished)
