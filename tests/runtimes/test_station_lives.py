"""One party in real time, on a clock turned by hand: what it acknowledges, its end, its deaths and its next lives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from towns import greeted, names, packets, quiet, started, step

from colonnade.errors import RunError
from colonnade.party import Finish, Send, SetTimer
from colonnade.runtimes import keeper
from colonnade.runtimes import station as station_module
from colonnade.runtimes.checkpoint import numbers_of
from colonnade.runtimes.pace import Pace
from colonnade.runtimes.peer import Link
from colonnade.testing import PATIENT, FakeCarrier, Scripted, finishes_after, letter, says, sends

# --- acknowledgements -------------------------------------------------------------------------------------------


def test_what_was_handled_is_acknowledged_after_a_while_or_after_many(town: Any) -> None:
    script = {"Started": [], "timer one": [Send("bank", letter(1))], "timer many": [Send("bank", letter(2))] * 20}
    script["Started"] = [SetTimer("one", 1.0), SetTimer("many", 10.0)]
    here = started(town, shop=lambda: says(script))
    shop, bank = here.stations["shop"], here.stations["bank"]
    here.clock.tick(1.0)
    here.settle()
    assert names(here, "bank")[-1] == "letter 1"
    assert len(shop._links.peers["bank"].delivery.kept) == 1
    due = bank.idle_until()
    assert due <= here.clock() + 0.05
    here.clock.tick(0.05)
    here.settle()
    assert len(shop._links.peers["bank"].delivery.kept) == 0
    here.clock.tick(9.0)
    here.settle()
    assert len(shop._links.peers["bank"].delivery.kept) == 4  # sixteen were told of at once
    here.clock.tick(0.1)
    here.settle()
    assert len(shop._links.peers["bank"].delivery.kept) == 0
    assert bank.frames_taken == 21


def test_only_what_is_in_the_journal_is_acknowledged(town: Any) -> None:
    """What waits is neither handled nor told of; if the bank dies, it comes again."""
    here = town({"bank": quiet, "shop": lambda: sends("bank", letter(1), letter(2), finish=False)})
    greeted(here)
    step(here, "bank", "shop")
    step(here, "shop", "bank")
    here.turn("bank")  # one of two
    assert here.stations["bank"].queue_depth() == 1
    here.clock.tick(1.0)
    here.turn("shop")
    told = packets(here.stations["bank"].outgoing("shop")) + packets(here.stations["bank"].outgoing("shop"))
    assert {packet.acknowledged for packet in told} <= {0, 1}
    here.kill("bank")
    here.revive("bank")
    here.join_all()
    here.settle()
    assert names(here, "bank") == ["Started", "letter 1", "letter 2"]


def test_what_comes_again_is_neither_handled_nor_refused(town: Any) -> None:
    """The connection breaks while one letter is handled and one waits: both come again, unasked."""
    here = greeted(town({"bank": quiet, "shop": lambda: sends("bank", letter(1), letter(2), finish=False)}))
    step(here, "bank", "shop")
    step(here, "shop", "bank")
    bank = here.stations["bank"]
    assert bank.queue_depth() == 2
    here.part("bank", "shop")
    here.join("bank", "shop")
    here.write("bank")
    here.carry("bank", "shop")
    here.write("shop")
    here.carry("shop", "bank")
    assert bank.queue_depth() == 2
    here.settle()
    assert names(here, "bank") == ["Started", "letter 1", "letter 2"]
    assert here.refusals == []


# --- the end ----------------------------------------------------------------------------------------------------


def test_a_party_has_settled_when_everybody_has_what_it_sent(town: Any) -> None:
    here = town({"bank": lambda: sends("shop", letter(1)), "shop": lambda: finishes_after(1)})
    greeted(here)
    step(here, "bank")
    assert here.stations["bank"].finished
    here.part("bank", "shop")  # the letter is lost on its way
    assert not here.stations["bank"].settled()
    here.join("bank", "shop")
    here.settle()
    assert all(station.settled() for station in here.stations.values())


def test_done_comes_after_the_last_frame_and_ends_all_waiting(town: Any) -> None:
    """The shop ends while letters to it are on their way: nobody waits for their acknowledgement."""
    here = started(
        town,
        bank=lambda: says(
            {"Started": [Send("shop", letter(n)) for n in range(5)] + [SetTimer("end", 1.0)], "timer end": [Finish()]}
        ),
        shop=lambda: finishes_after(2),
    )
    assert names(here, "shop") == ["Started", "letter 0", "letter 1"]
    here.clock.tick(1.0)
    here.settle()
    assert all(station.settled() for station in here.stations.values())
    assert not here.stations["bank"]._links.peers["shop"].delivery.kept  # nor is a next life to send them


def test_the_end_is_told_again_by_every_life(town: Any) -> None:
    here = started(town, bank=lambda: says({"Started": [Finish()]}))
    for save in (False, True):
        if save:
            here.stations["bank"].save()
        here.kill("bank")
        here.kill("shop")
        here.revive("shop")
        here.revive("bank")
        assert here.stations["bank"].finished
        assert here.stations["shop"].absent() == ["bank"]
        here.join_all()
        here.settle()
        here.part("bank", "shop")
        assert here.stations["shop"].absent() == []
    assert names(here, "bank") == ["Started"]


def test_a_finished_party_throws_away_what_still_comes_and_its_sender_may_end(town: Any) -> None:
    here = started(
        town,
        bank=lambda: says({"Started": [Finish()]}),
        shop=lambda: says(
            {
                "Started": [SetTimer("write", 1.0)],
                "timer write": [*(Send("bank", letter(n)) for n in range(9)), Finish()],
            }
        ),
        endurance=replace(PATIENT, waiting_frames=2),
    )
    here.clock.tick(1.0)
    here.settle()
    assert here.stations["bank"].queue_depth() == 0
    assert all(station.settled() for station in here.stations.values())


def stopped_shop(town: Any) -> FakeCarrier:
    """The bank has sent its last letter and finished; the shop took it, finished too, and died before a word."""
    here = town({"bank": lambda: sends("shop", letter(1)), "shop": lambda: finishes_after(1)})
    greeted(here)
    step(here, "bank", "shop")
    here.turn("shop")
    assert here.stations["shop"].finished
    here._journalled["shop"] = here._newest_journal("shop")  # on the disk, but nobody was told
    here.kill("shop")
    assert not here.stations["bank"].settled()
    here.revive("shop")
    assert here.stations["shop"].finished
    return here


def test_who_died_before_it_told_its_end_comes_again_to_tell_it(town: Any) -> None:
    here = stopped_shop(town)
    assert not here.stations["shop"].settled()
    here.join_all()
    here.settle()
    assert all(station.settled() for station in here.stations.values())
    here.stations["shop"].save()
    here.kill("shop")
    here.kill("bank")
    here.revive("shop")  # now everybody knows, so nobody need be there
    assert here.stations["shop"].settled()


def test_who_died_before_it_told_its_end_looks_for_the_others_only_so_long(town: Any) -> None:
    here = stopped_shop(town)
    here.clock.tick(station_module.FAREWELL_SECONDS - 0.1)
    assert not here.stations["shop"].settled()
    here.clock.tick(0.2)
    assert here.stations["shop"].settled()


def test_who_died_after_the_end_does_not_wait_for_who_ended_without_its_last_letters(town: Any) -> None:
    """The shop's letter came after the bank's end. The bank knows of the shop's end, and is gone for good."""
    here = town(
        {
            "bank": lambda: sends("shop", letter(1)),
            "shop": lambda: says({"letter 1": [Send("bank", letter(2)), Finish()]}),
        }
    )
    greeted(here)
    step(here, "bank", "shop")
    step(here, "shop", "bank")
    assert here.stations["bank"].settled()
    here.kill("shop")
    here.kill("bank")
    here.revive("shop")
    assert here.stations["shop"].links["bank"].kept_frames == 1
    assert not here.stations["shop"].settled()  # the bank may be there, and wait for its word
    here.clock.tick(station_module.FAREWELL_SECONDS)
    assert here.stations["shop"].settled()


# --- lives ------------------------------------------------------------------------------------------------------


def test_what_an_operator_sees_of_its_links(town: Any) -> None:
    here = started(town, shop=lambda: sends("bank", letter(1), finish=False))
    here.part("bank", "shop")  # before the letter of 32 bytes was acknowledged
    assert here.stations["shop"].links == {"bank": Link(connected=False, kept_frames=1, kept_bytes=32)}
    here.join("bank", "shop")
    assert here.stations["shop"].links == {"bank": Link(True, 1, 1, 32)}
    assert here.stations["shop"].checkpoints == 0
    here.stations["shop"].save()
    assert here.stations["shop"].checkpoints == 1


def test_lives_that_ended_before_a_first_checkpoint_count_as_well(town: Any) -> None:
    here = started(town)
    for restarts in (1, 2, 3):
        here.kill("bank")
        here.revive("bank")
        assert here.stations["bank"].restarts == restarts
    here.stations["bank"].save()
    here.kill("bank")
    here.revive("bank")
    assert here.stations["bank"].restarts == 4
    assert numbers_of(here.directory / "checkpoints", "bank") == [1]


def test_a_long_journal_is_cut_short_by_a_checkpoint(town: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "JOURNAL_BYTES", 200)
    here = started(town, shop=lambda: sends("bank", *map(letter, range(40)), finish=False))
    numbers = numbers_of(here.directory / "checkpoints", "bank")
    assert len(numbers) == 2
    assert numbers[-1] > 2
    assert numbers_of(here.directory / "checkpoints", "shop") == []
    here.kill("bank")
    here.revive("bank")
    assert names(here, "bank") == ["Started", *(f"letter {n}" for n in range(40))]
    assert here.stations["bank"].frames_taken == 40


def test_a_checkpoint_is_written_when_its_time_has_come(town: Any) -> None:
    script = {"Started": [SetTimer("tick", 4.0)], "timer tick": [SetTimer("tick", 4.0)]}
    here = started(town, bank=lambda: says(script), endurance=replace(PATIENT, checkpoint_seconds=10.0))
    for _ in range(6):
        here.clock.tick(4.0)
        here.settle()
    assert numbers_of(here.directory / "checkpoints", "bank") == [1, 2]  # after 12 and after 24 seconds


def letters_and_saves(town: Any) -> FakeCarrier:
    """A bank that has taken four letters, with a checkpoint after each."""
    script = {"Started": [SetTimer("1", 1.0)]}
    for n in range(1, 5):
        script[f"timer {n}"] = [Send("bank", letter(n)), SetTimer(f"{n + 1}", 1.0)]
    here = started(town, shop=lambda: says(script))
    for _ in range(4):
        here.clock.tick(1.0)
        here.settle()
        here.stations["bank"].save()
    here.kill("bank")
    return here


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_torn_checkpoint_sends_the_party_back_to_the_one_before(town: Any, suffix: str) -> None:
    here = letters_and_saves(town)
    here.tear_checkpoint("bank", suffix, 0.5)
    here.revive("bank")
    assert names(here, "bank") == ["Started", "letter 1", "letter 2", "letter 3", "letter 4"]
    assert here.stations["bank"].restarts == 1
    here.stations["bank"].save()
    here.kill("bank")
    here.revive("bank")
    assert names(here, "bank")[-1] == "letter 4"
    assert here.stations["bank"].restarts == 2


def test_without_a_whole_checkpoint_a_party_does_not_make_up_its_past(town: Any) -> None:
    here = letters_and_saves(town)
    for path in (here.directory / "checkpoints").glob("bank-*.json"):
        path.write_bytes(b"{")
    with pytest.raises(RunError, match=r"None of the checkpoints of bank .* Begin a new run, every party in a new"):
        here.revive("bank")


def test_the_first_two_checkpoints_torn_is_no_beginning_either(town: Any) -> None:
    """The journal before the first checkpoint is gone by then."""
    here = started(town, shop=lambda: sends("bank", letter(1), finish=False))
    for _ in range(2):
        here.stations["bank"].save()
    here.kill("bank")
    assert numbers_of(here.directory / "checkpoints", "bank") == [1, 2]
    for path in (here.directory / "checkpoints").glob("bank-*.json"):
        path.write_bytes(b"{")
    with pytest.raises(RunError, match="None of the checkpoints of bank"):
        here.revive("bank")


def test_the_first_checkpoint_torn_is_made_good_by_the_journal(town: Any) -> None:
    here = started(town, shop=lambda: sends("bank", letter(1), finish=False))
    here.stations["bank"].save()
    here.kill("bank")
    here.tear_checkpoint("bank", "safetensors", 0.5)
    here.revive("bank")
    assert names(here, "bank") == ["Started", "letter 1"]


def test_the_kept_frames_of_a_checkpoint_go_out_again(town: Any) -> None:
    wakes = {"Started": [SetTimer("write", 1.0)], "timer write": [Send("shop", letter(n)) for n in range(3)]}
    here = started(town, bank=lambda: says(wakes))
    here.part("bank", "shop")
    here.clock.tick(1.0)
    here.turn("bank")
    here.stations["bank"].save()
    here.kill("bank")
    here.revive("bank")
    here.join_all()
    here.settle()
    assert names(here, "shop") == ["Started", "letter 0", "letter 1", "letter 2"]


def test_a_slower_party_sleeps_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = FakeCarrier(tmp_path, ["bank"], lambda _: Scripted(lambda *_: here.clock.tick(2.0) or [Finish()]), links=[])
    slept: list[float] = []
    monkeypatch.setattr(station_module.time, "sleep", lambda seconds: (slept.append(seconds), here.clock.tick(seconds)))
    here.stations["bank"]._pace = Pace(slowdown=3.0)
    here.turn("bank")
    here.close()
    assert slept == [4.0]
    assert here.stations["bank"].busy_seconds == 6.0


def test_nothing_leaves_of_a_turn_that_could_not_be_written_down(town: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full between an event and what follows from it: the peer must not hear of it."""
    here = started(
        town, shop=lambda: says({"timer tick": [Send("bank", letter(1))], "Started": [SetTimer("tick", 1.0)]})
    )
    shop = here.stations["shop"]

    def full() -> None:
        raise OSError(28, "No space left on device")

    here.clock.tick(1.0)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(shop._keeper.journal, "flush", full)
        shop.turn()
    assert not shop.has_outgoing("bank") and shop.outgoing("bank") == []
    shop._keeper.journal.flush()
    assert shop.has_outgoing("bank") and len(shop.outgoing("bank")) == 2
