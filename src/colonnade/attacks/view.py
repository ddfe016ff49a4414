"""What an adversary saw, and nothing else.

A `PartyView` is one party's own: its trace, and its own columns and model. A `WireView` is what somebody between the
parties saw: frames, who sent them and to whom; no timers, no observations, no direction and no seed, since these never
cross. A `PooledView` is what parties that collude saw together. A representation counts messages and shows no value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from colonnade.messages import Message
from colonnade.trace import Record, read_trace
from colonnade.wire.codec import decode


class Crossing(NamedTuple):
    """One message on its way."""

    sender: str
    receiver: str
    message: Message


@dataclass(frozen=True, eq=False, repr=False)
class PartyView:
    """One party's transcript: every event it was given and every effect it returned, and what it owns."""

    party: str
    records: tuple[Record, ...]
    columns: torch.Tensor | None = None  # its own training rows
    model: torch.nn.Module | None = None  # its own, after the training

    def crossings(self) -> list[Crossing]:
        """The messages it received and sent, in order."""
        seen = []
        for record in self.records:
            if record.type == "Received":
                _, sender, frame = record.fields
                seen.append(Crossing(sender, self.party, decode(frame)))
            elif record.type == "Send":
                receiver, frame = record.fields
                seen.append(Crossing(self.party, receiver, decode(frame)))
        return seen

    def __repr__(self) -> str:
        return f"PartyView({self.party!r}, {len(self.records)} records)"


@dataclass(frozen=True, eq=False, repr=False)
class WireView:
    """Every frame that crossed between the parties, in the order of sending."""

    frames: tuple[tuple[str, str, bytes], ...]  # sender, receiver, frame

    def crossings(self) -> list[Crossing]:
        return [Crossing(sender, receiver, decode(frame)) for sender, receiver, frame in self.frames]

    def __repr__(self) -> str:
        return f"WireView({len(self.frames)} frames)"


@dataclass(frozen=True, eq=False, repr=False)
class PooledView:
    """The transcripts of parties that collude, side by side."""

    views: tuple[PartyView, ...]

    def crossings(self) -> list[Crossing]:
        """What any of them received or sent; a message between two of them stands there twice."""
        return [crossing for view in self.views for crossing in view.crossings()]

    def __repr__(self) -> str:
        return f"PooledView({', '.join(repr(view.party) for view in self.views)})"


def read_party_view(
    trace: Path, columns: torch.Tensor | None = None, model: torch.nn.Module | None = None
) -> PartyView:
    """The view of the party whose trace this is; the file is named after it."""
    return PartyView(trace.stem, tuple(read_trace(trace)), columns, model)


def read_wire_view(traces: Iterable[Path]) -> WireView:
    """What crossed, from the traces of everybody: only what was sent is taken from them."""
    sent: list[tuple[float, str, str, bytes]] = []
    for trace in sorted(traces):
        now = 0.0
        for record in read_trace(trace):
            if record.is_event:
                now = record.fields[0]
            elif record.type == "Send":
                receiver, frame = record.fields
                sent.append((now, trace.stem, receiver, frame))
    sent.sort(key=lambda one: one[0])  # stable: each sender's own order stays
    return WireView(tuple(one[1:] for one in sent))
