"""Nobody waits for ever: who is connected and silent counts as away, and is back when it speaks."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from peer import Mole, besieged, born_again, seen

from colonnade.errors import RunError
from colonnade.party import Finish, Send, SetTimer
from colonnade.testing import PATIENT, FakeCarrier, letter, says
from colonnade.wire.codec import encode
from colonnade.wire.packets import FRAME, header

SOON = replace(PATIENT, silent_seconds=20.0)


def asked(tmp_path: Path, **script: object) -> tuple[FakeCarrier, Mole]:
    """A bank that asks the mole when it is started; the shop has nothing to do with it."""
    asks = {"Started": [Send("mole", letter(1))], **script}
    return besieged(tmp_path, {"bank": lambda: says(asks), "shop": lambda: says({})}, SOON)  # type: ignore[arg-type]


def wait(town: FakeCarrier, seconds: float) -> None:
    """Time passes, in steps of a carrier."""
    for _ in range(round(seconds / 0.5)):
        town.clock.tick(0.5)
        town.settle()


def test_who_does_not_answer_counts_as_away_until_it_speaks(tmp_path: Path) -> None:
    town, mole = asked(tmp_path)
    with closing(town):
        mole.hear()
        wait(town, 19.0)
        assert seen(town, "bank") == ["Started"]
        mole.acknowledge(1)  # that it has the question is no answer
        wait(town, 3.0)
        assert seen(town, "bank") == ["Started", "PeerLost mole"]
        wait(town, 60.0)
        mole.part()
        mole.connect()  # nor is that it connects anew
        wait(town, 5.0)
        assert seen(town, "bank") == ["Started", "PeerLost mole"]
        mole.send(letter(2))
        town.settle()
        assert seen(town, "bank")[2:] == ["PeerReturned mole", "letter 2"]
        wait(town, 100.0)  # it owes nothing now
        assert len(seen(town, "bank")) == 4


def test_what_is_owed_is_remembered_by_the_next_life(tmp_path: Path) -> None:
    for checkpoint in (False, True):
        town, mole = asked(tmp_path / str(checkpoint))
        with closing(town):
            mole.acknowledge(1)
            if checkpoint:
                town.stations["bank"].save()
            born_again(town, "bank")
            mole.connect()
            wait(town, 25.0)
            assert seen(town, "bank") == ["Started", "PeerLost mole"]


def test_who_owes_nothing_may_be_silent(tmp_path: Path) -> None:
    town, _ = besieged(tmp_path, {"bank": lambda: says({}), "shop": lambda: says({})}, SOON)
    with closing(town):
        wait(town, 100.0)
        assert seen(town, "bank") == ["Started"]


def test_we_who_did_not_listen_blame_nobody(tmp_path: Path) -> None:
    """One turn took an hour, or the machine slept: the answer is there, and has not been read."""
    town, mole = asked(tmp_path)
    with closing(town):
        town.clock.tick(3600.0)
        town.turn("bank")
        mole.send(letter(2))
        wait(town, 5.0)
        assert seen(town, "bank") == ["Started", "letter 2"]


def test_a_long_answer_over_a_slow_link_is_not_silence_and_a_drip_is(tmp_path: Path) -> None:
    for bytes_a_step, lost in ((2000, False), (10, True)):
        town, mole = asked(tmp_path / str(lost))
        with closing(town):
            frame = encode(letter(2, eights=100_000))
            data = memoryview(header(FRAME, 1, 0, len(frame)) + frame)
            for place in range(120):
                mole.raw(bytes(data[place * bytes_a_step : (place + 1) * bytes_a_step]))
                wait(town, 0.5)
            assert ("PeerLost mole" in seen(town, "bank")) is lost


def test_who_never_says_what_it_holds_is_not_there(tmp_path: Path) -> None:
    """However often it connects."""
    town, mole = asked(tmp_path)
    with closing(town):
        for _ in range(60):
            mole.part()
            mole.connect(resumes=False)
            wait(town, 0.5)
        assert seen(town, "bank") == ["Started", "PeerLost mole"]
        mole.part()
        mole.connect()
        mole.send(letter(2))
        town.settle()
        assert seen(town, "bank")[2:] == ["PeerReturned mole", "letter 2"]


def test_who_greets_and_says_no_more_is_not_there(tmp_path: Path) -> None:
    town, mole = asked(tmp_path)
    with closing(town):
        mole.part()
        mole.connect(resumes=False)
        wait(town, 40.0)
        assert seen(town, "bank") == ["Started", "PeerLost mole"]


def test_done_and_gone_is_gone_for_good(tmp_path: Path) -> None:
    town, mole = asked(tmp_path)
    with closing(town):
        mole.send(letter(2))
        mole.done()
        town.settle()
        assert seen(town, "bank") == ["Started", "letter 2", "PeerLost mole"]
        assert not mole.send(letter(3))
        assert town.stations["bank"].absent() == []


def test_a_label_party_whom_everybody_left_ends(tmp_path: Path) -> None:
    """Not before what it has set itself to do is done."""
    town, mole = besieged(tmp_path, {"bank": lambda: says({"Started": [SetTimer("late", 50.0)]})}, SOON)
    with closing(town):
        mole.done()
        wait(town, 49.0)
        with pytest.raises(RunError, match="every other party is gone for good before the training's end"):
            wait(town, 5.0)
        assert seen(town, "bank") == ["Started", "PeerLost mole", "timer late"]


def test_a_party_whose_label_party_ended_without_a_word_ends(tmp_path: Path) -> None:
    town, _ = besieged(tmp_path, {"bank": lambda: says({"Started": [Finish()]}), "shop": lambda: says({})}, SOON)
    with closing(town):
        wait(town, 15.0)
        assert not town.stations["shop"].finished
        with pytest.raises(RunError, match=r"shop cannot go on: the label party is gone for good"):
            wait(town, 10.0)
