"""A party at one moment, for those who look on: how far it is, what it sent, who is there; never what it learnt.

Names, counts, sizes and times; no column, label, weight or key. `operations.py` shows it to its operator's tools,
`live.py` writes it into the run directory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.runtimes.peer import Link
from colonnade.runtimes.recorder import Recorder, Traffic
from colonnade.runtimes.station import Station

STATUSES = ("waiting", "training", "finished")


@dataclass(frozen=True)
class Amount:
    """Frames of one kind of message, and their bytes."""

    frames: int
    bytes: int


@dataclass(frozen=True)
class Picture:
    """A party at one moment; nothing in it changes afterwards."""

    status: str = "waiting"
    links: Mapping[str, Link] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    last_event: float | None = None  # on the clock of whoever took the picture
    exchanges: int = 0
    steps: int = 0
    epochs: float | None = None  # the label party's
    staleness: Mapping[str, float] = field(default_factory=dict)  # the label party's, in exchanges
    replies: Mapping[str, int] = field(default_factory=dict)  # the label party's, by feature party
    sent: Mapping[str, Amount] = field(default_factory=dict)  # by message
    received: Mapping[str, Amount] = field(default_factory=dict)  # by message; only the label party counts them
    frames_taken: int = 0
    queue_depth: int = 0
    busy_seconds: float = 0.0
    restarts: int = 0
    checkpoints: int = 0
    refusals: int = 0
    releases: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (mechanism, protects)

    @property
    def connected(self) -> list[str]:
        return sorted(name for name, link in self.links.items() if link.connected)


def picture_at_the_door(there: Mapping[str, bool], refusals: int = 0) -> Picture:
    """Of a party that has not begun: who is connected."""
    links = {name: Link(connected) for name, connected in there.items()}
    absent = sorted(name for name, link in links.items() if not link.connected)
    return Picture(links=links, absent=tuple(absent), refusals=refusals)


def picture_of_station(station: Station, recorder: Recorder, refusals: int = 0) -> Picture:
    """What a party is doing; to be called in its own thread."""
    counts: Mapping[str, Any] = station.party.counts()
    releases: dict[tuple[str, str], int] = {}
    for kind in station.privacy_events():
        key = (kind["mechanism"], kind["protects"])
        releases[key] = releases.get(key, 0) + kind["releases"]
    own = {name: sent for name, sent in recorder.traffic.items() if name == station.name}
    others = {name: sent for name, sent in recorder.traffic.items() if name != station.name}
    return Picture(
        status="finished" if station.finished else "training" if station.started else "waiting",
        links=station.links,
        absent=tuple(sorted(station.absent())),
        exchanges=counts["exchanges"],
        steps=counts["steps"],
        epochs=counts.get("epochs"),
        staleness={name: float(counts["staleness"][name]) for name in ("mean", "max") if "staleness" in counts},
        replies=counts.get("replies", {}),
        sent=amounts(own.values()),
        received=amounts(others.values()),
        frames_taken=station.frames_taken,
        queue_depth=station.queue_depth(),
        busy_seconds=station.busy_seconds,
        restarts=station.restarts,
        checkpoints=station.checkpoints,
        refusals=refusals,
        releases=releases,
    )


def amounts(senders: Iterable[Traffic]) -> dict[str, Amount]:
    """What these have sent, by message."""
    found: dict[str, Amount] = {}
    for traffic in senders:
        for message, frames in traffic.frames.items():
            before = found.get(message.__name__, Amount(0, 0))
            size_bytes = before.bytes + traffic.bytes[message]
            found[message.__name__] = Amount(before.frames + frames, size_bytes)
    return found
