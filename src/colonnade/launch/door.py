"""The label party's door: whom it lets in, what it tells all of everybody, and what a guest believes of that."""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from colonnade.data.settings import TASKS
from colonnade.data.weights import largest_weight
from colonnade.errors import ProtocolError, plain
from colonnade.federation.building import labels_of, width_elsewhere, width_of
from colonnade.federation.plan import Facts
from colonnade.launch.member import Member
from colonnade.launch.participant import Participant
from colonnade.launch.party_directory import PartyDirectory
from colonnade.runtimes.network.greeting import another_directory
from colonnade.wire.handshake import Hello, Roster, difference

MOST_COLUMNS, MOST_NUMBERS, MOST_CLASSES = 1 << 24, 1 << 16, 1 << 16
"""What a party believes of another before anything is built from it: columns, numbers in an embedding, classes."""
PURPOSE = "purpose"
"""What the settings of an alignment or a prediction say besides, and a training's do not: they must not meet."""
_DOES = {"alignment": "aligns rows", "prediction": "predicts", "serving": "serves", "explanation": "explains"}
MODEL = "model"
"""What the settings of a prediction or an explanation say of the model that all have a part of."""
EXPLAIN = "explain"
"""What those of an explanation say of how much is computed, and so released."""
_TABLE_SHARE = 0.5
"""How much of this machine's memory the last embeddings of all parties may fill."""


def settings_in(hello: Hello, name: str) -> dict[str, Any]:
    """What a guest says that it has agreed to."""
    try:
        theirs = json.loads(hello.settings)
    except (ValueError, RecursionError):
        theirs = None
    if not isinstance(theirs, dict):
        raise ProtocolError(f"{plain(name)} sent settings that are not JSON.")
    return theirs


class Doorkeeper:
    """Whom a label party lets in, whatever the run is for: who has not left, comes again from the same directory, and
    has the same settings."""

    def __init__(self, participant: Member, directory: PartyDirectory) -> None:
        self._host = participant
        self._directory = directory

    def admit(self, name: str, hello: Hello) -> None:
        host = self._host
        if name in self._directory.left():
            raise ProtocolError(f"{name} has left this federation for good.")
        if self._directory.tokens().get(name, hello.token) != hello.token:
            raise ProtocolError(another_directory(name))
        refuse_difference(host.agreed, settings_in(hello, name), name, host.name)
        sizes = 1 <= len(hello.shape) <= 3 and min(hello.shape) > 0 and math.prod(hello.shape) <= MOST_COLUMNS
        if not sizes or not 0 <= hello.width <= MOST_NUMBERS or len(hello.token) != len(self._directory.token):
            raise ProtocolError(
                f"{name} says something impossible of itself: a row has 1 to {MOST_COLUMNS} columns, an embedding at "
                f"most {MOST_NUMBERS} numbers."
            )
        known = self._directory.roster()
        self._admit_known(name, hello, known)
        if known is not None:
            self._directory.keep_tokens({name: hello.token})

    def _admit_known(self, name: str, hello: Hello, known: Roster | None) -> None:
        """What only a certain kind of run asks for; `known`: what was told to all, if it has begun."""

    def leave(self, name: str) -> None:
        self._directory.keep_left(name)


class LabelDoor(Doorkeeper):
    """Whom the label party of a training lets in: who has the same rows besides, and embeddings that fit."""

    def __init__(self, participant: Participant, directory: PartyDirectory) -> None:
        super().__init__(participant, directory)
        self._participant = participant

    def _admit_known(self, name: str, hello: Hello, known: Roster | None) -> None:
        host = self._participant
        if hello.row_digest != host.data.row_digest:
            raise ProtocolError(
                f"{name} has other rows than {host.name}, or the same in another split: {hello.rows} + "
                f"{hello.test_rows} to train and test on, against {host.data.rows} + {host.data.test_rows}. "
                + (
                    "They name different alignments: all must name folders that one colonnade align wrote."
                    if host.federation.data.rows == "aligned"
                    else "Align the ids of both files."
                )
            )
        self._check_width(name, hello)
        if known is not None and hello.width and hello.width != known.widths.get(name):
            raise ProtocolError(
                f"{name} sends embeddings of {hello.width} numbers, but the training began with "
                f"{known.widths.get(name)}: its [bottom] must fit."
            )

    def _check_width(self, name: str, hello: Hello) -> None:
        """Refuse what cannot be kept here, before room is made for it: of every row the last embedding is."""
        host = self._participant
        if host.plan.is_linear:
            return
        labels = host.data.labels
        assert labels is not None
        facts = Facts(host.label_party, host.feature_parties, 0, 0, labels.task, len(labels.classes), {}, {})
        width = hello.width or width_elsewhere(name, facts, host.plan)
        size_bytes = 4 * width * (host.data.rows + host.data.test_rows + host.data.validation_rows)
        room = int(_TABLE_SHARE * _memory_bytes() / len(host.feature_parties))
        if size_bytes > room:
            raise ProtocolError(
                f"The embeddings of {name} have {width} numbers each, {size_bytes >> 20} MB for all rows; {host.name} "
                f"has room for {room >> 20} MB of each party's. Choose a smaller [bottom] embedding, or give "
                f"{host.name} a larger machine."
            )


def refuse_difference(ours: Mapping[str, Any], theirs: dict[str, Any], name: str, host: str) -> None:
    """Refuse a party that does something else, has another model or another federation.toml."""
    differs = difference(json.loads(json.dumps(ours)), theirs)
    if differs and theirs.get(PURPOSE) != ours.get(PURPOSE):
        own, others = (_DOES.get(str(one.get(PURPOSE)), "trains") for one in (ours, theirs))
        raise ProtocolError(f"One of {name} and {host} {own} and the other {others}: start the same.")
    if differs and differs.startswith(f"{MODEL}."):
        raise ProtocolError(f"{name} and {host} have models of different trainings: they differ in {plain(differs)}.")
    if differs and differs.startswith(f"{EXPLAIN}."):
        raise ProtocolError(
            f"{name} and {host} were asked to explain different things: their commands differ in {plain(differs)}. "
            "Give the same options everywhere."
        )
    if differs:
        raise ProtocolError(
            f"The federation.toml of {name} and that of {host} differ in {plain(differs)}: use the same file."
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def roster_of(participant: Participant, hellos: Mapping[str, Hello], task: str, classes: int) -> Roster:
    """What the label party tells all, once it has met everybody it waits for."""
    # A party that comes later is taken to have the shared bottom model, whose width does not depend on its columns.
    shapes = {name: hellos[name].shape if name in hellos else (1,) for name in participant.feature_parties}
    if participant.data.columns is not None:
        shapes[participant.name] = participant.shape()
    facts = Facts(participant.label_party, participant.feature_parties, 0, 0, task, classes, shapes, {})
    widths: dict[str, int] = {}
    if not participant.plan.is_linear:
        for name in shapes:
            said = hellos[name].width if name in hellos else 0
            own = name == participant.name
            widths[name] = said or (width_of if own else width_elsewhere)(name, facts, participant.plan)
        return Roster(task, classes, shapes, widths)
    labels = participant.data.labels
    assert labels is not None
    return Roster(task, classes, shapes, widths, largest_weight(labels_of(labels, participant.plan)))


def check_roster(participant: Participant, roster: Roster) -> None:
    """Refuse what the label party says of all if no federation of these parties could be so."""
    label, plan, parties = participant.label_party, participant.plan, {*participant.everyone}
    sizes = [math.prod(shape) for shape in roster.shapes.values() if all(length > 0 for length in shape)]
    possible = (
        roster.task in TASKS
        and 0 <= roster.classes <= MOST_CLASSES
        and {*participant.feature_parties} <= roster.shapes.keys() <= parties
        and len(sizes) == len(roster.shapes)
        and max(sizes) <= MOST_COLUMNS
        and 1 <= roster.largest_weight <= max(participant.data.rows, 1)  # the mean of all is 1
    )
    if not possible:
        raise ProtocolError(f"{label} described an impossible federation: other parties, or sizes of 0.")
    if not plan.is_linear:
        wanted = width_of(participant.name, participant.facts(roster), plan)
        if roster.widths.get(participant.name) != wanted:
            raise ProtocolError(
                f"{label} expects embeddings of {roster.widths.get(participant.name)} numbers from "
                f"{participant.name}, whose model gives {wanted}: its [bottom] must fit."
            )
