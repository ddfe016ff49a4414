"""A network party's run directory: its secrets, what it learnt at the door, and that nothing has changed since.

Settings and data of a run that has begun stay what they were: what is sent again after a crash must be the same.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from colonnade.errors import RunError, SettingsError
from colonnade.federation.toml import write_toml
from colonnade.files import make_folder, read_private, take_over, toml_of, write_atomically
from colonnade.launch.extension import check_finished, only_longer, write_longer
from colonnade.launch.member import Member, without_way
from colonnade.launch.run_directory import differences
from colonnade.privacy.ledger import check_journal
from colonnade.runtimes.journal import first_number
from colonnade.runtimes.steering import Steering
from colonnade.wire.handshake import Roster
from colonnade.wire.sealing import SealingKey

T = TypeVar("T")


class PartyDirectory:
    """What a party of a network run keeps on its disk, beside its state."""

    def __init__(self, participant: Member, *, draws: bool = True, extends: bool = False) -> None:
        """`draws`: secrets that are not there yet. Without, they must be, and nothing is written.

        `extends`: its plan, if the run has ended and more epochs are asked for.
        """
        self.path = participant.directory
        self.steering = Steering(self.path)
        self._participant = participant
        self._draws = draws
        if draws:
            make_directory(self.path)
        if self.has_begun():
            self._check_unchanged(extends)
        has_journal = first_number(self.path / "journal", participant.name) is not None
        check_journal(self.path / "ledger.jsonl", has_journal, participant.name)
        self.token = self._secret("token").hex()
        self.sealing = SealingKey.from_bytes(self._secret("sealing.key"))
        self.secret = participant.secret_of(int.from_bytes(self._secret("entropy"), "little"))

    def _secret(self, name: str) -> bytes:
        """32 bytes of this run's own, drawn once and readable by nobody else."""
        path = self.path / name
        if not path.exists() and self._draws:
            write_atomically(path, os.urandom(32))
        found = read_private(path) if path.exists() else b""
        if len(found) != 32:
            raise _damaged(path)
        return found

    def has_begun(self) -> bool:
        """Whether the parties have agreed on everything. Until then, what was wrong may be put right."""
        return (self.path / "everybody.json").exists()

    def keep_plan(self) -> None:
        """Write down what this run is made of, for every later start."""
        if not self.has_begun():
            write_atomically(self.path / "federation.toml", write_toml(self._participant.settings).encode())
            write_atomically(self.path / "rows.json", json.dumps(self._participant.digests()).encode())

    def _check_unchanged(self, extends: bool) -> None:
        """Settings and data are those of the beginning: frames that are sent again must be the same."""
        kept = self.path / "federation.toml"
        try:
            settings = without_way(toml_of(read_private(kept)))
        except (OSError, ValueError, KeyError):
            raise _damaged(kept) from None
        wanted = toml_of(write_toml(self._participant.agreed).encode())
        longer = extends and only_longer(settings, wanted)
        if settings != wanted and not longer:
            raise SettingsError(
                f"{self.path} holds a run with other settings. Choose another directory with --out, or use {kept}."
            )
        before, now = self._read("rows.json", dict[str, str | int]), self._participant.digests()
        longer = longer or (extends and before.get("longer") == now["settings"])  # that was begun, and interrupted
        if before.get("settings") != now["settings"] and not longer:
            raise SettingsError(
                f"{kept} was changed after its run began, which has kept a digest of its settings. Put those settings "
                "back, or choose another directory with --out for a new run."
            )
        data = {name: before[name] for name in before if name not in ("settings", "longer", "extension")}
        different = differences(data, {name: one for name, one in now.items() if name != "settings"})
        if different:
            raise SettingsError(
                f"The {' and '.join(different)} of {self._participant.name} differ from those the run in "
                f"{self.path} began with. Put them back as they were, or choose another directory with --out for a "
                "new run."
            )
        if longer:
            self._extend(now["settings"])

    def _extend(self, digest: str) -> None:
        """The run has ended, and goes on: what it is made of is the same, but for more epochs."""
        check_finished(self.path)
        roster = self.roster()
        assert roster is not None
        self._participant.check_longer(roster)
        write_longer(self.path, "rows.json", write_toml(self._participant.settings).encode(), digest)

    @property
    def extension(self) -> int:
        """How often the plan was extended after the end of the run."""
        path = self.path / "rows.json"
        return int(self._read("rows.json", dict[str, str | int]).get("extension", 0)) if path.exists() else 0

    def _read(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            return msgspec.json.decode(read_private(path), type=kind)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            raise _damaged(path) from None

    def roster(self) -> Roster | None:
        return self._read("everybody.json", Roster) if self.has_begun() else None

    def keep(self, roster: Roster) -> None:
        write_atomically(self.path / "everybody.json", msgspec.json.encode(roster))

    def tokens(self) -> dict[str, str]:
        """Of the run directories from which the training began, at the label party."""
        return self._read("tokens.json", dict[str, str]) if (self.path / "tokens.json").exists() else {}

    def keep_tokens(self, tokens: Mapping[str, str]) -> None:
        known = self.tokens()
        if not tokens.items() <= known.items():
            write_atomically(self.path / "tokens.json", json.dumps({**known, **tokens}).encode())

    def left(self) -> list[str]:
        return self._read("left.json", list[str]) if (self.path / "left.json").exists() else []

    def keep_left(self, name: str) -> None:
        write_atomically(self.path / "left.json", json.dumps(sorted({*self.left(), name})).encode())


def make_directory(directory: Path) -> None:
    """A party's own directory, new or already there. RunError if another user may have laid it out: see `files.py`."""
    try:
        make_folder(directory)
        take_over(directory)
    except OSError as error:
        raise SettingsError(f"The run directory {directory} could not be made: {error.strerror}.") from None


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged, and without it this run cannot go on. Start a new one elsewhere.")
