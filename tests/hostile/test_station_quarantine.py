"""One bad message costs its sender the place in the run, and nobody anything else: no state, no life."""

import json
import logging
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from peer import Mole, besieged, born_again, seen

from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.errors import ProtocolError, RunError
from colonnade.messages import BatchRequest, EmbeddingUpload
from colonnade.party import Effect, Finish, Received, Send
from colonnade.runtimes import quarantine
from colonnade.runtimes.journal import Expelled
from colonnade.runtimes.replay import replay
from colonnade.state import ChangedRows, HeldArrays, State
from colonnade.testing import FakeCarrier, Scripted, letter, question, says, sends
from colonnade.trace import read_trace
from colonnade.wire.codec import encode


class Fragile(Scripted):
    """A bank that counts letters, and breaks, half-way, over letter 66; letter 55 it refuses."""

    def __init__(self) -> None:
        super().__init__(lambda *_: [])

    def handle(self, event: object) -> Sequence[Effect]:
        if isinstance(event, Received):
            number = getattr(event.message, event.message.__struct_fields__[0])
            if number == 55:
                raise ProtocolError(f"{event.sender} wrote 55\x1b[2J\nof nothing")
            if number == 66:
                self.seen.append((event.now, "half of something"))
                raise ZeroDivisionError(f"secret {number}")
            if number == 65:
                raise DivergedError("The training has diverged.")
            if number == 67:
                raise RunError("The disk speaks another tongue.")
            if number == 68:
                raise OSError(28, "No space left on device")
            if number == 69:
                raise MemoryError
            if number == 99:
                super().handle(event)
                return [Finish()]
        return super().handle(event)  # type: ignore[arg-type]


def town_with(tmp_path: Path, **more: object) -> tuple[FakeCarrier, Mole]:
    shop = lambda: sends("bank", letter(1), letter(2), finish=False)  # noqa: E731
    return besieged(tmp_path, {"bank": Fragile, "shop": shop}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_message_that_breaks_the_party_is_undone(
    tmp_path: Path, checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    town, mole = town_with(tmp_path)
    with closing(town):
        if checkpoint:
            town.stations["bank"].save()
        mole.send(letter(3))
        town.settle()
        before = seen(town, "bank")
        assert before == ["Started", "letter 1", "letter 2", "letter 3"]
        with caplog.at_level(logging.INFO):
            mole.send(letter(66))
            mole.send(letter(4))
            town.settle()
        assert seen(town, "bank") == [*before, "PeerLost mole"]
        assert town.refusals == [("bank", "mole", "What it sent could not be handled.")]
        assert town.stations["bank"].expelled == {"mole": "What it sent could not be handled."}
        assert "BatchRequest of mole could not be handled, ZeroDivisionError in test_station_quarantine.py" in (
            caplog.text
        )
        assert "secret" not in caplog.text
        for _ in range(2):
            born_again(town, "bank")
            assert seen(town, "bank") == [*before, "PeerLost mole"]
            mole.connect(resumes=False)
            town.turn("bank")
            assert "mole was expelled from this run" in town.refusals[-1][2]
            assert not mole.send(letter(5))
            town.stations["bank"].save()


class Roomy(Fragile):
    """With arrays so large that a checkpoint is due when much of them has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = ChangedRows(10, 8)

    def state(self) -> State:
        state = super().state()
        state.large["rows"] = HeldArrays({}, self.changed)
        return state


def test_after_an_error_the_new_partys_arrays_are_attended_to(tmp_path: Path) -> None:
    town, mole = besieged(tmp_path, {"bank": Roomy, "shop": lambda: sends("bank", letter(1), finish=False)})
    with closing(town):
        bank = town.stations["bank"]
        before = bank.party.state().large["rows"].changed
        mole.send(letter(66))
        town.settle()
        now = bank.party.state().large["rows"].changed
        assert now is not before and [*map(id, bank._keeper._changed)] == [id(now)]


def test_what_is_put_aside_is_its_users_alone_and_says_no_values(tmp_path: Path) -> None:
    town, mole = town_with(tmp_path)
    with closing(town):
        mole.send(letter(66))
        town.settle()
    folder = tmp_path / "quarantine"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    described, frame = folder / "bank-0001.json", folder / "bank-0001.frame"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    said = json.loads(described.read_text())
    assert (said["sender"], said["error"], said["message"]) == ("mole", "ZeroDivisionError", "BatchRequest")
    assert "secret" not in described.read_text()
    assert frame.read_bytes() == encode(letter(66))


def test_the_quarantine_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MOST_EVENTS", 2)
    monkeypatch.setattr(quarantine, "MOST_BYTES", 40)
    aside = quarantine.Quarantine(tmp_path, "bank")
    event, error = Received(0.0, "mole", letter(1)), KeyError("secret")
    assert [aside.put(event, bytes(32), error) is not None for _ in range(4)] == [True, True, False, False]
    assert sorted(path.name for path in aside.folder.iterdir()) == [
        "bank-0001.frame",
        "bank-0001.json",
        "bank-0002.json",
    ]


def test_a_message_that_breaks_the_protocol_is_not_written_down_as_handled(tmp_path: Path) -> None:
    town, mole = town_with(tmp_path)
    with closing(town):
        mole.send(letter(55))
        mole.send(letter(4))
        town.settle()
        assert town.refusals == [("bank", "mole", "mole wrote 55�[2J�of nothing")]  # fit for a log
        journalled = [event for event, _ in town.stations["bank"]._keeper.events()]
        assert [event.sender for event in journalled if isinstance(event, Received)] == ["shop", "shop"]
        assert [event.peer for event in journalled if isinstance(event, Expelled)] == ["mole"]
        born_again(town, "bank")
        assert seen(town, "bank") == ["Started", "letter 1", "letter 2", "PeerLost mole"]
        assert town.stations["bank"]._links.peers["mole"].delivery.taken == 1


UPLOAD = bytes(encode(EmbeddingUpload(1, np.arange(2, dtype=np.uint32), np.full((2, 1), np.nan, np.float32))))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"abc", "not a Colonnade frame"),
        (UPLOAD, "NaN or infinity"),
        (UPLOAD.replace(b"EmbeddingUpload", b"EmbeddingUploxd"), "Unknown kind"),
        (UPLOAD[:12] + b"\xff" + UPLOAD[13:], "header"),
    ],
)
def test_bytes_that_are_no_message_expel_their_sender_at_once(tmp_path: Path, data: bytes, said: str) -> None:
    town, mole = town_with(tmp_path)
    with closing(town):
        assert not mole.frame(data)
        assert said in mole.refused[0]
        town.settle()
        born_again(town, "bank")
        assert seen(town, "bank") == ["Started", "letter 1", "letter 2", "PeerLost mole"]


def test_who_breaks_the_links_rules_may_come_again_but_not_for_ever(tmp_path: Path) -> None:
    town, mole = town_with(tmp_path)
    with closing(town):
        for _ in range(21):
            assert not town.stations["bank"].expelled
            assert not mole.send(letter(1), number=1000)
            mole.connect(resumes=not town.stations["bank"].expelled)
        assert [*town.stations["bank"].expelled] == ["mole"]
        town.settle()
        assert seen(town, "bank")[-1] == "PeerLost mole"


@pytest.mark.parametrize("number", [68, 69])
def test_an_error_of_our_own_machine_expels_nobody(tmp_path: Path, number: int) -> None:
    """The process ends; the next one is given the message again, which was never accepted."""
    town, mole = town_with(tmp_path)
    with closing(town):
        mole.send(letter(number))
        with pytest.raises((OSError, MemoryError)):
            town.settle()
        assert not town.stations["bank"].expelled
        town.kill("bank")
        town.revive("bank")
        assert seen(town, "bank") == ["Started", "letter 1", "letter 2"]
        assert town.stations["bank"]._links.peers["mole"].delivery.taken == 0


def test_what_a_second_peer_brings_about_too_is_the_runs_own_error(tmp_path: Path) -> None:
    """It ends in its own words, and not with everybody expelled."""
    shop = lambda: sends("bank", letter(67), finish=False)  # noqa: E731
    town, mole = besieged(tmp_path, {"bank": Fragile, "shop": shop})
    with closing(town):
        mole.send(letter(67))
        with pytest.raises(RunError, match="another tongue"):
            town.settle()
        assert len(town.stations["bank"].expelled) == 1


@pytest.mark.parametrize("others", [[], ["shop"]])
def test_a_training_that_diverges_ends_in_its_own_words_and_nobody_is_expelled(
    tmp_path: Path, others: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sent the last of many messages is not to blame, though it be the first or the only one."""
    town, mole = besieged(tmp_path, {"bank": Fragile, **dict.fromkeys(others, lambda: Scripted(lambda *_: []))})
    with closing(town):
        mole.send(letter(65))
        with pytest.raises(RunError, match=r"^The training has diverged\."):
            town.settle()
        assert not town.stations["bank"].expelled
        assert seen(town, "bank") == ["Started"]
    assert "expelled" not in caplog.text and not [*tmp_path.rglob("quarantine")]


def test_who_expels_the_last_of_the_others_says_so_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    town, mole = besieged(tmp_path, {"bank": Fragile})
    with closing(town):
        mole.send(letter(67))
        with pytest.raises(RunError, match=r"every other party is gone for good .* Expelled were: mole \(What it"):
            town.settle()
        assert "RunError in test_station_quarantine.py" in caplog.text
        assert "The disk speaks another tongue." in caplog.text
        town.write("bank")
        town.kill("bank")
        with pytest.raises(RunError, match=r"every other party is gone for good"):
            town.revive("bank")


def test_a_trace_has_nothing_of_what_was_undone(tmp_path: Path) -> None:
    town, mole = town_with(tmp_path)
    mole.send(letter(66))
    town.settle()
    town.close()
    trace = tmp_path / "trace" / "bank.trace"
    assert [record.type for record in read_trace(trace)] == ["Started", "Received", "Received", "PeerLost"]
    again = Fragile()
    assert replay(again, trace) == 4
    assert again.names() == ["Started", "letter 1", "letter 2", "PeerLost mole"]


def test_where_nobody_is_a_stranger_a_defect_is_seen(tmp_path: Path) -> None:
    town, mole = town_with(tmp_path, expels=False)
    with closing(town):
        mole.send(letter(66))
        with pytest.raises(ZeroDivisionError):
            town.settle()
        assert not town.stations["bank"].expelled


# --- a journal of before ----------------------------------------------------------------------------------------


def old_journal(tmp_path: Path) -> tuple[FakeCarrier, Mole]:
    """A bank that has died, and whose journal holds what it cannot handle, as if it had been written down before."""
    town, mole = town_with(tmp_path)
    bank = town.stations["bank"]
    for number, message in enumerate((letter(66), question(67), letter(8)), start=1):
        bank._keeper.journal.append(Received(0.5, "mole", message), encode(message))
        if number < 3:
            bank._keeper.journal.append(Received(0.5, "shop", letter(10 + number)), encode(letter(10 + number)))
    bank._keeper.journal.flush()
    town.write("bank")  # on the disk
    town.kill("bank")
    return town, mole


def test_a_journal_that_cannot_be_handled_again_stops_the_party_with_one_sentence(tmp_path: Path) -> None:
    town, _ = old_journal(tmp_path)
    with closing(town), pytest.raises(RunError) as error:
        town.revive("bank")
    said = str(error.value)
    assert "bank cannot handle again what mole sent: the message BatchRequest, event 4 of the journal of bank" in said
    assert "ZeroDivisionError" in said and "--quarantine" in said and "secret" not in said


def test_it_can_be_passed_over_once_and_for_all(tmp_path: Path) -> None:
    town, _ = old_journal(tmp_path)
    with closing(town):
        town.passes_over = True
        town.revive("bank")
        handled = ["Started", "letter 1", "letter 2", "letter 11", "letter 12", "letter 8"]
        assert seen(town, "bank") == handled
        assert [*town.stations["bank"].expelled] == ["mole"]
        assert len([*(tmp_path / "quarantine").glob("bank-*.json")]) == 2
        town.passes_over = False
        born_again(town, "bank")
        assert seen(town, "bank") == [*handled, "PeerLost mole"]


def test_an_answer_that_cannot_be_encoded_is_undone_like_any_error(tmp_path: Path) -> None:
    """Such as one whose arrays are of the wrong kind: by then the party's state has changed."""

    wrong = BatchRequest(1, np.zeros(1, np.float64))  # type: ignore[arg-type]
    bank = lambda: says({"letter 6": [Send("shop", letter(1)), Send("shop", wrong)]})  # noqa: E731
    town, mole = besieged(tmp_path, {"bank": bank, "shop": lambda: says({})})
    with closing(town):
        mole.send(letter(6))
        town.settle()
        assert seen(town, "bank") == ["Started", "PeerLost mole"]
        assert seen(town, "shop") == ["Started"]
