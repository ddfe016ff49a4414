"""One party in real time, on a clock turned by hand: its start, its peers, its timers, its limits, its end, its lives.

The parties are small enough to follow: a bank (the label party) and shops that write letters and ask questions.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ProtocolError, RunError
from colonnade.party import Effect, Finish, Send, SetTimer
from colonnade.runtimes import keeper
from colonnade.runtimes import station as station_module
from colonnade.runtimes.checkpoint import numbers_of
from colonnade.runtimes.delivery import ForgottenError
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.pace import Pace
from colonnade.runtimes.peer import Link
from colonnade.testing import PATIENT, FakeCarrier, Scripted, finishes_after, letter, question, says, sends
from colonnade.wire.codec import Limits, encode
from colonnade.wire.packets import ACKNOWLEDGE, FRAME, RESUME, START, Packet, PacketReader, header


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


Build = Callable[[], Scripted]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Callable[..., FakeCarrier]]:
    """Makes a town of parties that are built anew for every life, and closes it."""
    towns: list[FakeCarrier] = []

    def make(parties: dict[str, Build], endurance: Endurance = PATIENT, **more: Any) -> FakeCarrier:
        towns.append(FakeCarrier(tmp_path, [*parties], lambda name: parties[name](), endurance=endurance, **more))
        return towns[-1]

    yield make
    for one in towns:
        one.close()


def party(town: FakeCarrier, name: str) -> Scripted:
    own = town.stations[name].party.party  # type: ignore[attr-defined]
    assert isinstance(own, Scripted)
    return own


def names(town: FakeCarrier, name: str) -> list[str]:
    return party(town, name).names()


def quiet() -> Scripted:
    return says({})


def packets(parts: Sequence[bytes | bytearray]) -> list[Packet]:
    return [*PacketReader().feed(b"".join(parts))]


def greeted(here: FakeCarrier) -> FakeCarrier:
    """Everybody is connected and has said what it holds; nobody has had a turn."""
    here.join_all()
    for name, peer in permutations(here.names, 2):
        here.write(name)
        here.carry(name, peer)
    return here


def step(here: FakeCarrier, name: str, *to: str) -> None:
    """A turn, whose bytes reach these peers alone so far."""
    here.turn(name)
    here.write(name)
    for peer in to:
        here.carry(name, peer)


# --- the start --------------------------------------------------------------------------------------------------


def test_the_start_waits_for_everybody_and_reaches_everybody(town: Any) -> None:
    here = town({"bank": quiet, "shop": quiet, "farm": quiet})
    here.join("bank", "shop")
    here.settle()
    here.clock.tick(1000.0)
    here.settle()
    assert [names(here, name) for name in here.names] == [[], [], []]
    here.part("bank", "shop")  # that it was there once is enough
    here.join("bank", "farm")
    here.settle()
    assert names(here, "bank")[0] == "Started"
    assert names(here, "farm") == ["Started"]
    assert names(here, "shop") == []
    here.join("bank", "shop")
    here.settle()
    assert names(here, "shop") == ["Started"]


def test_nobody_is_given_a_letter_before_it_is_started(town: Any) -> None:
    """The shop was told to start sooner than the farm, and writes to it."""
    parties = {"bank": quiet, "shop": lambda: sends("farm", letter(1), finish=False), "farm": quiet}
    here = town(parties, links=[("bank", "shop"), ("bank", "farm"), ("shop", "farm")])
    greeted(here)
    step(here, "bank", "shop")
    step(here, "shop", "farm")
    step(here, "farm")
    assert names(here, "shop") == ["Started"]
    assert here.stations["farm"].queue_depth() == 1
    assert names(here, "farm") == []
    assert here.stations["farm"].idle_until() > here.clock()
    here.settle()
    assert names(here, "farm") == ["Started", "letter 1"]


def test_who_is_left_out_is_not_waited_for_and_counts_as_lost_until_it_comes(town: Any) -> None:
    here = town({"bank": quiet, "shop": quiet, "farm": quiet}, without=["farm"])
    here.join("bank", "shop")
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost farm"]
    here.join("bank", "farm")
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost farm", "PeerReturned farm"]
    assert names(here, "farm") == ["Started"]


def test_who_has_no_peers_begins_at_once(town: Any) -> None:
    here = town({"bank": lambda: says({"Started": [Finish()]})}, links=[])
    assert here.stations["bank"].idle_until() <= here.clock()
    here.settle()
    assert here.stations["bank"].settled()


def test_who_waits_for_nobody_else_begins_at_once(town: Any) -> None:
    here = town({"bank": quiet, "shop": quiet}, without=["shop"])
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop"]


# --- peers that go and come -------------------------------------------------------------------------------------


def started(town: Any, endurance: Endurance = PATIENT, **parties: Build) -> FakeCarrier:
    here: FakeCarrier = town({"bank": quiet, "shop": quiet, **parties}, endurance)
    here.join_all()
    here.settle()
    return here


def test_a_short_absence_is_not_told_and_a_long_one_once(town: Any) -> None:
    here = started(town)
    bank = here.stations["bank"]
    here.part("bank", "shop")
    assert bank.absent() == ["shop"]
    assert bank.idle_until() == here.clock() + 1.0
    here.clock.tick(0.99)
    here.settle()
    here.join("bank", "shop")
    here.settle()
    here.clock.tick(10.0)
    here.settle()
    assert names(here, "bank") == ["Started"]
    here.part("bank", "shop")
    for _ in range(3):
        here.clock.tick(2.0)
        here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop"]
    for _ in range(2):
        here.join("bank", "shop")
        here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop", "PeerReturned shop"]
    assert bank.reconnects() == 2


def test_lost_and_returned_come_in_turn_across_deaths(town: Any) -> None:
    here = started(town)
    here.kill("shop")
    here.clock.tick(2.0)
    here.settle()
    for _ in range(2):  # the bank dies too, and remembers whom it missed
        here.kill("bank")
        here.revive("bank")
        here.clock.tick(60.0)
        here.settle()
        assert names(here, "bank") == ["Started", "PeerLost shop"]
        here.stations["bank"].save()
    here.revive("shop")
    here.join("bank", "shop")
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop", "PeerReturned shop"]
    assert names(here, "shop") == ["Started"]


def test_after_a_restart_peers_have_longer_to_come(town: Any) -> None:
    here = started(town)
    here.kill("bank")
    here.revive("bank")
    here.clock.tick(4.9)
    here.settle()
    assert names(here, "bank") == ["Started"]
    here.clock.tick(0.2)
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop"]


def test_who_has_finished_is_not_missed_by_a_feature_party(town: Any) -> None:
    parties = {"bank": quiet, "shop": lambda: says({"Started": [Finish()]}), "farm": quiet}
    here = town(parties, links=[("bank", "shop"), ("bank", "farm"), ("shop", "farm")])
    here.join_all()
    here.settle()
    here.kill("shop")
    here.clock.tick(1000.0)
    here.settle()
    assert names(here, "farm") == ["Started"]
    assert here.stations["farm"].absent() == []


def test_who_has_finished_before_the_label_party_is_gone_for_good(town: Any) -> None:
    here = started(town, shop=lambda: says({"Started": [Finish()]}), farm=quiet)
    assert names(here, "bank") == ["Started", "PeerLost shop"]
    assert here.stations["bank"].absent() == []
    for _ in range(2):
        here.part("bank", "shop")
        here.join("bank", "shop")
        here.settle()
        assert names(here, "bank") == ["Started", "PeerLost shop"]
        assert "said that its part was over" in here.refusals[-1][2]
        here.stations["bank"].save()
        here.kill("bank")
        here.revive("bank")
        here.join("bank", "farm")


def test_who_leaves_for_good_is_missed_at_once_and_waited_for_by_nobody(town: Any) -> None:
    here = started(town, bank=lambda: says({"Started": [Send("shop", letter(1))], "PeerLost shop": [Finish()]}))
    here.part("bank", "shop")
    here.stations["bank"].leave("shop")
    here.settle()
    assert names(here, "bank") == ["Started", "PeerLost shop"]
    assert here.stations["bank"].settled()


# --- what comes first -------------------------------------------------------------------------------------------


def test_questions_come_first_but_never_before_what_their_sender_wrote_earlier(town: Any) -> None:
    shop = lambda: sends("bank", letter(1), question(2), letter(3), finish=False)  # noqa: E731
    farm = lambda: sends("bank", question(4), letter(5), question(6), finish=False)  # noqa: E731
    here = town({"bank": quiet, "shop": shop, "farm": farm})
    here.join_all()
    here.settle()
    seen = names(here, "bank")
    assert seen[0] == "Started"
    assert seen.index("letter 1") < seen.index("question 2") < seen.index("letter 3")
    assert seen.index("question 4") < seen.index("letter 5") < seen.index("question 6")


def test_a_question_overtakes_the_letters_of_others(town: Any) -> None:
    shop = lambda: sends("bank", letter(1), letter(2), letter(3), finish=False)  # noqa: E731
    farm = lambda: sends("bank", question(4), finish=False)  # noqa: E731
    here = town({"bank": quiet, "shop": shop, "farm": farm})
    greeted(here)
    step(here, "bank", "shop", "farm")
    step(here, "shop", "bank")
    step(here, "farm", "bank")
    assert here.stations["bank"].queue_depth() == 4
    here.turn("bank")
    assert names(here, "bank") == ["Started", "question 4", "letter 1"]


# --- timers -----------------------------------------------------------------------------------------------------


def test_a_timer_fires_once_when_it_is_due(town: Any) -> None:
    here = started(town, bank=lambda: says({"Started": [SetTimer("wake", 10.0)]}))
    assert here.stations["bank"].idle_until() == here.clock() + 10.0
    here.clock.tick(9.0)
    here.settle()
    assert names(here, "bank") == ["Started"]
    here.clock.tick(1.0)
    here.settle()
    here.clock.tick(100.0)
    here.settle()
    assert names(here, "bank") == ["Started", "timer wake"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_timer_survives_any_number_of_deaths(town: Any, checkpoint: bool) -> None:
    """It runs out in the party's own time: that which passes while the party is dead does not count."""
    ticks = {"Started": [SetTimer("wake", 10.0), SetTimer("tick", 1.0)], "timer tick": [SetTimer("tick", 1.0)]}
    here = started(town, bank=lambda: says(ticks))
    for second in range(1, 10):
        here.clock.tick(1.0)
        here.settle()
        if checkpoint and second % 3 == 0:
            here.stations["bank"].save()
        here.kill("bank")
        here.clock.tick(50.0)
        here.revive("bank")
        here.join_all()
        here.settle()
    assert names(here, "bank") == ["Started", *["timer tick"] * 9]
    here.clock.tick(1.0)
    here.settle()
    assert sorted(names(here, "bank")[10:]) == ["timer tick", "timer wake"]


def test_a_timer_that_another_sets_anew_waits_again(town: Any) -> None:
    both = {"Started": [SetTimer("later", 2.0), SetTimer("sooner", 1.0)], "timer sooner": [SetTimer("later", 5.0)]}
    here = started(town, bank=lambda: says(both))
    here.clock.tick(3.0)  # both are due
    here.settle()
    assert names(here, "bank") == ["Started", "timer sooner"]
    here.clock.tick(5.0)
    here.settle()
    assert names(here, "bank") == ["Started", "timer sooner", "timer later"]


def test_who_has_finished_is_given_nothing_more(town: Any) -> None:
    ends = {"Started": [SetTimer("one", 1.0), SetTimer("two", 1.0)], "timer one": [Finish()]}
    here = started(
        town,
        bank=lambda: says(ends),
        shop=lambda: says(
            {"Started": [SetTimer("write", 0.5)], "timer write": [Send("bank", letter(1)), Send("bank", question(2))]}
        ),
    )
    here.clock.tick(0.5)
    here.turn("shop")
    here.write("shop")
    here.clock.tick(0.5)
    here.turn("bank")
    here.part("bank", "shop")
    here.clock.tick(9.0)
    here.join("bank", "shop")
    here.settle()
    assert names(here, "bank") == ["Started", "timer one"]


# --- limits -----------------------------------------------------------------------------------------------------


def test_reading_pauses_and_goes_on(town: Any) -> None:
    few = replace(PATIENT, waiting_frames=2)
    here = town({"bank": quiet, "shop": lambda: sends("bank", *map(letter, range(9)), finish=False)}, few)
    greeted(here)
    step(here, "bank", "shop")
    step(here, "shop")
    bank = here.stations["bank"]
    while here.carry("shop", "bank", 8):
        pass
    assert not bank.wants_more("shop")
    assert bank.queue_depth() == 2
    here.turn("bank")
    assert bank.wants_more("shop")
    here.settle()
    assert names(here, "bank") == ["Started", *(f"letter {n}" for n in range(9))]


def test_bytes_that_wait_count_too(town: Any) -> None:
    small = replace(PATIENT, waiting_bytes=100)
    here = town({"bank": quiet, "shop": lambda: sends("bank", letter(1, eights=4), finish=False)}, small)
    greeted(here)
    step(here, "bank", "shop")
    step(here, "shop", "bank")
    assert not here.stations["bank"].wants_more("shop")
    here.turn("bank")
    assert here.stations["bank"].wants_more("shop")


@given(
    frames=st.integers(1, 3),
    there=st.integers(0, 20),
    back=st.integers(0, 20),
    size_bytes=st.sampled_from([30, 200, 1 << 20]),
)
@settings(max_examples=30)
def test_whatever_two_parties_throw_at_each_other_nobody_waits_for_ever(
    frames: int, there: int, back: int, size_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both write far more than may wait, before either reads: what was taken must still be heard of."""
    parties = {
        "bank": lambda: sends("shop", *map(letter, range(there)), finish=False),
        "shop": lambda: sends("bank", *map(letter, range(back)), finish=False),
    }
    here = FakeCarrier(
        tmp_path_factory.mktemp("town"),
        [*parties],
        lambda name: parties[name](),
        endurance=replace(PATIENT, waiting_frames=frames),
    )
    with closing(here):
        for _ in range(2000):
            here.join_all()
            for name, peer in (("bank", "shop"), ("shop", "bank")):
                here.turn(name)
                here.write(name)
                here.carry(name, peer, size_bytes)
            here.clock.tick(0.01)
            if len(names(here, "bank")) == 1 + back and len(names(here, "shop")) == 1 + there:
                break
        assert names(here, "bank") == ["Started", *(f"letter {n}" for n in range(back))]
        assert names(here, "shop") == ["Started", *(f"letter {n}" for n in range(there))]


def test_who_asks_on_without_taking_answers_is_refused(town: Any) -> None:
    answers = {"Started": [], **{f"question {n}": [Send("shop", letter(n))] for n in range(100)}}
    here = started(town, bank=lambda: says(answers), endurance=replace(PATIENT, waiting_frames=2))
    bank = here.stations["bank"]
    with pytest.raises(ProtocolError, match=r"\d+ frames wait to be acknowledged"):
        for number in range(100):
            frame = encode(question(number))
            bank.received("shop", header(FRAME, number + 1, 0, len(frame)) + frame)
            bank.turn()
    assert len(names(here, "bank")) < 20


# --- breaches ---------------------------------------------------------------------------------------------------


def strict() -> Scripted:
    """Takes no letter 2."""

    def script(_: Scripted, what: str) -> Sequence[Effect]:
        if what == "letter 2":
            raise ProtocolError("letter 2 is not taken here")
        return []

    return Scripted(script)


def test_a_message_that_breaks_the_protocol_changes_nothing_and_costs_its_sender_the_place(town: Any) -> None:
    shop = lambda: sends("bank", letter(1), letter(2), letter(3), finish=False)  # noqa: E731
    here = started(town, bank=strict, shop=shop, farm=quiet)
    assert here.refusals == [("bank", "shop", "letter 2 is not taken here")]
    assert names(here, "bank") == ["Started", "letter 1", "PeerLost shop"]
    here.kill("bank")
    here.revive("bank")
    assert not here.stations["bank"].breaches  # of a life before
    here.join_all()
    here.settle()
    assert names(here, "bank") == ["Started", "letter 1", "PeerLost shop"]
    assert here.refusals[1:] == [("bank", "shop", "shop was expelled from this run: letter 2 is not taken here")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header(FRAME, 1, 0, 3) + b"abc", "not a Colonnade frame"),
        (header(FRAME, 3, 0, 32) + encode(letter(1)), "frame 3 came after 0"),
        (header(FRAME, 1, 9, 32) + encode(letter(1)), "frame 9 was acknowledged; only 0 were sent"),
        (header(ACKNOWLEDGE, 0, 9), "frame 9 was acknowledged; only 0 were sent"),
        (header(RESUME, 0, 0), "resumed twice"),
        (header(START, 0, 0), "shop gave the word to start"),
        (header(99, 0, 0), "unknown kind 99"),
        (header(FRAME, 1, 0, 1001), "claims 1001 bytes; the limit here is 1000"),
    ],
)
def test_what_no_honest_peer_sends(town: Any, data: bytes, said: str) -> None:
    here = started(town, farm=quiet)
    bank = here.stations["bank"]
    bank._links._limits = Limits(frame_bytes=1000)
    here.part("bank", "shop")
    here.join("bank", "shop")
    here.settle()
    with pytest.raises(ProtocolError, match=said):
        bank.received("shop", data)
    bank.turn()
    assert [what for what in names(here, "bank") if what.startswith("letter")] == (
        ["letter 1"] if "frame 9" in said and data[:4] == b" \0\0\0" else []
    )


# --- who has forgotten ------------------------------------------------------------------------------------------


def forgetful(here: FakeCarrier, name: str) -> None:
    """Another life of a party, which has lost the last event of its journal."""
    here.kill(name)
    (journal,) = (here.directory / "journal").glob(f"{name}-*.journal")
    os.truncate(journal, journal.stat().st_size - 1)
    here.revive(name)


def test_both_sides_notice_who_has_forgotten_what_it_sent(town: Any) -> None:
    """Three letters were sent and taken, the last by a timer that the journal has lost."""
    again = {"Started": [Send("bank", letter(1)), Send("bank", letter(2)), SetTimer("late", 1.0)]}
    here = started(town, shop=lambda: says({**again, "timer late": [Send("bank", letter(3))]}))
    here.clock.tick(2.0)
    here.settle()
    assert names(here, "bank")[-3:] == ["letter 1", "letter 2", "letter 3"]
    forgetful(here, "shop")
    here.stations["bank"].connected("shop")
    here.stations["shop"].connected("bank")
    said = r"^What shop remembers is older than what bank has heard from it \(only 2 messages of 3\)"
    for one, other in (("bank", "shop"), ("shop", "bank")):
        with pytest.raises(ForgottenError, match=said):
            here.stations[one].received(other, b"".join(here.stations[other].outgoing(one)))


def test_who_has_forgotten_what_it_took_is_noticed(town: Any) -> None:
    here = started(town, bank=lambda: sends("shop", letter(1), letter(2), letter(3), finish=False))
    here.clock.tick(1.0)
    here.settle()
    assert not here.stations["bank"]._links.peers["shop"].delivery.kept
    forgetful(here, "shop")
    here.stations["bank"].connected("shop")
    here.stations["shop"].connected("bank")
    with pytest.raises(ForgottenError, match=r"^What shop remembers .* bank .*\(only 2 messages of 3\)"):
        here.stations["bank"].received("shop", b"".join(here.stations["shop"].outgoing("bank")))


def test_a_label_party_is_told_what_is_only_claimed_and_in_its_first_life_knows_better(town: Any) -> None:
    here = started(town)
    for life, kind, said in (
        (0, ProtocolError, "^The frame 9 was acknowledged; only 0 were sent"),
        (1, ForgottenError, "^By the word of shop: What bank remembers is older than what shop has heard from it"),
    ):
        assert here.stations["bank"].restarts == life
        here.stations["bank"].connected("shop")
        with pytest.raises(kind, match=said):
            here.stations["bank"].received("shop", header(RESUME, 0, 9))
        here.kill("bank")
        here.revive("bank")


def test_a_frame_before_the_resume_is_refused(town: Any) -> None:
    here = town({"bank": quiet, "shop": quiet})
    here.stations["bank"].connected("shop")
    with pytest.raises(ProtocolError, match="before the connection was resumed"):
        here.stations["bank"].received("shop", header(FRAME, 1, 0, 32) + encode(letter(1)))


def test_a_party_that_writes_to_a_stranger_is_stopped(town: Any) -> None:
    here = town({"bank": lambda: sends("nobody", letter(1)), "shop": quiet})
    here.join_all()
    with pytest.raises(RunError, match="bank sent BatchRequest to 'nobody'"):
        here.settle()


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
