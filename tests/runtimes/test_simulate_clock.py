"""Virtual time by hand: what takes how long, what waits, and what does not."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import still, world

from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.messages import Stop
from colonnade.party import Checkpoint, Effect, Finish, Send, SetTimer
from colonnade.runtimes.simulate import simulation as simulation_module
from colonnade.runtimes.simulate.settings import Simulate, SimulatedLink, SimulatedParty
from colonnade.testing import LETTER_BYTES, Scripted, evaluation, finishes_after, letter, question, says, sends
from colonnade.trace import read_trace
from colonnade.wire.codec import encode

# --- compute, latency, bandwidth --------------------------------------------------------------------------------


def test_work_travel_work() -> None:
    # a works 2 s on its start; the letter travels 1 s; b, idle since 2, works 2 s on it: 2 + 1 + 2 = 5.
    a, b = sends("b", letter(1)), finishes_after(1)
    simulation = world({"a": a, "b": b}, still(compute_seconds=2.0, latency_seconds=1.0))
    assert simulation.run()
    assert a.seen == [(2.0, "Started")]
    assert b.seen == [(2.0, "Started"), (5.0, "letter 1")]
    assert simulation.now == 5.0
    assert simulation.party_times() == {
        "a": {"busy_seconds": 2.0, "idle_seconds": 3.0, "away_seconds": 0.0},
        "b": {"busy_seconds": 4.0, "idle_seconds": 1.0, "away_seconds": 0.0},
    }


def test_the_label_party_has_a_compute_time_of_its_own() -> None:
    a, label = finishes_after(1), finishes_after(1)
    a.script, label.script = (lambda *_: [Finish()]), (lambda *_: [Finish()])
    world({"label": label, "a": a}, Simulate(compute_seconds=3.0, label_compute_seconds=0.5), label_party="label").run()
    assert (label.seen, a.seen) == ([(0.5, "Started")], [(3.0, "Started")])


def test_one_party_may_differ() -> None:
    settings = still(compute_seconds=1.0, parties={"b": SimulatedParty(compute_seconds=0.25)})
    a, b = says({"Started": [Finish()]}), says({"Started": [Finish()]})
    world({"a": a, "b": b}, settings).run()
    assert (a.seen[0][0], b.seen[0][0]) == (1.0, 0.25)


def test_bandwidth_lets_one_frame_through_after_the_other() -> None:
    assert len(encode(letter(1))) == LETTER_BYTES
    assert len(encode(letter(1, eights=1))) == 2 * LETTER_BYTES
    # At 32 bytes a second: the first letter leaves at 1, the double one at 3, the third at 4; each travels 0.25 more.
    a = sends("b", letter(1), letter(2, eights=1), letter(3))
    b = finishes_after(3)
    world({"a": a, "b": b}, still(bandwidth_bytes_per_second=LETTER_BYTES, latency_seconds=0.25)).run()
    assert b.times("letter") == [1.25, 3.25, 4.25]


def test_each_direction_has_a_link_of_its_own() -> None:
    links = {
        "a -> b": SimulatedLink(latency_seconds=1.0),
        "b->a": SimulatedLink(bandwidth_bytes_per_second=LETTER_BYTES),
    }
    a = says({"Started": [Send("b", letter(1))], "letter 2": [Finish()]})
    b = says({"letter 1": [Send("a", letter(2)), Finish()]})
    world({"a": a, "b": b}, still(latency_seconds=0.5, links=links)).run()
    assert b.times("letter") == [1.0]  # no bandwidth given: none is lacking
    assert a.times("letter") == [2.5]  # 1.0, 1.0 of transfer, 0.5 as for everybody


def test_a_slow_link_does_not_hold_up_another() -> None:
    a = says({"Started": [Send("b", letter(1)), Send("c", letter(2)), Finish()]})
    b, c = finishes_after(1), finishes_after(1)
    links = {"a -> b": SimulatedLink(bandwidth_bytes_per_second=1.0)}
    world({"a": a, "b": b, "c": c}, still(links=links)).run()
    assert (b.times("letter"), c.times("letter")) == ([LETTER_BYTES], [0.0])


def test_slowdown_and_straggling_multiply() -> None:
    parties = {
        "b": SimulatedParty(slowdown=3.0),
        "c": SimulatedParty(slowdown=3.0, straggle_probability=1.0, straggle_factor=10.0),
    }
    players = {name: says({"Started": [Finish()]}) for name in "abc"}
    world(players, still(compute_seconds=0.5, parties=parties)).run()
    assert [players[name].seen[0][0] for name in "abc"] == [0.5, 1.5, 15.0]


def test_a_frame_is_checked_before_the_party_sees_it() -> None:
    a, b = sends("b", letter(1)), finishes_after(2)
    simulation = world({"a": a, "b": b}, still())
    place = simulation._places[1]
    place.receive("a", encode(letter(3)))
    assert b.seen == [(0.0, "letter 3")]
    with pytest.raises(ProtocolError, match="b refused a message of a: "):
        place.receive("a", encode(letter(3))[:-1])
    assert len(b.seen) == 1


def test_a_straggler_straggles_now_and_then() -> None:
    a = sends("b", *(letter(number) for number in range(100)))
    b = finishes_after(100)
    straggler = SimulatedParty(compute_seconds=1.0, straggle_probability=0.3, straggle_factor=8.0)
    world({"a": a, "b": b}, still(parties={"b": straggler})).run()
    times = [b.times("Started")[0], *b.times("letter")]
    took = [later - sooner for sooner, later in pairwise(times)]
    assert set(took) == {1.0, 8.0}
    # Binomial(100, 0.3) has σ = 4.6: five σ around 30.
    assert 7 <= took.count(8.0) <= 53


def test_measured_work_is_charged_to_the_next_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(simulation_module, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    # By this clock, which moves one second a look, every event takes one second.
    a = sends("b", letter(1), letter(2), letter(3))
    b = finishes_after(3)
    slow = SimulatedParty(slowdown=2.0)
    world({"a": a, "b": b}, still(compute_seconds="measured", parties={"b": slow})).run()
    # Nothing is known of the first letter's cost; the others cost 1 s × 2.
    assert b.times("letter") == [0.0, 2.0, 4.0]


def test_measured_work_by_the_real_clock_runs() -> None:
    a, b = sends("b", letter(1), letter(2)), finishes_after(2)
    simulation = world({"a": a, "b": b}, still(compute_seconds="measured"))
    assert simulation.run()
    assert simulation.now >= 0


# --- order ------------------------------------------------------------------------------------------------------

JITTER = {"distribution": "uniform", "mean": 1.0, "spread": 1.0}


def test_links_keep_the_order_unless_told_otherwise() -> None:
    numbers = [f"letter {number}" for number in range(20)]

    def received(reorder: bool) -> Scripted:
        a, b = sends("b", *(letter(number) for number in range(20))), finishes_after(20)
        world({"a": a, "b": b}, still(latency_seconds=JITTER, reorder=reorder), seed=1).run()
        return b

    kept, mixed = received(reorder=False), received(reorder=True)
    assert kept.names("letter") == numbers
    assert kept.times("letter") == sorted(kept.times("letter"))
    assert mixed.names("letter") != numbers
    assert sorted(mixed.names("letter")) == sorted(numbers)
    # Keeping the order only ever delays: a frame waits for the latest before it.
    assert kept.times("letter")[-1] == max(mixed.times("letter"))


def test_what_happens_at_the_same_time_happens_in_the_order_in_which_it_came_about() -> None:
    a, b = sends("c", letter(1), letter(2)), sends("c", letter(3))
    c = finishes_after(3)
    world({"b": b, "a": a, "c": c}, still(latency_seconds=1.0)).run()
    assert c.names("letter") == ["letter 3", "letter 1", "letter 2"]  # b was named first, so it was started first


def test_a_busy_party_queues_what_arrives() -> None:
    # b works 2 s on each: on its start until 2, then on the letters that came at 0.5, in order.
    a, b = sends("b", letter(1), letter(2)), finishes_after(2)
    settings = still(latency_seconds=0.5, parties={"b": SimulatedParty(compute_seconds=2.0)})
    world({"a": a, "b": b}, settings).run()
    assert b.seen == [(2.0, "Started"), (4.0, "letter 1"), (6.0, "letter 2")]


def test_an_idle_party_starts_on_arrival() -> None:
    a, b = sends("b", letter(1)), finishes_after(1)
    settings = still(latency_seconds=10.0, parties={"b": SimulatedParty(compute_seconds=2.0)})
    simulation = world({"a": a, "b": b}, settings)
    simulation.run()
    assert b.times("letter") == [12.0]
    assert simulation.party_times()["b"]["idle_seconds"] == 8.0


# --- marks of messages ------------------------------------------------------------------------------------------


def test_a_question_is_answered_on_arrival_from_the_state_before_the_work_under_way() -> None:
    counted: list[int] = []

    def b_script(party: Scripted, what: str) -> list[Effect]:
        if what.startswith("question"):
            counted.append(len(party.names("letter")))
            return [Send("a", letter(9))]
        return [Finish()] if what == "letter 2" else []

    a = says({"Started": [Send("b", letter(1)), Send("b", letter(2)), SetTimer("ask", 5.0)], "letter 9": [Finish()]})
    ask = a.script
    a.script = lambda party, what: [Send("b", question(1))] if what == "timer ask" else ask(party, what)
    b = Scripted(b_script)
    # b is at its start until 4, at letter 1 until 8, at letter 2 until 12; the question comes at 5 + 1.
    settings = still(latency_seconds=1.0, parties={"b": SimulatedParty(compute_seconds=4.0)})
    world({"a": a, "b": b}, settings).run()
    assert b.seen == [(4.0, "Started"), (6.0, "question 1"), (8.0, "letter 1"), (12.0, "letter 2")]
    assert counted == [0]  # letter 1 was being worked on, and counts only when the work is done
    assert a.times("letter 9") == [7.0]  # the answer left at once


def test_evaluation_takes_no_virtual_time_even_while_its_party_is_busy() -> None:
    a = says(
        {
            "Started": [Send("b", letter(1)), SetTimer("score", 3.0)],
            "timer score": [Send("b", evaluation(1))],
            "evaluation 2": [Finish()],
        }
    )
    b = says({"evaluation 1": [Send("a", evaluation(2))], "letter 1": [Finish()]})
    settings = still(
        latency_seconds=1.0, bandwidth_bytes_per_second=1.0, parties={"b": SimulatedParty(compute_seconds=50.0)}
    )
    simulation = world({"a": a, "b": b}, settings)
    simulation.run()
    assert b.times("evaluation") == a.times("evaluation") == [3.0]
    # The letter leaves after 32 s of transfer and comes at 33; b is then busy until 50, and at the letter until 100.
    assert b.times("letter") == [100.0]
    assert simulation.party_times()["b"]["busy_seconds"] == 100.0


def test_a_free_message_costs_nothing_but_waits_its_turn() -> None:
    a = sends("b", letter(1), Stop("enough"))
    b = says({"Stop": [Finish()]})
    world({"a": a, "b": b}, still(parties={"b": SimulatedParty(compute_seconds=2.0)})).run()
    assert b.seen == [(2.0, "Started"), (4.0, "letter 1"), (4.0, "Stop")]


# --- timers -----------------------------------------------------------------------------------------------------


def test_timers_fire_when_due_and_wait_for_a_busy_party() -> None:
    a = says({"Started": [SetTimer("late", 5.0), SetTimer("soon", 1.0)], "timer late": [Finish()]})
    world({"a": a}, still(compute_seconds=0.5)).run()
    assert a.seen == [(0.5, "Started"), (2.0, "timer soon"), (6.0, "timer late")]
    b = says({"Started": [SetTimer("one", 1.0), SetTimer("two", 1.0)], "timer two": [Finish()]})
    world({"b": b}, still(compute_seconds=2.0)).run()
    assert b.seen == [(2.0, "Started"), (5.0, "timer one"), (7.0, "timer two")]


def test_a_timer_set_again_replaces_the_first() -> None:
    a = says(
        {
            "Started": [SetTimer("wake", 1.0), SetTimer("other", 0.5), SetTimer("end", 10.0)],
            "timer other": [SetTimer("wake", 3.0)],
            "timer end": [Finish()],
        }
    )
    world({"a": a}, still()).run()
    assert a.seen == [(0.0, "Started"), (0.5, "timer other"), (3.5, "timer wake"), (10.0, "timer end")]


def test_a_timer_may_be_set_again_sooner_and_after_it_fired() -> None:
    a = says({"Started": [SetTimer("wake", 5.0), SetTimer("wake", 1.0)], "timer wake": [SetTimer("wake", 1.0)]})
    wake = a.script
    a.script = lambda party, what: [Finish()] if len(party.seen) == 3 else wake(party, what)
    world({"a": a}, still()).run()
    assert a.times("timer") == [1.0, 2.0, 3.0]


# --- the end ----------------------------------------------------------------------------------------------------


def test_a_finished_party_is_given_nothing_more() -> None:
    a = sends("b", letter(1), letter(2), letter(3))
    b = says({"letter 1": [SetTimer("later", 1.0), Finish()]})
    c = says({"Started": [SetTimer("end", 50.0)], "timer end": [Finish()]})
    assert world({"a": a, "b": b, "c": c}, still()).run()
    assert b.seen == [(0.0, "Started"), (0.0, "letter 1")]


@pytest.mark.parametrize("last", [question(1), evaluation(1)], ids=["on arrival", "off the clock"])
def test_a_party_that_finishes_while_it_works_does_not_get_the_work_under_way(last: Any) -> None:
    a = says({"Started": [Send("b", letter(1)), SetTimer("ask", 1.0)], "timer ask": [Send("b", last), Finish()]})
    b = says({"question 1": [Finish()], "evaluation 1": [Finish()]})
    c = says({"Started": [SetTimer("end", 50.0)], "timer end": [Finish()]})
    settings = still(parties={"b": SimulatedParty(compute_seconds=4.0)})
    assert world({"a": a, "b": b, "c": c}, settings).run()
    assert [now for now, _ in b.seen] == [1.0]  # neither its start, due at 4, nor the letter, due at 8


def test_a_deadlock_names_who_waits_and_since_when() -> None:
    a, b, c = says({"Started": [Finish()]}), says({}), says({})
    with pytest.raises(RunError, match=r"Nothing is left to do at 1\.5 virtual seconds, but b, c did not finish"):
        world({"a": a, "b": b, "c": c}, still(compute_seconds=1.5)).run()


def test_a_letter_to_nobody_names_the_sender() -> None:
    with pytest.raises(RunError, match=r"a sent BatchRequest to 'bank', who is not in the federation"):
        world({"a": sends("bank", letter(1))}, still()).run()


def test_a_run_that_is_asked_to_stop_says_that_it_did_not_finish() -> None:
    a = says({"Started": [SetTimer("on", 1.0)], "timer on": [SetTimer("on", 1.0)]})
    looks = iter(range(100))
    simulation = world({"a": a}, still(), stop_requested=lambda: next(looks) >= 8)
    assert simulation.run() is False
    assert a.names("timer")


def test_checkpoints_without_a_directory_cost_nothing() -> None:
    a = says({"Started": [Checkpoint(), Finish()]})
    assert world({"a": a}, still(), checkpoint_seconds=0.0).run()


# --- the same seed ----------------------------------------------------------------------------------------------


def noisy() -> Simulate:
    exponential = {"distribution": "exponential", "mean": 0.1}
    crashing = SimulatedParty(crashes=((1.0, 1.5), (2.0, 2.25)), straggle_probability=0.2)
    return Simulate(
        compute_seconds=exponential, latency_seconds=exponential, loss=0.2, reorder=True, parties={"b": crashing}
    )


def conversation(count: int) -> dict[str, Scripted]:
    """a and b throw a ball; who gets it for the last time is done, and so is who threw it."""

    def script(peer: str) -> Any:
        def reply(party: Scripted, what: str) -> list[Effect]:
            if what == "Started":
                return [Send(peer, letter(0))] if peer == "b" else []
            if not what.startswith("letter"):
                return []
            number = int(what.split()[1])
            forward: list[Effect] = [Send(peer, letter(number + 1))] if number + 1 < count else []
            return [*forward, Checkpoint(), *([Finish()] if number + 2 >= count else [])]

        return reply

    return {"a": Scripted(script("b")), "b": Scripted(script("a"))}


def test_the_same_seed_gives_the_same_trace_byte_for_byte(tmp_path: Any) -> None:
    def traces(name: str, seed: int) -> list[bytes]:
        (tmp_path / name).mkdir()
        simulation = world(conversation(30), noisy(), seed=seed, directory=tmp_path / name, trace=True)
        simulation.run()
        simulation.close()
        return [(tmp_path / name / "trace" / f"{party}.trace").read_bytes() for party in "ab"]

    assert traces("one", seed=5) == traces("two", seed=5)
    assert traces("three", seed=6) != traces("one again", seed=5)
    assert {record.type for record in read_trace(tmp_path / "one" / "trace" / "b.trace")} > {
        "Started",
        "Received",
        "Send",
    }


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 60), st.sampled_from(["reorder", "in order"]))
def test_time_never_goes_backwards_for_anybody(seed: int, count: int, order: str) -> None:
    parties = conversation(count)
    settings = Simulate(
        compute_seconds={"distribution": "lognormal", "mean": 0.1, "spread": 1.0},
        latency_seconds={"distribution": "poisson", "mean": 0.2, "spread": 0.1},
        reorder=order == "reorder",
    )
    world(parties, settings, seed=seed).run()
    for party in parties.values():
        assert [now for now, _ in party.seen] == sorted(now for now, _ in party.seen)
    letters = [*parties["a"].names("letter"), *parties["b"].names("letter")]
    assert sorted(letters) == sorted(f"letter {number}" for number in range(count))


# --- settings ---------------------------------------------------------------------------------------------------


def test_an_unknown_party_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"simulate\.parties 'bnak'\. Did you mean 'bank'\? Known: bank, shop"):
        world({"bank": says({}), "shop": says({})}, Simulate(parties={"bnak": SimulatedParty()}))


@pytest.mark.parametrize("link", ["bank", "bank -> nobody", "nobody -> bank", "bank <- shop", ""])
def test_an_unknown_link_is_refused(link: str) -> None:
    with pytest.raises(SettingsError, match=r'simulate\.links has ".*"; write it as "from -> to"'):
        world({"bank": says({}), "shop": says({})}, Simulate(links={link: SimulatedLink()}))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"loss": value} for value in (-0.1, 1.0, NAN)),
        *({"retransmit_seconds": value} for value in (0.0, -1.0, INF, NAN)),
        *({"notice_seconds": value} for value in (-1.0, INF, NAN)),
        *({"bandwidth_bytes_per_second": value} for value in (-1.0, INF, NAN)),
    ],
    ids=str,
)
def test_wrong_settings_of_the_world_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=rf"simulate\.{next(iter(wrong))}"):
        Simulate(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"slowdown": value} for value in (0.0, -1.0, INF, NAN)),
        *({"straggle_probability": value} for value in (-0.1, 1.1, NAN)),
        *({"straggle_factor": value} for value in (-1.0, INF, NAN)),
        *({"crashes": value} for value in (((2.0, 1.0),), ((1.0, 1.0),), ((-1.0, 1.0),), ((0.0, 2.0), (1.0, 3.0)))),
        {"crashes": ((1.0, INF), (2.0, 3.0))},
        {"crashes": ((NAN, 1.0),)},
    ],
    ids=str,
)
def test_wrong_settings_of_a_party_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=rf"simulate\.parties\.bank\.{next(iter(wrong))}"):
        Simulate(parties={"bank": SimulatedParty(**wrong)})


@pytest.mark.parametrize("bandwidth", [-1.0, INF, NAN])
def test_wrong_settings_of_a_link_are_refused_by_name(bandwidth: float) -> None:
    with pytest.raises(SettingsError, match=r"simulate\.links.*bank -> shop.*bandwidth_bytes_per_second"):
        Simulate(links={"bank -> shop": SimulatedLink(bandwidth_bytes_per_second=bandwidth)})


@pytest.mark.parametrize("wrong", ["compute_seconds", "label_compute_seconds", "latency_seconds"])
def test_a_wrong_delay_is_refused_before_anything_runs(wrong: str) -> None:
    with pytest.raises(SettingsError, match=wrong.removeprefix("label_")):
        world({"bank": says({}), "label": says({})}, Simulate(**{wrong: "fast"}), label_party="label")
