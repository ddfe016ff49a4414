"""Stations in one process, joined by links of memory, on a clock that a test turns by hand.

Every byte moves when the test says so, in pieces as small as it says. A station can be killed at any point, losing all
that a process loses and nothing that a disk keeps, and be built again on its directory. Every frame that was ever on a
link is remembered: a number that comes again must stand for the same bytes.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import torch

from colonnade.errors import ProtocolError
from colonnade.party import Effect, Event, Party
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import numbers_of
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Peers
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import Guard, Recording, Station
from colonnade.state import State
from colonnade.testing.fake_clock import FakeClock
from colonnade.wire.packets import FRAME, PacketReader

PATIENT = Endurance(notice_seconds=1.0, arrival_seconds=5.0, checkpoint_seconds=1e9)


class KilledError(BaseException):
    """Stands for `kill -9`."""


class Mortal:
    """A party that dies in the middle of a turn, before the event of that number from now."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.events_left = inf

    def handle(self, event: Event) -> Sequence[Effect]:
        self.events_left -= 1
        if self.events_left < 0:
            raise KilledError
        return self.party.handle(event)

    def state(self) -> State:
        return self.party.state()

    def restore(self, state: State) -> None:
        self.party.restore(state)

    def model(self) -> dict[str, torch.nn.Module]:
        return self.party.model()

    def counts(self) -> dict[str, Any]:
        return self.party.counts()


class FakeCarrier:
    """Carries between stations what a test lets it carry. Parties by name, the label party first.

    `build` makes a party as it is before its first event; every life of its station begins with a new one. Without
    `links` the label party has one to everybody else. `without` are parties that the label party begins without.
    """

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        build: Callable[[str], Party],
        links: Iterable[tuple[str, str]] | None = None,
        endurance: Endurance = PATIENT,
        trace: bool = True,
        without: Sequence[str] = (),
        expels: bool = True,
    ) -> None:
        self.directory = directory
        self.names = [*names]
        self.label = names[0]
        self.clock = FakeClock()
        self.links = sorted(links if links is not None else ((self.label, other) for other in names[1:]))
        self.joined: set[tuple[str, str]] = set()
        self.pipes: dict[tuple[str, str], bytearray] = {}
        self.carried: dict[tuple[str, str, int], bytes] = {}
        self.refusals: list[tuple[str, str, str]] = []  # who refused what whom sent, and why
        self.stations: dict[str, Station] = {}
        self.recorders: dict[str, Recorder] = {}
        self._readers: dict[tuple[str, str], PacketReader] = {}
        self._journalled: dict[str, tuple[Path | None, int]] = {}  # what was safe when bytes were last let out
        self._torn: set[tuple[str, int]] = set()
        self._build = build
        self._endurance = endurance
        self._trace = trace
        self._without = without
        self.expels = expels
        self.passes_over = False  # of the lives that begin from now on
        for name in names:
            self.revive(name)

    # --- lives ---

    def revive(self, name: str) -> None:
        """A new process for a party, on the directory of those before it."""
        own = self.directory if name == self.label else None
        recorder = self.recorders[name] = Recorder(self.label, own, virtual=False)
        self.stations[name] = Station(
            name,
            Mortal(self._build(name)),
            Peers(self.peers_of(name), self.label, self._without if name == self.label else ()),
            self.directory,
            Recording(
                recorder,
                lambda position: Ledger(self.directory / "ledger" / f"{name}.jsonl", position),
                self._trace,
            ),
            endurance=self._endurance,
            guard=Guard((lambda: Mortal(self._build(name))) if self.expels else None, self.passes_over),
            clock=self.clock,
        )
        self._journalled[name] = self._newest_journal(name)

    def kill(self, name: str, torn: float = 0.0) -> None:
        """End a life. `torn`: which part of what was journalled since bytes last went out did not reach the disk."""
        station = self.stations.pop(name)
        for pair in self.links:
            if name in pair and pair in self.joined:
                self.part(*pair)
        station._keeper.journal.close()
        if station._trace is not None:
            station._trace._file.raw.close()  # type: ignore[attr-defined]  # what is buffered is lost
        if station._ledger._file is not None:
            station._ledger._file.close()  # not an orderly end, which gives back what was reserved
        if (metrics := self.recorders.pop(name)._file) is not None:
            metrics.close()
        path, size = self._newest_journal(name)
        safe_path, safe = self._journalled[name]
        if path is not None:
            safe = safe if path == safe_path else 0
            with path.open("r+b") as file:
                file.truncate(safe + round((size - safe) * (1 - torn)))

    def tear_checkpoint(self, name: str, suffix: str, kept_part: float) -> None:
        """Damage the newest checkpoint of a party that is not alive, unless the one before is damaged already."""
        *older, newest = numbers_of(self.directory / "checkpoints", name) or [0]
        if newest and not any((name, number) in self._torn for number in older):
            path = self.directory / "checkpoints" / f"{name}-{newest:010d}.{suffix}"
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept_part)])
            self._torn.add((name, newest))

    def close(self) -> None:
        for name, station in self.stations.items():
            station.close()
            self.recorders[name].close()

    def _newest_journal(self, name: str) -> tuple[Path | None, int]:
        found = sorted((self.directory / "journal").glob(f"{name}-*.journal"))
        return (found[-1], found[-1].stat().st_size) if found else (None, 0)

    # --- links ---

    def peers_of(self, name: str) -> list[str]:
        return [one if other == name else other for one, other in self.links if name in (one, other)]

    def join(self, one: str, other: str) -> None:
        """Connect a pair, if both are alive and not connected."""
        if (one, other) in self.joined or not {one, other} <= self.stations.keys():
            return
        self.joined.add((one, other))
        for way in ((one, other), (other, one)):
            self.pipes[way] = bytearray()
            self._readers[way] = PacketReader()
        self.stations[one].connected(other)
        self.stations[other].connected(one)

    def part(self, one: str, other: str) -> None:
        """Break a connection; bytes on their way are lost."""
        if (one, other) not in self.joined:
            return
        self.joined.discard((one, other))
        del self.pipes[one, other], self.pipes[other, one]
        for name, peer in ((one, other), (other, one)):
            if name in self.stations:
                self.stations[name].disconnected(peer)

    def join_all(self) -> None:
        for pair in self.links:
            self.join(*pair)

    # --- bytes and turns ---

    def write(self, name: str) -> None:
        """Let out what a station has to say."""
        for peer in self.peers_of(name):
            if (name, peer) in self.pipes:
                data = b"".join(self.stations[name].outgoing(peer))
                for packet in self._readers[name, peer].feed(data):
                    if packet.kind == FRAME:
                        before = self.carried.setdefault((name, peer, packet.number), bytes(packet.body))
                        assert before == packet.body, f"frame {packet.number} of {name} to {peer} has changed"
                self.pipes[name, peer] += data
        self._journalled[name] = self._newest_journal(name)

    def carry(self, sender: str, receiver: str, size_bytes: int = 1 << 30) -> bool:
        """Move some bytes, if the receiver wants any. What it refuses breaks the connection."""
        pipe = self.pipes.get((sender, receiver))
        if not pipe or not self.stations[receiver].wants_more(sender):
            return False
        data = bytes(pipe[:size_bytes])
        del pipe[:size_bytes]
        try:
            self.stations[receiver].received(sender, data)
        except ProtocolError as error:
            self._refuse(receiver, sender, str(error))
        return True

    def turn(self, name: str) -> bool:
        station = self.stations[name]
        handled = station.turn()
        while station.breaches:
            self._refuse(name, *station.breaches.popleft())
        return handled

    def turn_and_die(self, name: str, events: int, torn: float = 0.0) -> None:
        """Kill a party before it handles its event of that number in this turn, or after the turn."""
        self.stations[name].party.events_left = events  # type: ignore[attr-defined]
        with suppress(KilledError):
            self.stations[name].turn()
        self.kill(name, torn)

    def _refuse(self, name: str, peer: str, why: str) -> None:
        self.refusals.append((name, peer, why))
        self.part(*((name, peer) if (name, peer) in self.links else (peer, name)))

    # --- whole stretches of time ---

    def wander(self, random: Random, steps: int) -> None:
        """So many small things happen, in any order."""
        for _ in range(steps):
            name = random.choice(self.names)
            if name not in self.stations:
                self.revive(name)
                continue
            match random.randrange(8):
                case 0 | 1:
                    self.turn(name)
                case 2 | 3:
                    self.write(name)
                case 4 | 5 | 6:
                    sender = random.choice(self.peers_of(name))
                    self.carry(sender, name, random.choice((1, 7, 24, 100, 1 << 20)))
                case _:
                    self.clock.tick(random.choice((0.001, 0.06, 0.4)))
                    self.join(*random.choice(self.links))

    def go_on(self, *only: str) -> bool:
        """Everybody alive (or only these) takes a turn, says all and hears all. False if nothing happened."""
        names = [name for name in only or self.names if name in self.stations]
        happened = False
        for name in names:
            happened |= self.turn(name)
            self.write(name)
            for peer in self.peers_of(name):
                happened |= self.carry(name, peer)
        return happened

    def settle(self) -> None:
        """Until nothing happens any more, in no time."""
        for _ in range(10_000):
            if not self.go_on():
                return
        raise AssertionError("the parties never come to rest")

    def finish(self, seconds_a_step: float = 0.02) -> None:
        """Until everybody has finished and everybody knows."""
        for _ in range(20_000):
            for name in self.names:
                if name not in self.stations:
                    self.revive(name)
            self.join_all()
            self.go_on()
            self.clock.tick(seconds_a_step)
            if all(station.settled() for station in self.stations.values()):
                return
        raise AssertionError(f"the training does not end; refused: {self.refusals[-3:]}")

    def metrics(self) -> list[dict[str, Any]]:
        """What the label party's file of metrics holds."""
        path = self.directory / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
