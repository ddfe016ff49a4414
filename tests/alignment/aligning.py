"""Small alignments in one process, with every message delivered when a test says."""

import hashlib
import random
from collections.abc import Mapping, Sequence

import pytest

from colonnade.alignment import conversation, ecdh, hashed, pieces
from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.conversation import AligningParty
from colonnade.alignment.points import hashed_to_curve
from colonnade.alignment.seat import AlignmentSeat
from colonnade.party import Effect, Finish, Received, Send, SetTimer, Started, TimerFired
from colonnade.wire.codec import decode, encode

DOMAIN = b"test"


def seats(
    sets: Mapping[str, Sequence[str]], method: str = "ecdh", pad_to: int = 0, any_rows: bool = False
) -> dict[str, AlignmentSeat]:
    """The first party is the label party."""
    names = tuple(sets)
    return {
        name: AlignmentSeat(
            name,
            names[0],
            names,
            hashed_to_curve([one.encode() for one in ids], DOMAIN),
            hashlib.sha256(name.encode()).digest(),
            method,
            DOMAIN,
            pad_to,
            any_rows=any_rows,
        )
        for name, ids in sets.items()
    }


def small_pieces(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in (pieces, conversation, ecdh, hashed):
        monkeypatch.setattr(module, "PIECE", rows)


class AnySchedule:
    """Whatever can happen next happens in an order that a seed draws; frames overtake one another, parties die."""

    def __init__(self, given: Mapping[str, AlignmentSeat], seed: int, deaths: float = 0.0) -> None:
        self.parties: dict[str, AligningParty] = {name: build_aligning_party(seat) for name, seat in given.items()}
        self.frames: list[tuple[str, str, bytes]] = []  # everything that was ever sent: sender, receiver, frame
        self.restarts = 0
        self._seats = given
        self._random = random.Random(seed)
        self._deaths = deaths
        self._todo: list[tuple[str, object]] = [(name, Started(0.0)) for name in given]
        self._finished: set[str] = set()

    def run(self) -> None:
        while self._todo:
            name, what = self._todo.pop(self._random.randrange(len(self._todo)))
            if isinstance(what, Received) and not self._has_started(name):
                self._todo.append((name, what))
                continue
            assert name not in self._finished, "a party that has finished was sent something"
            self._perform(name, self.parties[name].handle(what))  # type: ignore[arg-type]
            if self._random.random() < self._deaths:
                self._restart(name)
        assert self._finished == set(self.parties)

    def _has_started(self, name: str) -> bool:
        return not any(one == name and isinstance(what, Started) for one, what in self._todo)

    def _restart(self, name: str) -> None:
        """What a party remembers is all it needs."""
        state = self.parties[name].state()
        self.parties[name] = build_aligning_party(self._seats[name])
        self.parties[name].restore(state)
        self.restarts += 1

    def _perform(self, name: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    frame = encode(message)
                    self.frames.append((name, to, bytes(frame)))
                    self._todo.append((to, Received(0.0, name, decode(frame))))
                case SetTimer(timer, _):
                    self._todo = [one for one in self._todo if one != (name, TimerFired(0.0, timer))]
                    self._todo.append((name, TimerFired(0.0, timer)))
                case Finish():
                    self._finished.add(name)
                case _:
                    pass
