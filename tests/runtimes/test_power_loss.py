"""The machine goes down, and the disk holds what was synced: never less than what left, and nobody goes on too early.

A party that remembers less than can have left would draw the same noise again for other values, so it must not. A disk
is played by what every file held when it was last synced, a start of the machine by its number in a file.
"""

import json
import os
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import Afsgd, BottomSettings, PerturbationSettings, TopSettings, Vafl, from_arrays
from colonnade.algorithms.training import DecidedTraining
from colonnade.errors import RunError
from colonnade.federation.building import build_party, facts_of, private_data_of
from colonnade.federation.plan import Plan
from colonnade.messages import EmbeddingUpload, EvaluationEmbedding, EvaluationMaskedSum, MaskedSum
from colonnade.privacy import ledger as ledgers
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.endurance import Endurance
from colonnade.testing import FakeCarrier
from colonnade.wire.codec import decode

BLOCK = 4


class Machine:
    """What is on the disk for good, and which start of the machine this is."""

    def __init__(self, folder: Path) -> None:
        self.boot = folder / "boot_id"
        self.boot.write_text("1")
        self._synced: dict[str, bytes] = {}

    def sync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_file():
            self._synced[str(path)] = path.read_bytes()

    def on_disk(self, path: Path) -> bytes:
        return self._synced.get(str(path), b"")

    def lose_power(self, *paths: Path) -> None:
        """These files are as they were synced, and the machine has started again."""
        for path in paths:
            path.write_bytes(self.on_disk(path))
        self.boot.write_text(str(int(self.boot.read_text()) + 1))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine(tmp_path)
    monkeypatch.setattr(os, "fsync", one.sync)
    monkeypatch.setattr(ledgers, "_BOOT_ID", one.boot)
    monkeypatch.setattr(ledgers, "BLOCK_RELEASES", BLOCK)
    return one


def release(*rows: int) -> PrivacyEvent:
    ids = np.array(rows, np.uint32)
    return PrivacyEvent("gaussian", 2.0, 4.0, len(rows), row_ids=ids, protects="one row", viewers=("label",))


def most(content: bytes) -> int:
    """How many releases can have left, by the last whole line of a ledger.reserved."""
    lines = content.rpartition(b"\n")[0].splitlines()
    return int(json.loads(lines[-1])["releases"]) if lines else 0


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "ledger.jsonl", folder / "ledger.reserved"


def killed(ledger: Ledger) -> None:
    """The process ends without a word."""
    assert ledger._file is not None
    ledger._file.close()


def test_the_disk_never_says_less_than_can_have_left(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    with closing(Ledger(path)) as ledger:
        assert not reserved.exists()  # nothing is reserved where nothing is released
        for number in range(1, 3 * BLOCK + 2):
            ledger.spend("bank", release(number))
            assert number <= most(machine.on_disk(reserved)) < number + BLOCK
            assert machine.on_disk(path).count(b"\n") > number - BLOCK
        position = ledger.state().values["position"]
        assert len(machine.on_disk(path)) == position  # what a checkpoint counts on


def power_lost_after(releases: int, machine: Machine, folder: Path) -> tuple[Path, Path]:
    """The files as they are after a process that released one row after the other, and its machine, went down."""
    path, reserved = files(folder)
    ledger = Ledger(path)
    for row in range(releases):
        ledger.spend("bank", release(row))
    killed(ledger)
    machine.lose_power(path, reserved)
    return path, reserved


def test_a_party_that_remembers_less_than_can_have_left_does_not_go_on(machine: Machine, tmp_path: Path) -> None:
    path, reserved = power_lost_after(BLOCK + 2, machine, tmp_path)
    again = Ledger(path)
    for row in range(BLOCK + 1):  # the journal lost the last event
        again.spend("bank", release(row))
    with pytest.raises(RunError, match=rf"{BLOCK + 1} noised releases are remembered, and up to {2 * BLOCK} can"):
        again.settle()
    again.close()
    assert most(reserved.read_bytes()) == 2 * BLOCK  # and it stays so: a second try fares no better


def test_with_a_synced_journal_it_remembers_all_and_goes_on(machine: Machine, tmp_path: Path) -> None:
    path, _ = power_lost_after(BLOCK + 2, machine, tmp_path)
    assert path.read_bytes().count(b"\n") == BLOCK + 1
    again = Ledger(path)
    for row in range(BLOCK + 2):
        again.spend("bank", release(row))
    again.settle(journal_is_synced=True)
    assert path.read_bytes().count(b"\n") == BLOCK + 2  # the lost line is there again
    killed(again)
    with closing(Ledger(path)) as third:  # killed, and the machine stayed up: nothing is lost
        third.settle()


def test_nothing_is_lost_while_the_machine_stays_up(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    ledger = Ledger(path)
    ledger.spend("bank", release(0))
    killed(ledger)
    with closing(Ledger(path)) as again:
        again.settle()
        again.spend("bank", release(1))
        assert most(reserved.read_bytes()) == BLOCK  # the same block goes on


def test_an_end_in_order_gives_back_what_was_not_used(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    with closing(Ledger(path)) as ledger:
        ledger.spend("bank", release(0))
        saved = ledger.state()
    assert most(reserved.read_bytes()) == 1
    machine.lose_power(path, reserved)
    with closing(Ledger(path, saved.values["position"])) as again:
        again.restore(saved)
        again.settle()
        again.spend("bank", release(0))
        assert again.summary()[0]["max_releases_per_row"] == 2


def test_a_torn_reservation_was_not_counted_on(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    ledger = Ledger(path)
    for row in range(BLOCK):
        ledger.spend("bank", release(row))
    killed(ledger)
    with reserved.open("ab") as file:
        file.write(b'{"releases": 9')
    with closing(Ledger(path)) as again:
        for row in range(BLOCK + 1):
            again.spend("bank", release(row))
        assert [json.loads(line)["releases"] for line in reserved.read_bytes().splitlines()] == [BLOCK, 2 * BLOCK]


def test_a_file_that_was_shortened_is_noticed(tmp_path: Path) -> None:
    path, _ = files(tmp_path)
    with closing(Ledger(path)) as ledger:
        ledger.spend("bank", release(0))
        saved = ledger.state()
    path.write_bytes(b"")
    with pytest.raises(RunError, match="shorter than it was at the last checkpoint"):
        Ledger(path, saved.values["position"])


# --- a whole party -----------------------------------------------------------------------------------------------


def private_town(folder: Path) -> FakeCarrier:
    """24 training rows of four columns, two a party, embeddings with noise; nobody saves unless told to."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 4))
    y = (X.sum(1) > 0).astype(int)
    data = from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=2, task="binary", standardise=False)
    training = DecidedTraining(epochs=20, batch_size=8, observe_every_epochs=0.5)
    privacy = PerturbationSettings(noise=0.3, clip=1.0, bottom_update="frozen")
    bottom, top = BottomSettings("linear", embedding=2), TopSettings("concat-linear")
    plan = Plan(Vafl(), training, privacy, bottom, top, seed=0)
    facts = facts_of(data, plan)
    endurance = Endurance(notice_seconds=1.0, arrival_seconds=5.0, checkpoint_seconds=1e9)

    def build(name: str) -> Any:
        return build_party(private_data_of(data, name, plan), facts, plan)

    return FakeCarrier(folder / "town", ("label", "party1", "party2"), build, endurance=endurance, trace=False)


def go_on_until(town: FakeCarrier, exchanges: int) -> None:
    while town.stations["label"].party.counts()["exchanges"] < exchanges:
        town.join_all()
        town.go_on()
        town.clock.tick(0.01)


def noised_frames(town: FakeCarrier, name: str) -> int:
    """How many noised values have left a party."""
    frames = [decode(bytearray(frame)) for (sender, _, _), frame in town.carried.items() if sender == name]
    return sum(isinstance(message, EmbeddingUpload | EvaluationEmbedding) for message in frames)


@pytest.mark.parametrize("saves", [False, True])
def test_a_party_whose_journal_is_lost_does_not_go_on(machine: Machine, tmp_path: Path, saves: bool) -> None:
    town = private_town(tmp_path)
    go_on_until(town, 7)
    if saves:
        town.stations["party1"].save()
    go_on_until(town, 20)
    folder = town.directory / "ledger"
    names = (folder / "party1.jsonl", folder / "party1.reserved")
    left = noised_frames(town, "party1")
    assert left >= 10
    killed(town.stations["party1"]._ledger)
    town.kill("party1")
    journals = sorted((town.directory / "journal").glob("party1-*.journal"))
    machine.lose_power(*names, *journals)  # a journal is not synced, unless asked for
    assert most(names[1].read_bytes()) >= left
    with pytest.raises(RunError, match="The machine went down while this party ran"):
        town.revive("party1")
    town.kill("label")
    town.revive("label")  # it releases nothing with noise
    town.close()


def test_a_party_that_ended_in_order_goes_on_after_a_start_of_the_machine(machine: Machine, tmp_path: Path) -> None:
    town = private_town(tmp_path)
    go_on_until(town, 20)
    town.stations["party1"].save()
    town.stations["party1"]._ledger.close()
    town.kill("party1")
    machine.boot.write_text("2")
    town.finish()
    assert town.refusals == []
    town.close()


def test_a_party_with_an_unsent_line_that_ended_in_order_goes_on_too(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    ledger = Ledger(path)
    ledger.spend("bank", release(0))
    ledger.spend("bank", release(1))  # killed before it was in the journal
    killed(ledger)
    with closing(Ledger(path)) as again:
        again.spend("bank", release(0))
        again.settle()
        saved = again.state()
    assert most(reserved.read_bytes()) == 2
    machine.lose_power(path, reserved)
    third = Ledger(path, saved.values["position"])
    third.restore(saved)
    third.settle()
    third.spend("bank", release(2))
    assert most(machine.on_disk(reserved)) >= 2 + 1  # reserved anew before it leaves
    killed(third)
    machine.lose_power(path, reserved)
    fourth = Ledger(path, saved.values["position"])
    fourth.restore(saved)
    with pytest.raises(RunError, match="1 noised releases are remembered"):
        fourth.settle()


def test_a_line_that_the_power_took_is_written_again_also_after_an_unsent_one(machine: Machine, tmp_path: Path) -> None:
    path, reserved = files(tmp_path)
    ledger = Ledger(path)
    for rows in ((0,), (1, 2, 3)):  # the second is not in the journal
        ledger.spend("bank", release(*rows))
    killed(ledger)
    again = Ledger(path)
    again.spend("bank", release(0))
    again.settle()
    again._sync()
    machine.sync(again._file.fileno())  # type: ignore[union-attr]
    again.spend("bank", release(4, 5))
    killed(again)
    machine.lose_power(path, reserved)
    with closing(Ledger(path)) as third:
        third.spend("bank", release(0))
        third.spend("bank", release(4, 5))
        third.settle(journal_is_synced=True)
    assert [json.loads(line)["rows"] for line in path.read_text().splitlines()] == [1, 3, 2]


def test_a_party_whose_journal_was_shortened_is_refused_and_its_ledger_says_no_less(tmp_path: Path) -> None:
    town = private_town(tmp_path)
    go_on_until(town, 20)
    path = town.directory / "ledger" / "party1.jsonl"
    town.kill("party1")
    written = path.read_bytes().count(b"\n")
    (journal,) = (town.directory / "journal").glob("party1-*.journal")
    os.truncate(journal, journal.stat().st_size // 2)
    town.revive("party1")
    remembered = sum(kind["releases"] for kind in town.stations["party1"].privacy_events())
    assert 0 < remembered < written - 3
    sent = len([1 for sender, _, _ in town.carried if sender == "party1"])
    town.join_all()
    for _ in range(5):
        town.go_on()
    said = "What party1 remembers is older than what label has heard from it (only "
    assert [(name, peer) for name, peer, why in town.refusals if why.startswith(said)] == [("party1", "label")]
    assert len([1 for sender, _, _ in town.carried if sender == "party1"]) == sent
    town.close()
    assert most(path.with_suffix(".reserved").read_bytes()) == written


# --- masks --------------------------------------------------------------------------------------------------------


def masked_town(folder: Path, sums: str, sync: bool = False) -> FakeCarrier:
    """A linear federation of three feature parties whose sums are masked; nobody saves unless told to."""
    X = np.random.default_rng(5).normal(size=(32, 6))
    y = (X.sum(1) > 0).astype(int)
    data = from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=3, task="binary", standardise=False)
    training = DecidedTraining(epochs=20, batch_size=8, observe_every_epochs=0.5)
    plan = Plan(Afsgd(sums=sums), training, PerturbationSettings(), BottomSettings(), TopSettings(), seed=0)
    facts = facts_of(data, plan)
    endurance = Endurance(notice_seconds=1.0, arrival_seconds=5.0, checkpoint_seconds=1e9, sync=sync)

    def build(name: str) -> Any:
        return build_party(private_data_of(data, name, plan), facts, plan)

    names = ("label", "party1", "party2", "party3")
    links = combinations(names, 2)  # everybody speaks to everybody
    return FakeCarrier(folder / "town", names, build, links, endurance=endurance, trace=False)


def masked_frames(town: FakeCarrier, name: str) -> int:
    frames = [decode(bytearray(frame)) for (sender, _, _), frame in town.carried.items() if sender == name]
    return sum(isinstance(message, MaskedSum | EvaluationMaskedSum) for message in frames)


@pytest.mark.parametrize("sums", ["two-tree", "pairwise"])
@pytest.mark.parametrize("saves", [False, True])
def test_a_party_that_lost_its_journal_uses_no_mask_again(
    machine: Machine, tmp_path: Path, sums: str, saves: bool
) -> None:
    """Somebody above it who says that it lost a sum would get another one under the same mask, and their difference."""
    town = masked_town(tmp_path, sums)
    go_on_until(town, 7)
    if saves:
        town.stations["party1"].save()
    go_on_until(town, 20)
    folder = town.directory / "ledger"
    names = (folder / "party1.jsonl", folder / "party1.reserved")
    left = masked_frames(town, "party1")
    assert left >= 10
    killed(town.stations["party1"]._ledger)
    town.kill("party1")
    machine.lose_power(*names, *sorted((town.directory / "journal").glob("party1-*.journal")))
    assert most(names[1].read_bytes()) >= left
    with pytest.raises(RunError, match=r"masked sums are remembered, and up to \d+ can have left.*use the same masks"):
        town.revive("party1")
    town.close()


def test_with_a_synced_journal_a_masked_party_goes_on(machine: Machine, tmp_path: Path) -> None:
    town = masked_town(tmp_path, "pairwise", sync=True)
    go_on_until(town, 10)
    killed(town.stations["party1"]._ledger)
    town.kill("party1")
    machine.boot.write_text("2")  # nothing is lost but the process
    town.revive("party1")
    sent = masked_frames(town, "party1")
    go_on_until(town, 14)
    assert masked_frames(town, "party1") > sent
    town.close()


def test_a_masked_party_that_was_killed_goes_on_while_the_machine_stays_up(machine: Machine, tmp_path: Path) -> None:
    town = masked_town(tmp_path, "two-tree")
    go_on_until(town, 10)
    killed(town.stations["party1"]._ledger)
    town.kill("party1")
    town.revive("party1")
    go_on_until(town, 14)
    town.close()


def test_plain_sums_reserve_nothing(machine: Machine, tmp_path: Path) -> None:
    town = masked_town(tmp_path, "plain")
    go_on_until(town, 10)
    assert not (town.directory / "ledger" / "party1.reserved").exists()
    town.close()


def test_a_party_with_reserved_masks_and_no_journal_does_not_go_on(tmp_path: Path) -> None:
    path, _ = files(tmp_path)
    with closing(Ledger(path)) as ledger:
        ledger.use_mask()
    assert path.stat().st_size == 0
    with pytest.raises(RunError, match="use the same masks, again"):
        ledgers.check_journal(path, False, "bank")
