"""Whatever is kept on behalf of a peer is bounded, across reconnects: beyond that it is refused, then expelled."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from peer import Mole, besieged, seen

from colonnade.party import Observe, Send
from colonnade.runtimes import recorder
from colonnade.runtimes.links import _FAULTS
from colonnade.runtimes.peer import USELESS_PACKETS
from colonnade.testing import PATIENT, FakeCarrier, letter, question, says, sends
from colonnade.wire.codec import encode
from colonnade.wire.packets import FRAME

FEW = replace(PATIENT, waiting_frames=4, waiting_bytes=4000)


def quiet_town(tmp_path: Path, **script: object) -> tuple[FakeCarrier, Mole]:
    bank = lambda: says(script)  # type: ignore[arg-type]  # noqa: E731
    return besieged(tmp_path, {"bank": bank, "shop": lambda: says({})}, FEW)


def test_what_waits_is_bounded_however_often_its_sender_reconnects(tmp_path: Path) -> None:
    town, mole = quiet_town(tmp_path)
    bank = town.stations["bank"]
    with closing(town):
        for _ in range(10):
            while bank.wants_more("mole"):
                assert mole.send(letter(1, eights=2))
            mole.part()
            mole.connect()
        assert bank.queue_depth() == 4
        assert not bank.wants_more("mole")


def test_what_is_kept_for_one_that_does_not_take_its_answers_is_bounded(tmp_path: Path) -> None:
    """It asks, takes no answer, is refused, and comes again."""
    answers = {f"question {n}": [Send("mole", letter(n))] for n in range(128)}
    town, mole = quiet_town(tmp_path, **answers)
    bank = town.stations["bank"]
    with closing(town):
        most = 0
        for _ in range(200):
            if not mole.send(question(mole.sent % 100)) and not bank.expelled:
                mole.connect(held=0)
            bank.turn()
            most = max(most, bank.links["mole"].kept_frames)
            if bank.expelled:
                break
        assert [*bank.expelled] == ["mole"]
        assert 0 < most < 10 * FEW.waiting_frames
        assert bank.links["mole"].kept_frames == 0
        assert "wait to be acknowledged" in mole.refused[-1]


def test_what_is_kept_for_one_that_is_away_is_bounded(tmp_path: Path) -> None:
    """The shop's letters make the bank write to the mole, who is away."""
    answers = {f"letter {n}": [Send("mole", letter(n))] for n in range(100)}
    town, mole = besieged(
        tmp_path,
        {"bank": lambda: says(answers), "shop": lambda: sends("bank", *map(letter, range(60)), finish=False)},
        FEW,
    )
    with closing(town):
        assert town.stations["bank"].expelled == {}  # while it is there it may be slow
        mole.part()
        town.clock.tick(2.0)
        town.settle()
        shop = town.stations["shop"]
        for _ in range(20):
            shop.transmit("bank", encode(letter(1)), type(letter(1)))
        town.settle()
        assert [*town.stations["bank"].expelled] == ["mole"]
        assert town.stations["bank"].links["mole"].kept_frames == 0
        assert seen(town, "bank").count("PeerLost mole") == 1


@pytest.mark.parametrize("what", ["acknowledgements", "frames that are here", "words to start"])
def test_packets_that_say_nothing_new_are_refused_then_their_sender(tmp_path: Path, what: str) -> None:
    town, mole = quiet_town(tmp_path)
    bank = town.stations["bank"]
    with closing(town):
        mole.send(letter(1))
        town.settle()
        most = (_FAULTS + 1) * (USELESS_PACKETS + 1)
        for _ in range(most):
            match what:
                case "acknowledgements":
                    went = mole.acknowledge(0)
                case "frames that are here":
                    went = mole.send(letter(2), number=1)
                case _:
                    went = mole.start()
            if bank.expelled:
                break
            if not went:
                mole.connect()
        assert [*bank.expelled] == ["mole"]
        town.settle()
        assert seen(town, "bank") == ["Started", "letter 1", "PeerLost mole"]


def test_an_honest_peer_may_reconnect_as_often_as_it_likes(tmp_path: Path) -> None:
    """With frames that wait, and come again each time; with acknowledgements in between."""
    bank = lambda: sends("shop", *map(letter, range(60)), finish=False)  # noqa: E731
    shop = lambda: sends("bank", *map(letter, range(60)), finish=False)  # noqa: E731
    town, _ = besieged(tmp_path, {"bank": bank, "shop": shop})
    with closing(town):
        town.part("bank", "shop")
        for turn in range(300):
            town.join("bank", "shop")
            for name, peer in (("bank", "shop"), ("shop", "bank"), ("bank", "shop"), ("shop", "bank")):
                town.write(name)
                town.carry(name, peer)
            if turn % 3 == 0:
                town.turn("bank")
                town.turn("shop")
                town.clock.tick(0.06)
            town.part("bank", "shop")
        town.join("bank", "shop")
        town.settle()
        assert town.refusals == []
        assert seen(town, "bank") == ["Started", *(f"letter {n}" for n in range(60))]


def test_acknowledgements_for_one_that_does_not_read_are_one(tmp_path: Path) -> None:
    town, mole = quiet_town(tmp_path)
    with closing(town):
        mole.hear()
        for number in range(50):
            mole.send(letter(number))
            town.turn("bank")
            town.clock.tick(0.06)
            town.turn("bank")
        heard = mole.hear()
        assert len([packet for packet in heard if packet.kind != FRAME]) == 1
        assert heard[-1].acknowledged == 50


def test_notes_of_comings_and_goings_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_NOTES", 5)
    note = Observe(1, 1, 0.1, note="somebody is away")
    town, mole = quiet_town(tmp_path, **{"PeerLost mole": [note], "letter 1": [Observe(2, 2, 0.2, loss=0.5)]})
    with closing(town):
        for _ in range(20):
            mole.part()
            town.clock.tick(2.0)
            town.settle()
            mole.connect()
            town.settle()
        mole.send(letter(1))
        town.settle()
        assert [line.get("note", "") for line in town.metrics()] == ["somebody is away"] * 5 + [""]
        town.stations["bank"].save()
        town.kill("bank")
        town.revive("bank")
        assert len(town.recorders["bank"].metrics) == 6
