"""How organisations meet that have a trained model in common: to predict with it, or to explain it.

There is nothing to tell of one another but which run it is. Who takes part says before that whether it has the same
rows, or the same alignment, and which run it is in the middle of.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from colonnade.errors import ProtocolError, SettingsError
from colonnade.launch.door import Doorkeeper
from colonnade.launch.member import Member
from colonnade.launch.party_directory import PartyDirectory
from colonnade.prediction.saved_model import ModelDescription
from colonnade.runtimes.network.greeting import Door
from colonnade.wire.handshake import Hello, Roster

_RUN_CHARACTERS = 32


class ModelDoor(Doorkeeper):
    """Whom the label party lets in: who has the same rows besides, and is in the middle of no other such run."""

    def __init__(self, member: Member, directory: PartyDirectory, what: str, others: str) -> None:
        """`what` they are there for; `others`: what is wrong with rows that are not the same."""
        super().__init__(member, directory)
        self._what = what
        self._others = others

    def _admit_known(self, name: str, hello: Hello, known: Roster | None) -> None:
        rows, _, run = hello.row_digest.partition(" ")
        if rows != self._host.rows_told()[0].partition(" ")[0]:
            raise ProtocolError(f"{name} and {self._host.name} {self._others}")
        if run and (known is None or run != known.run):
            raise ProtocolError(
                f"{name} is in the middle of another {self._what}, which has ended here, or has not begun here: start "
                "it with another --directory."
            )


@dataclass(frozen=True)
class ModelMeeting:
    """Of those who have a model in common."""

    member: Member
    what: str  # "prediction", "explanation"
    others: str  # what is wrong with rows that are not the same

    def door(self, directory: PartyDirectory) -> Door:
        return ModelDoor(self.member, directory, self.what, self.others)

    def roster(self, hellos: Mapping[str, Hello]) -> Roster:
        return Roster("", 0, {}, {}, run=secrets.token_hex(_RUN_CHARACTERS // 2))

    def believed(self, roster: Roster) -> Roster:
        if roster != Roster("", 0, {}, {}, run=roster.run) or len(roster.run) != _RUN_CHARACTERS:
            raise ProtocolError(f"{self.member.label_party} described something other than a run of {self.what}.")
        return roster


def check_same_parties(member: Member, described: ModelDescription, does: str) -> None:
    """Refuse a model of others. `does`: what its party is there for."""
    theirs = (described.label_party, *described.feature_parties)
    if described.party != member.name or set(theirs) != set(member.everyone):
        raise SettingsError(
            f"The model of {described.party} was trained with {', '.join(theirs)}; this federation has "
            f"{', '.join(member.everyone)}, and {member.name} {does}. Use the federation.toml of the training."
        )


def common_to_all(described: ModelDescription) -> dict[str, object]:
    """What is the same in the models of all parties that were trained together."""
    return {
        "training": described.training,
        "algorithm": described.algorithm,
        "task": described.task,
        "widths": described.widths,
    }
