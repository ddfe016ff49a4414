"""A journal that was torn at any byte gives the events before it, in order, and goes on from there."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import RunError
from colonnade.party import Event, PeerLost, PeerReturned, Received, Started, TimerFired
from colonnade.runtimes.journal import Journal, begin_life, events_after, first_number, last_number
from colonnade.testing import letter
from colonnade.trace import MAGIC, Record, packed
from colonnade.wire.codec import encode

FRAME = encode(letter(3))
EVENTS: list[tuple[Event, bytearray | None]] = [
    (Started(0.0), None),
    (Received(0.5, "shop", letter(3)), FRAME),
    (TimerFired(1.0, "wake"), None),
    (PeerLost(1.5, "shop"), None),
    (PeerReturned(2.0, "shop"), None),
]
RECORDS = [
    Record("Started", (0.0,)),
    Record("Received", (0.5, "shop", bytes(FRAME))),
    Record("TimerFired", (1.0, "wake")),
    Record("PeerLost", (1.5, "shop")),
    Record("PeerReturned", (2.0, "shop")),
]


def written(directory: Path, number: int = 0, events: int = 5) -> Path:
    journal = Journal(directory, "bank", number)
    for event, frame in EVENTS[:events]:
        journal.append(event, frame)
    journal.flush()
    journal.close()
    return directory / f"bank-{number:010d}.journal"


def read(directory: Path, number: int = 0) -> list[Record]:
    return [*events_after(directory, "bank", number)]


def test_every_event_is_read_back(tmp_path: Path) -> None:
    path = written(tmp_path / "deep")
    assert read(tmp_path / "deep") == RECORDS
    assert path.stat().st_mode & 0o777 == 0o600  # messages of others are in it


def test_nothing_is_safe_before_the_flush(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "bank", 0)
    journal.append(Started(0.0))
    assert read(tmp_path) == []
    journal.flush()
    assert read(tmp_path) == RECORDS[:1]
    journal.append(TimerFired(1.0, "wake"))
    journal.close()
    assert read(tmp_path) == RECORDS[:1]


def test_torn_at_every_byte(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    counts = []
    for length in range(len(whole) + 1):
        path = tmp_path / "bank-0000000000.journal"
        path.write_bytes(whole[:length])
        kept = read(tmp_path)
        assert kept == RECORDS[: len(kept)]
        counts.append(len(kept))
        again = Journal(tmp_path, "bank", 0)
        again.append(Started(9.0))
        again.flush()
        again.close()
        assert read(tmp_path) == [*kept, Record("Started", (9.0,))]
    assert counts == sorted(counts)
    assert (counts[0], counts[len(MAGIC)], counts[-1]) == (0, 0, 5)
    assert {*counts} == {0, 1, 2, 3, 4, 5}


@given(cuts=st.lists(st.integers(0, 120), max_size=6), data=st.data())
def test_torn_again_and_again(cuts: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """After each tear some events are kept, and others follow: never one that was lost, never out of order."""
    directory = tmp_path_factory.mktemp("journal")
    expected: list[Record] = []
    clock = 0.0
    for cut in cuts:
        journal = Journal(directory, "bank", 0)
        for _ in range(data.draw(st.integers(0, 4))):
            clock += 1.0
            journal.append(TimerFired(clock, "wake"))
            expected.append(Record("TimerFired", (clock, "wake")))
        journal.flush()
        journal.close()
        path = directory / "bank-0000000000.journal"
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(max(0, size - cut))
        kept = read(directory)
        assert kept == expected[: len(kept)]
        assert cut > 0 or kept == expected
        expected = kept


def test_a_flipped_byte_in_the_middle_is_told_and_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    last = len(whole) - len(packed(RECORDS[-1]))
    for place in range(len(MAGIC), last):
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=rf"{path.name} is damaged near byte \d+: .* begin a new run, every party"):
            read(tmp_path)
        with pytest.raises(RunError, match="is damaged"):
            Journal(tmp_path, "bank", 0)
        assert path.read_bytes() == damaged


def test_what_a_loss_of_power_leaves_at_the_end_is_harmless(tmp_path: Path) -> None:
    """The last record with a page of zeros in it, a file that grew without being filled, a file of zeros."""
    path = written(tmp_path)
    whole = path.read_bytes()
    for content, kept in (
        (whole[:-10] + bytes(10), 4),
        (whole[:-10] + bytes(5000), 4),
        (whole + bytes(3), 5),
        (whole + bytes(5000), 5),
        (bytes(5000), 0),
    ):
        path.write_bytes(content)
        assert read(tmp_path) == RECORDS[:kept]
        journal = Journal(tmp_path, "bank", 0)
        journal.append(Started(9.0))
        journal.flush()
        journal.close()
        assert read(tmp_path) == [*RECORDS[:kept], Record("Started", (9.0,))]


def test_each_checkpoint_begins_a_journal_and_two_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "bank", 0)
    for number in range(1, 5):
        journal.append(TimerFired(float(number), "before"))
        journal.begin(number)  # what waits belongs to the journal that ends
        assert journal.size_bytes == 0
    journal.append(TimerFired(5.0, "after"))
    journal.flush()
    journal.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank-0000000003.journal", "bank-0000000004.journal"]
    assert read(tmp_path, 4) == [Record("TimerFired", (5.0, "after"))]
    assert read(tmp_path, 3) == [Record("TimerFired", (4.0, "before")), Record("TimerFired", (5.0, "after"))]
    assert (first_number(tmp_path, "bank"), last_number(tmp_path, "bank")) == (3, 4)


def test_a_journal_that_is_opened_again_knows_its_size(tmp_path: Path) -> None:
    path = written(tmp_path)
    journal = Journal(tmp_path, "bank", 0)
    assert journal.size_bytes == path.stat().st_size
    journal.append(Started(1.0))
    journal.flush()
    journal.close()
    assert journal.size_bytes == path.stat().st_size


def test_names_that_begin_alike_are_apart(tmp_path: Path) -> None:
    for name in ("bank", "bank-2", "bank.old"):
        journal = Journal(tmp_path, name, 3)
        journal.append(TimerFired(0.0, name))
        journal.flush()
        journal.close()
    for name in ("bank", "bank-2", "bank.old"):
        assert [*events_after(tmp_path, name, 0)] == [Record("TimerFired", (0.0, name))]
        assert last_number(tmp_path, name) == 3
    assert (first_number(tmp_path, "ban"), last_number(tmp_path, "ban")) == (None, 0)


def test_lives_are_counted_however_short(tmp_path: Path) -> None:
    assert [begin_life(tmp_path / "new", "bank") for _ in range(3)] == [0, 1, 2]
    assert begin_life(tmp_path / "new", "ban") == 0
    assert last_number(tmp_path / "new", "bank") == 0


def test_a_disk_that_was_full_for_a_moment_leaves_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the error is not written again after it."""
    journal = Journal(tmp_path, "bank", 0)
    for event, frame in EVENTS:
        journal.append(event, frame)
    real, room = os.write, [50]

    def write(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real(file, data[: room[0]])
        room[0] -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        patch.setattr(os, "writev", lambda file, parts: write(file, b"".join(parts)))
        with pytest.raises(OSError, match="No space left"):
            journal.flush()
    before = read(tmp_path)
    assert before == RECORDS[: len(before)]
    assert len(before) < 5
    journal.flush()
    journal.close()
    assert read(tmp_path) == RECORDS


def test_with_sync_every_flush_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    for sync in (False, True):
        journal = Journal(tmp_path, "bank", int(sync), sync)
        journal.append(Started(0.0))
        journal.flush()
        journal.flush()  # nothing new, nothing to wait for
        journal.close()
        assert len(synced) == sync
