"""A simulation's own part of a checkpoint: the clock, what is due, inboxes, links and generators, between two events.

The layout is older than the names in `agenda.py`: an entry is a list [when, number, kind, place, payload], an item of
an inbox a list that begins with a word. Frames lie one after another in one tensor, and values name them by position.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.messages import KINDS, Message
from colonnade.runtimes.checkpoint import joined_frames, split_frames
from colonnade.runtimes.simulate.agenda import (
    Acknowledged,
    Agenda,
    Begin,
    Crash,
    Due,
    Item,
    Letter,
    Lost,
    Retry,
    Return,
    Returned,
    Ring,
    TimerDue,
    WorkEnd,
)
from colonnade.runtimes.simulate.links import Kept, Links
from colonnade.runtimes.simulate.places import Place
from colonnade.state import State

_WORDS: dict[type[Item], str] = {
    Letter: "message",
    Ring: "timer",
    Lost: "lost",
    Returned: "returned",
    Begin: "started",
}
_ITEMS = {word: item for item, word in _WORDS.items()}
_ARRIVAL, _NOTICE = 0, 3  # entries whose payload is an item of an inbox
_KINDS: dict[type[Any], int] = {
    Letter: _ARRIVAL,
    WorkEnd: 1,
    TimerDue: 2,
    Lost: _NOTICE,
    Returned: _NOTICE,
    Crash: 4,
    Return: 5,
    Retry: 6,
    Acknowledged: 7,
}
_HAPPENINGS = {number: kind for kind, number in _KINDS.items() if number not in (_ARRIVAL, _NOTICE)}
_PLACE_FIELDS = (
    "work_number",
    "work_started",
    "away",
    "away_since",
    "finished",
    "busy_seconds",
    "away_seconds",
    "timers",
)
_LINK_FIELDS = ("free_at", "last_arrival", "next_number", "handled_below")


def snapshot(
    agenda: Agenda,
    places: Sequence[Place],
    links: Links,
    *,
    checkpoints: int,
    traces: Mapping[str, int],
    recorder: Mapping[str, Any],
) -> State:
    """Everything of a simulation but its parties' own states."""
    pack = _Packing()
    seats = {place.name: pack.place(place) for place in places}
    kept = pack.links(links)
    values = {
        "now": agenda.now,
        "counter": agenda.number,
        "checkpoints": checkpoints,
        "retransmitted_bytes": links.retransmitted_bytes,
        "heap": [pack.entry(due) for due in agenda.entries],
        "seats": seats,
        "links": kept,
        "traces": traces,
        "recorder": recorder,
        "frame_sizes": [len(frame) for frame in pack.frames],
    }
    return State({"frames": joined_frames(pack.frames)}, values)


def restore(state: State, agenda: Agenda, places: Sequence[Place], links: Links) -> None:
    """Become what `snapshot` has kept."""
    values = state.values
    unpack = _Unpacking(state)
    agenda.restore(values["now"], values["counter"], [unpack.entry(entry) for entry in values["heap"]])
    agenda.presence_changed = True  # perhaps everybody had finished
    links.retransmitted_bytes = values["retransmitted_bytes"]
    for place in places:
        unpack.place(place, values["seats"][place.name])
    for link in values["links"]:
        unpack.link(links, *link)


class _Packing:
    """Turns entries and items into values that JSON can hold, and gathers their frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def frame(self, frame: bytearray) -> dict[str, int]:
        self.frames.append(bytes(frame))
        return {"frame": len(self.frames) - 1}

    def item(self, item: Item) -> list[Any]:
        if isinstance(item, Letter):
            return [_WORDS[Letter], item.sender, self.frame(item.frame), _kind(item.kind), item.number]
        return [_WORDS[type(item)], *item]

    def entry(self, due: Due) -> list[Any]:
        what = due.what
        payload = self.item(what) if isinstance(what, Letter | Lost | Returned) else [*what]
        return [due.when, due.number, _KINDS[type(what)], due.place, payload]

    def place(self, place: Place) -> dict[str, Any]:
        return {
            "inbox": [self.item(item) for item in place.inbox],
            "current": None if place.current is None else self.item(place.current),
            **{name: getattr(place, name) for name in _PLACE_FIELDS},
            "missed_timers": [[*missed] for missed in place.missed_timers],
            "measured": place.measured,
            "generator": place.chance.generator.bit_generator.state,
        }

    def links(self, links: Links) -> list[Any]:
        packed = []
        for (sender, receiver), link in links.between.items():
            kept = [[number, [self.frame(one.frame), _kind(one.kind)]] for number, one in link.unacknowledged.items()]
            remembered = {name: getattr(link, name) for name in _LINK_FIELDS}
            generator = link.chance.generator.bit_generator.state
            packed.append([sender, receiver, remembered, kept, sorted(link.handled), generator])
        return packed


class _Unpacking:
    """The way back."""

    def __init__(self, state: State) -> None:
        self._frames = split_frames(state.tensors["frames"], state.values["frame_sizes"])

    def item(self, packed: Sequence[Any]) -> Any:
        word, *fields = packed
        if word == _WORDS[Letter]:
            sender, frame, kind, number = fields
            return Letter(sender, self._frames[frame["frame"]], KINDS[kind["kind"]].message, number)
        return _ITEMS[word](*fields)

    def entry(self, packed: Sequence[Any]) -> Due:
        when, number, kind, place, payload = packed
        what = self.item(payload) if kind in (_ARRIVAL, _NOTICE) else _HAPPENINGS[kind](*payload)
        return Due(when, number, place, what)

    def place(self, place: Place, packed: Mapping[str, Any]) -> None:
        for name in _PLACE_FIELDS:
            setattr(place, name, packed[name])
        place.inbox = deque(self.item(item) for item in packed["inbox"])
        place.current = None if packed["current"] is None else self.item(packed["current"])
        place.missed_timers = [(name, token) for name, token in packed["missed_timers"]]
        place.measured = packed["measured"]
        place.chance.generator.bit_generator.state = packed["generator"]

    def link(
        self,
        links: Links,
        sender: str,
        receiver: str,
        remembered: Mapping[str, Any],
        kept: Sequence[Any],
        handled: Sequence[int],
        generator: Mapping[str, Any],
    ) -> None:
        link = links.link(sender, receiver)
        for name in _LINK_FIELDS:
            setattr(link, name, remembered[name])
        link.unacknowledged = {
            number: Kept(self._frames[frame["frame"]], KINDS[kind["kind"]].message) for number, (frame, kind) in kept
        }
        link.handled = set(handled)
        link.chance.generator.bit_generator.state = generator


def _kind(message: type[Message]) -> dict[str, str]:
    return {"kind": message.__name__}
