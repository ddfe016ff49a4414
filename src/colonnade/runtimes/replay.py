"""A trace played again in one process: the same events give the same effects and the same final models.

Replay checks every effect against the trace, so it also shows where a party is not a pure state machine.
"""

from pathlib import Path

from colonnade.errors import RunError
from colonnade.party import Event, Extended, Party, PeerLost, PeerReturned, Received, Send, Started, TimerFired
from colonnade.trace import Record, read_trace, record_of
from colonnade.wire.codec import decode, encode


def replay(party: Party, trace: Path) -> int:
    """Give a fresh party every event of its trace; returns how many. RunError if an effect differs."""
    expected: list[Record] = []
    seen = 0
    for record in read_trace(trace):
        if not record.is_event:
            if not expected or not _agrees(expected.pop(0), record):
                raise RunError(
                    f"{trace.name}, event {seen}: the party did not return the recorded {record.type}. It was built "
                    "from other settings or data than the recorded one, or its algorithm is not deterministic."
                )
            continue
        if expected:
            raise RunError(
                f"{trace.name}, event {seen}: the party returned a {expected[0].type} that was not recorded."
            )
        seen += 1
        for effect in party.handle(event_of(record)):
            frame = encode(effect.message) if isinstance(effect, Send) else None
            expected.append(_as_read(record_of(effect, frame)))
    return seen  # what the last event's effects lack was cut off with the recording


def event_of(record: Record) -> Event:
    """The event that a record holds."""
    fields = record.fields
    match record.type:
        case "Started":
            return Started(fields[0])
        case "Extended":
            return Extended(fields[0])
        case "Received":
            return Received(fields[0], fields[1], decode(bytearray(fields[2])))
        case "TimerFired":
            return TimerFired(fields[0], fields[1])
        case "PeerLost":
            return PeerLost(fields[0], fields[1])
        case "PeerReturned":
            return PeerReturned(fields[0], fields[1])
        case _:
            raise RunError(f"{record.type} is not an event.")


def _agrees(returned: Record, recorded: Record) -> bool:
    """Whether it is the same. An earlier version may have recorded fewer metrics of the same evaluation."""
    if returned.type != recorded.type or len(returned.fields) != len(recorded.fields):
        return False
    for now, before in zip(returned.fields, recorded.fields, strict=True):
        if isinstance(now, dict) and isinstance(before, dict):
            now = {name: value for name, value in now.items() if name in before}
        if now != before:
            return False
    return True


def _as_read(record: Record) -> Record:
    """A record as it looks after a trip through the file."""
    return Record(record.type, tuple(list(part) if isinstance(part, tuple) else part for part in record.fields))
