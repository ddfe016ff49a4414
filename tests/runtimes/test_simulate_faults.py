"""Loss, crashes and returns: whatever the world does, each message is handled once and nothing is lost in the end."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import still, world

from colonnade.errors import RunError
from colonnade.party import Checkpoint, Effect, Finish, Send, SetTimer
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import read_latest
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.testing import LETTER_BYTES, Scripted, evaluation, finishes_after, letter, question, says, sends

INF = float("inf")


def crashing(*crashes: tuple[float, float], compute_seconds: float = 0.0) -> SimulatedParty:
    return SimulatedParty(compute_seconds=compute_seconds, crashes=crashes)


# --- loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.1, 0.5, 0.9])
def test_lost_frames_are_repeated_and_handled_once(loss: float) -> None:
    a, b = sends("b", *(letter(number) for number in range(50)), finish=False), finishes_after(50)
    a.script = lambda party, what, send=a.script: [*send(party, what), SetTimer("end", 1000.0), *_end(what)]
    simulation = world({"a": a, "b": b}, still(loss=loss))
    assert simulation.run()
    assert Counter(b.names("letter")) == {f"letter {number}": 1 for number in range(50)}
    assert simulation.retransmitted_bytes > 0
    assert simulation.retransmitted_bytes % LETTER_BYTES == 0


def _end(what: str) -> list[Effect]:
    return [Finish()] if what == "timer end" else []


def test_without_loss_and_crashes_nothing_is_repeated() -> None:
    a, b = sends("b", letter(1), letter(2)), finishes_after(2)
    simulation = world({"a": a, "b": b}, still(compute_seconds=10.0))
    simulation.run()
    assert simulation.retransmitted_bytes == 0


def test_a_frame_whose_receiver_is_busy_is_repeated_but_handled_once() -> None:
    # b works 1 s on its start and 1 s on the letter, which counts as delivered at 2. Until then a asks every 0.25 s:
    # at 0.25, 0.5, … 2.0, eight times (the acknowledgement sets out at 2.0 and is too late for the eighth). The
    # crash, long after, is there to have frames numbered.
    a = says({"Started": [Send("b", letter(1)), SetTimer("end", 50.0)], "timer end": [Finish()]})
    b = finishes_after(2)
    parties = {"b": crashing((60.0, 61.0), compute_seconds=1.0)}
    simulation = world({"a": a, "b": b}, still(retransmit_seconds=0.25, parties=parties))
    with pytest.raises(RunError, match="b did not finish"):
        simulation.run()
    assert b.names("letter") == ["letter 1"]
    assert simulation.retransmitted_bytes == 8 * LETTER_BYTES


def test_a_question_under_loss_is_answered_once() -> None:
    a = says({"Started": [Send("b", question(1)), SetTimer("end", 100.0)], "timer end": [Finish()]})
    b = says({"question 1": [Send("a", letter(1))], "Started": [SetTimer("end", 100.0)], "timer end": [Finish()]})
    for seed in range(20):
        a.seen, b.seen = [], []
        world({"a": a, "b": b}, still(loss=0.5), seed=seed).run()
        assert (b.names("question"), a.names("letter")) == (["question 1"], ["letter 1"])


# --- crash and return -------------------------------------------------------------------------------------------


def test_a_crash_loses_the_inbox_and_the_work_under_way_but_nothing_in_the_end() -> None:
    # b is done with its start at 2 and at letter 1 until 4; letters 2 and 3 wait. It is away from 3 to 10: then the
    # letters are sent again, and b takes 2 s for each of them.
    a, b = sends("b", letter(1), letter(2), letter(3)), finishes_after(3)
    simulation = world({"a": a, "b": b}, still(parties={"b": crashing((3.0, 10.0), compute_seconds=2.0)}))
    assert simulation.run()
    assert b.seen == [
        (2.0, "Started"),
        (10.0, "PeerReturned a"),
        (12.0, "letter 1"),
        (14.0, "letter 2"),
        (16.0, "letter 3"),
    ]
    assert simulation.party_times()["b"] == {"busy_seconds": 9.0, "idle_seconds": 0.0, "away_seconds": 7.0}


def test_a_start_that_a_crash_interrupts_is_given_after_the_return() -> None:
    b = says({"Started": [Finish()]})
    a = says({"Started": [Finish()]})
    settings = still(parties={"b": crashing((1.0, 5.0), compute_seconds=2.0)})
    c = says({"Started": [SetTimer("end", 50.0)], "timer end": [Finish()]})
    world({"a": a, "b": b, "c": c}, settings).run()
    assert b.times("Started") == [7.0]
    assert len(b.names("Started")) == 1


def test_what_was_handled_before_a_crash_is_not_handled_again() -> None:
    a, b = sends("b", letter(1)), finishes_after(2)
    b.script = lambda party, what: [SetTimer("end", 30.0)] if what == "letter 1" else _end(what)
    world({"a": a, "b": b}, still(latency_seconds=1.0, parties={"b": crashing((1.5, 3.0))})).run()
    # Handled at 1; its acknowledgement, due at 2, is the sender's and is not lost with b.
    assert b.times("letter") == [1.0]


def test_a_letter_under_way_to_a_party_that_is_away_comes_after_its_return() -> None:
    a, b = sends("b", letter(1)), finishes_after(1)
    world({"a": a, "b": b}, still(latency_seconds=1.0, parties={"b": crashing((0.5, 4.0))})).run()
    assert b.times("letter") == [5.0]  # sent again at 4


def test_a_letter_written_while_the_receiver_is_away_waits_for_it() -> None:
    a = says({"Started": [SetTimer("write", 2.0)], "timer write": [Send("b", letter(1)), Finish()]})
    b = finishes_after(1)
    simulation = world({"a": a, "b": b}, still(latency_seconds=0.5, parties={"b": crashing((1.0, 4.0))}))
    simulation.run()
    assert b.times("letter") == [4.5]
    assert simulation.retransmitted_bytes == 0  # it was never sent in vain


def test_a_sender_that_crashes_sends_what_was_not_acknowledged_after_its_return() -> None:
    for seed in range(10):
        a, b = sends("b", *(letter(number) for number in range(20)), finish=False), finishes_after(20)
        a.script = lambda party, what, send=a.script: [*send(party, what), *_end(what), SetTimer("end", 30.0)]
        settings = still(loss=0.5, latency_seconds=0.01, parties={"a": crashing((0.05, 3.0))})
        world({"a": a, "b": b}, settings, seed=seed).run()
        assert Counter(b.names("letter")) == {f"letter {number}": 1 for number in range(20)}


def test_peers_are_told_after_the_notice_time() -> None:
    a = says({"Started": [SetTimer("end", 10.0)], "timer end": [Finish()]})
    b = says({"Started": [SetTimer("end", 10.0)], "timer end": [Finish()]})
    world({"a": a, "b": b}, still(notice_seconds=0.5, parties={"b": crashing((1.0, 4.0))})).run()
    assert a.seen[1:3] == [(1.5, "PeerLost b"), (4.5, "PeerReturned b")]
    assert b.seen[1] == (4.0, "PeerReturned a")  # it connects again and finds a there


def test_who_returns_learns_who_is_away() -> None:
    script = {"Started": [SetTimer("end", 20.0)], "timer end": [Finish()]}
    parties = {name: says(script) for name in "abc"}
    faults = {"a": crashing((1.0, 4.0)), "b": crashing((2.0, 6.0))}
    world(parties, still(notice_seconds=0.5, parties=faults)).run()
    peers = {name: [pair for pair in party.seen if "Peer" in pair[1]] for name, party in parties.items()}
    assert peers["a"] == [(4.0, "PeerLost b"), (4.0, "PeerReturned c"), (6.5, "PeerReturned b")]
    assert peers["b"] == [(1.5, "PeerLost a"), (6.0, "PeerReturned a"), (6.0, "PeerReturned c")]
    assert peers["c"] == [(1.5, "PeerLost a"), (2.5, "PeerLost b"), (4.5, "PeerReturned a"), (6.5, "PeerReturned b")]


def test_letters_between_two_parties_that_were_away_at_overlapping_times() -> None:
    a, b = sends("b", letter(1), letter(2), finish=False), finishes_after(2)
    a.script = lambda party, what, send=a.script: [
        *send(party, what),
        *([SetTimer("end", 20.0)] if "S" in what else _end(what)),
    ]
    c = says({"Started": [SetTimer("end", 50.0)], "timer end": [Finish()]})
    faults = {"a": crashing((1.0, 8.0)), "b": crashing((0.5, 5.0))}
    world({"a": a, "b": b, "c": c}, still(latency_seconds=1.0, parties=faults)).run()
    # Lost with b at 0.5; b is back at 5 while a is away; a sends again at 8.
    assert b.times("letter") == [9.0, 9.0]


def test_a_world_in_which_everybody_is_away_waits_for_a_return() -> None:
    a, b = sends("b", letter(1), finish=False), finishes_after(1)
    a.script = lambda party, what: [Send("b", letter(1)), SetTimer("end", 9.0)] if what == "Started" else _end(what)
    faults = {"a": crashing((1.0, 4.0)), "b": crashing((0.5, 3.0))}
    assert world({"a": a, "b": b}, still(latency_seconds=2.0, parties=faults)).run()
    assert b.times("letter") == [6.0]
    assert a.times("timer end") == [9.0]


def test_evaluation_of_a_party_that_is_away_is_made_on_its_return() -> None:
    a = says({"Started": [SetTimer("ask", 2.0)], "timer ask": [Send("b", evaluation(1))], "letter 1": [Finish()]})
    b = says({"evaluation 1": [Send("a", letter(1)), Finish()]})
    world({"a": a, "b": b}, still(parties={"b": crashing((1.0, 4.0))})).run()
    assert b.names("evaluation") == ["evaluation 1"]
    assert b.times("evaluation") == [4.0]


# --- timers of a party that is away -----------------------------------------------------------------------------


def test_a_timer_that_was_due_during_an_absence_fires_on_return_and_once() -> None:
    a = says({"Started": [SetTimer("due", 2.0), SetTimer("later", 6.0)], "timer later": [Finish()]})
    b = says({"Started": [SetTimer("end", 20.0)], "timer end": [Finish()]})
    world({"a": a, "b": b}, still(parties={"a": crashing((1.0, 4.0))})).run()
    assert [pair for pair in a.seen if "timer" in pair[1]] == [(4.0, "timer due"), (6.0, "timer later")]


def test_a_timer_that_waited_in_the_inbox_survives_the_crash() -> None:
    a = says({"Started": [SetTimer("one", 1.0), SetTimer("two", 1.0)]})
    a.script = lambda party, what, first=a.script: [Finish()] if len(party.names("timer")) == 1 else first(party, what)
    b = says({"Started": [SetTimer("end", 50.0)], "timer end": [Finish()]})
    # a's start is done at 2; timer one is under way from 3 to 5, two waits behind it; the crash at 4 undoes that.
    world({"a": a, "b": b}, still(parties={"a": crashing((4.0, 10.0), compute_seconds=2.0)})).run()
    assert sorted(a.names("timer")) == ["timer one", "timer two"]
    assert a.times("timer") == [12.0, 14.0]


# --- away for good ----------------------------------------------------------------------------------------------


def test_the_others_may_finish_without_a_party_that_never_returns() -> None:
    a, b = says({"Started": [SetTimer("end", 5.0)], "timer end": [Finish()]}), says({})
    simulation = world({"a": a, "b": b}, still(parties={"b": crashing((1.0, INF))}))
    assert simulation.run()
    assert simulation.party_times()["b"]["away_seconds"] == 4.0


def test_a_deadlock_by_a_party_that_never_returns_names_it() -> None:
    a, b = sends("b", letter(1), finish=False), finishes_after(1)
    settings = still(latency_seconds=2.0, parties={"b": crashing((1.0, INF))})
    with pytest.raises(RunError, match=r"but a did not finish\. They wait for b, which is away for good\."):
        world({"a": a, "b": b}, settings).run()


def test_a_run_that_nobody_finished_is_not_finished() -> None:
    faults = {"a": crashing((1.0, INF)), "b": crashing((2.0, INF))}
    with pytest.raises(RunError, match=r"a, b"):
        world({"a": says({}), "b": says({})}, still(parties=faults)).run()


def test_a_finished_party_does_not_crash() -> None:
    a = says({"Started": [Finish()]})
    b = says({"Started": [SetTimer("end", 5.0)], "timer end": [Finish()]})
    simulation = world({"a": a, "b": b}, still(parties={"a": crashing((1.0, 2.0))}))
    simulation.run()
    assert b.names("Peer") == []
    assert simulation.party_times()["a"]["away_seconds"] == 0.0


# --- any schedule -----------------------------------------------------------------------------------------------

DELAY = st.sampled_from([0.0, 0.25, {"distribution": "exponential", "mean": 0.3}])


@st.composite
def worlds(draw: st.DrawFn) -> Simulate:
    """Any weather: delays, loss, reordering, up to two crashes of each party."""

    def crashes() -> tuple[tuple[float, float], ...]:
        # Whole quarters, sorted, all different: away, back, away, back.
        moments = sorted(draw(st.sets(st.integers(0, 40), max_size=4)))
        return tuple((moments[at] / 4, moments[at + 1] / 4) for at in range(0, len(moments) - 1, 2))

    return Simulate(
        compute_seconds=draw(DELAY),
        label_compute_seconds=draw(DELAY),
        latency_seconds=draw(DELAY),
        loss=draw(st.sampled_from([0.0, 0.3, 0.7])),
        reorder=draw(st.booleans()),
        bandwidth_bytes_per_second=draw(st.sampled_from([0.0, 500.0])),
        retransmit_seconds=draw(st.sampled_from([0.1, 2.0])),
        parties={name: SimulatedParty(crashes=crashes()) for name in "abc"},
    )


def ring(laps: int) -> dict[str, Scripted]:
    """a → b → c → a: each party sends letter n on as n + 1, a starts two of them; all end at a late timer."""

    def script(following: str) -> Any:
        def reply(party: Scripted, what: str) -> list[Effect]:
            if what == "Started":
                first: list[Effect] = (
                    [Send(following, letter(0)), Send(following, letter(64))] if following == "b" else []
                )
                return [*first, SetTimer("end", 500.0)]
            if what.startswith("letter"):
                number = int(what.split()[1])
                onward: list[Effect] = [Send(following, letter(number + 1))] if number % 64 < 3 * laps - 1 else []
                return [Checkpoint(), *onward]
            return _end(what)

        return reply

    return {name: Scripted(script(following)) for name, following in zip("abc", "bca", strict=True)}


@settings(max_examples=40, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_in_any_weather_each_letter_is_handled_once_by_whom_it_was_for(weather: Simulate, seed: int) -> None:
    parties = ring(laps=3)
    assert world(parties, weather, seed=seed).run()
    expected = sorted(f"letter {number}" for start in (0, 64) for number in range(start, start + 9))
    assert sorted(name for party in parties.values() for name in party.names("letter")) == expected
    for party in parties.values():
        times = [now for now, _ in party.seen]
        assert times == sorted(times)
        assert party.names("Started") == ["Started"]
        assert party.names("timer") == ["timer end"]


@settings(max_examples=15, deadline=None)
@given(weather=worlds(), seed=st.integers(0, 2**32), stops=st.lists(st.integers(1, 60), min_size=1, max_size=3))
def test_stopped_and_resumed_anywhere_it_is_the_same_run(
    weather: Simulate, seed: int, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def begin(directory: Path, parties: dict[str, Scripted], **more: Any) -> Simulation:
        recorder = Recorder("", directory)
        return Simulation(parties, weather, seed, recorder, Ledger(), directory=directory, trace=True, **more)

    whole, parts = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("parts")
    undisturbed = ring(laps=2)
    simulation = begin(whole, undisturbed)
    simulation.run()
    simulation.close()

    saved = None
    for stop in [*stops, None]:
        looks = iter(range(10**6))
        resumed = ring(laps=2)
        again = begin(
            parts,
            resumed,
            resume=saved,
            stop_requested=lambda stop=stop, looks=looks: stop is not None and next(looks) >= stop,
        )
        finished = again.run()
        again.close()
        if finished:
            break
        _, saved = read_latest(parts / "checkpoints", ["a", "b", "c", "simulate"])
    assert {name: party.seen for name, party in resumed.items()} == {
        name: party.seen for name, party in undisturbed.items()
    }
    assert (again.now, again.retransmitted_bytes) == (simulation.now, simulation.retransmitted_bytes)
    assert again.party_times() == simulation.party_times()
    for name in "abc":
        assert (parts / "trace" / f"{name}.trace").read_bytes() == (whole / "trace" / f"{name}.trace").read_bytes()


def test_a_finished_run_that_is_resumed_stays_as_it_was(tmp_path: Path) -> None:
    def begin(**more: Any) -> Simulation:
        a = says({"Started": [SetTimer("later", 50.0), SetTimer("end", 2.0)], "timer end": [Finish()]})
        return world({"a": a}, still(), directory=tmp_path, **more)

    first = begin()
    assert first.run()
    first.save()
    _, saved = read_latest(tmp_path / "checkpoints", ["a", "simulate"])
    again = begin(resume=saved)
    assert again.run()
    assert again.now == first.now == 2.0


def test_a_timer_missed_by_a_party_that_is_away_survives_a_stop(tmp_path: Path) -> None:
    def begin(**more: Any) -> tuple[Scripted, Simulation]:
        a = says({"Started": [SetTimer("due", 2.0)], "timer due": [Finish()]})
        b = says({"Started": [SetTimer("tick", 3.0), SetTimer("end", 9.0)], "timer end": [Finish()]})
        faults = {"a": crashing((1.0, 6.0))}
        return a, world({"a": a, "b": b}, still(parties=faults), directory=tmp_path, **more)

    _, first = begin(stop_requested=lambda: first.now == 3.0)  # a is away, and its timer has run out
    assert not first.run()
    _, saved = read_latest(tmp_path / "checkpoints", ["a", "b", "simulate"])
    a, again = begin(resume=saved)
    assert again.run()
    assert a.times("timer due") == [6.0]
