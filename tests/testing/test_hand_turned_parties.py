"""Parties turned by hand: events in, effects out, and nothing moves by itself."""

import pytest

from colonnade import Vafl
from colonnade.messages import EmbeddingUpload, GradientReply
from colonnade.party import Finish, Send, SetTimer
from colonnade.testing import HandTurnedParties, TinyFederation, letter, says, sends, tiny_data


def test_one_exchange_of_vafl_by_hand() -> None:
    pair = HandTurnedParties(TinyFederation(tiny_data(parties=1), Vafl()).parties())
    pair.start("label")
    (first,) = pair.start("party1")
    assert isinstance(first, Send) and isinstance(first.message, EmbeddingUpload)
    assert [type(message) for message in pair.waiting("party1", "label")] == [EmbeddingUpload]
    replies = pair.deliver("party1", "label")
    assert [type(effect.message) for effect in replies if isinstance(effect, Send)] == [GradientReply]
    assert pair.waiting("party1", "label") == []
    before = pair.parties["party1"].counts()["steps"]
    pair.deliver("label", "party1")
    assert pair.parties["party1"].counts()["steps"] == before + 1


def test_left_alone_they_finish() -> None:
    federation = TinyFederation(tiny_data(), Vafl())
    parties = HandTurnedParties(federation.parties())
    parties.start()
    assert parties.settle() > 3 * 6 * 2  # 3 parties, 6 exchanges, a message each way
    assert parties.finished == set(federation.names)


def test_timers_run_out_by_hand_and_once() -> None:
    pair = HandTurnedParties({"a": says({"Started": [SetTimer("wake", 2.0)], "timer wake": [Finish()]})})
    pair.start()
    assert pair.timers["a"] == {"wake": 2.0}
    assert pair.fire("a", "wake") == [Finish()]
    assert pair.finished == {"a"}
    with pytest.raises(AssertionError, match="no further event"):
        pair.start("a")
    with pytest.raises(AssertionError, match="no timer 'wake'"):
        pair.fire("a", "wake")


def test_a_timer_of_no_seconds_runs_out_by_itself() -> None:
    pair = HandTurnedParties({"a": says({"Started": [SetTimer("now", 0.0), SetTimer("later", 1.0)]})})
    pair.start()
    assert pair.settle() == 0
    assert pair.timers["a"] == {"later": 1.0}


def test_peers_come_and_go_when_they_are_said_to() -> None:
    pair = HandTurnedParties({"a": says({"PeerLost b": [Send("b", letter(1))]}), "b": says({})})
    pair.lose("a", "b")
    pair.bring_back("a", "b")
    assert [what for _, what in pair.parties["a"].seen] == ["PeerLost b", "PeerReturned b"]  # type: ignore[attr-defined]
    assert len(pair.waiting("a", "b")) == 1


def test_what_cannot_be_is_said_in_words() -> None:
    pair = HandTurnedParties({"a": sends("nobody", letter(1)), "b": says({})})
    with pytest.raises(AssertionError, match="to nobody, whom nobody knows"):
        pair.start("a")
    with pytest.raises(AssertionError, match="Nothing of a is on its way to b"):
        pair.deliver("a", "b")


def test_parties_that_never_stop_talking_are_stopped() -> None:
    pair = HandTurnedParties(
        {
            "a": says({"Started": [Send("b", letter(1))], "letter 2": [Send("b", letter(1))]}),
            "b": says({"letter 1": [Send("a", letter(2))]}),
        }
    )
    pair.start()
    with pytest.raises(AssertionError, match="still talk after 50"):
        pair.settle(most=50)
