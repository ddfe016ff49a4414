"""A party of a linear federation that sends what no honest one would: a ProtocolError, nothing else, and no update."""

from typing import Any

import numpy as np
import pytest
import torch
from papers_form import papers_form

from colonnade import ProtocolError, Training
from colonnade.algorithms import ALGORITHMS
from colonnade.messages import (
    EvaluationProductRequest,
    GoBack,
    GoOn,
    Introduction,
    LastCall,
    LessonStep,
    MaskedSum,
    Message,
    ProductRequest,
    ProductSum,
    ResidualReply,
    ResidualRequest,
    SharedRequest,
    SharedResiduals,
    SharedStep,
    Stop,
    WeightsSettled,
    WentBack,
)
from colonnade.party import Party, Received, Send, Started, TimerFired
from colonnade.testing import HandTurnedParties, TinyFederation, assert_same_bits, tiny_data, weights

ROWS = np.array([1, 2], np.uint32)
EVERYBODY = ("label", "party1", "party2", "party3")


def introduced(name: str, who: str, **settings: Any) -> Party:
    """A party to which everybody has said who they are; it has asked for its first rows."""
    plan = TinyFederation(tiny_data(), papers_form(name, **settings), Training(epochs=2, batch_size=8))
    parties = plan.parties()
    greetings: dict[str, Message] = {}
    for other, party in parties.items():
        for effect in party.handle(Started(0.0)):
            if isinstance(effect, Send) and effect.to == who:
                greetings[other] = effect.message
    for other, message in greetings.items():
        parties[who].handle(Received(0.0, other, message))
    return parties[who]


def zeros(*shape: int) -> Any:
    return np.zeros(shape)


def words(*shape: int) -> Any:
    return np.zeros(shape, np.uint64)


@pytest.mark.parametrize(
    ("who", "sums", "sender", "message"),
    [
        ("party1", "plain", "label", ProductRequest("label", 1, np.array([24], np.uint32))),  # there are 24 rows
        ("party1", "plain", "party3", ProductRequest("label", 1, ROWS)),  # is not above party1
        ("party1", "plain", "label", ProductRequest("nobody", 1, ROWS)),
        ("party1", "plain", "label", EvaluationProductRequest("label", 1, 0, 9)),  # there are 8 test rows
        ("party1", "plain", "party2", ProductSum("label", 1, zeros(2, 1))),  # not below party1
        ("party1", "plain", "party3", MaskedSum("label", 1, 1, words(2, 1))),
        ("party1", "pairwise", "party3", ProductSum("label", 1, zeros(2, 1))),
        ("party1", "two-tree", "party3", MaskedSum("label", 1, 3, words(2, 1))),
        ("party1", "plain", "label", ResidualReply(1, zeros(3, 1))),  # 8 rows were asked for
        ("party1", "plain", "party2", ResidualRequest(1, ROWS)),  # it has no residuals to give
        ("label", "plain", "party2", ResidualRequest(1, np.array([24], np.uint32))),
        ("party1", "plain", "party2", Introduction(0.0, 0.0, np.zeros(4, np.uint64))),  # once is enough
        ("party1", "plain", "label", SharedStep(1, 1, zeros(0, 1), ROWS)),  # of another schedule
    ],
)
def test_an_asynchronous_party_refuses_it(who: str, sums: str, sender: str, message: Message) -> None:
    with pytest.raises(ProtocolError):
        introduced("afsgd", who, sums=sums).handle(Received(1.0, sender, message))


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("party2", SharedStep(1, 1, zeros(0, 1), ROWS)),  # not the label party
        ("label", SharedStep(0, 1, zeros(0, 1), ROWS)),
        ("label", SharedStep(1, 1, zeros(0, 1), np.array([24], np.uint32))),
        ("label", ProductRequest("label", 1, ROWS)),
    ],
)
def test_a_synchronous_party_refuses_it(sender: str, message: Message) -> None:
    with pytest.raises(ProtocolError):
        introduced("fsgd", "party1").handle(Received(1.0, sender, message))


def request(number: int, rows: Any = ROWS, in_pass: int = 0, instead_of: int = 0) -> SharedRequest:
    return SharedRequest(number, in_pass, instead_of, np.asarray(rows, np.uint32))


def taught(who: str) -> Party:
    """A party where one sum teaches everybody: it was asked for two sums, and has learnt from the first."""
    party = introduced("afsaga", who, updates="everybody", in_flight=2, arity=2)
    if who == "label":
        for part in (ProductSum("label", 1, zeros(24, 1)),):
            for child in ("party1", "party2"):
                party.handle(Received(1.0, child, part))
        return party
    party.handle(Received(1.0, "label", request(1, range(24), in_pass=1)))
    party.handle(Received(1.0, "label", SharedResiduals(1, 1, zeros(24, 1))))
    party.handle(TimerFired(1.0, "step"))
    party.handle(Received(1.0, "label", request(2)))
    return party


@pytest.mark.parametrize(
    ("who", "sender", "message"),
    [
        ("party1", "party2", request(3)),  # the label party's to send
        ("party1", "label", request(2)),  # again
        ("party1", "label", request(0)),
        ("party1", "label", request(3, [])),
        ("party1", "label", request(3, [24])),
        ("party1", "label", request(3, [1] * 25)),
        ("party1", "party2", SharedResiduals(2, 2, zeros(2, 1))),
        ("party1", "label", SharedResiduals(1, 1, zeros(24, 1))),  # again
        ("party1", "label", SharedResiduals(0, 2, zeros(2, 1))),
        ("party1", "label", SharedResiduals(2, 1, zeros(24, 1))),  # of a sum that has taught already
        ("party1", "label", SharedResiduals(2, 2, zeros(3, 1))),
        ("party1", "label", SharedResiduals(2, 2, zeros(2, 2))),
        ("party1", "label", SharedResiduals(2, 2, zeros(2, 1) + 1.01)),  # no class has such residuals
        ("party1", "label", LessonStep(1, 0)),
        ("party1", "party3", LessonStep(1, 0)),
        ("party1", "label", ProductRequest("label", 3, ROWS)),  # of another schedule
        ("party1", "party3", ProductSum("party2", 1, zeros(2, 1))),
        ("party1", "party3", ProductSum("label", 2, zeros(3, 1))),  # two rows were asked for
        ("party1", "party2", GoBack(1, 0, 0, 0.5)),
        ("party1", "label", GoBack(1, 0, 0, 1.5)),
        ("party1", "label", GoOn(1)),
        ("party1", "party2", LastCall()),
        ("label", "party1", LessonStep(0, 0)),
        ("label", "party1", LessonStep(2, 0)),  # which nobody was told
        ("label", "party1", request(2)),
        ("label", "party1", SharedResiduals(2, 2, zeros(2, 1))),
        ("label", "party3", ProductSum("label", 2, zeros(8, 1))),  # it is below party1
        ("label", "party1", WentBack(1, 0, 0)),
        ("label", "party1", WeightsSettled()),
    ],
)
def test_who_lies_where_one_sum_teaches_everybody_changes_nothing(who: str, sender: str, message: Message) -> None:
    party = taught(who)
    before = party.state()
    with pytest.raises(ProtocolError, match=sender):
        party.handle(Received(2.0, sender, message))
    after = party.state()
    assert after.values == before.values
    assert_same_bits(after.tensors, before.tensors)


def test_what_is_asked_and_told_before_everybody_goes_back_teaches_nobody() -> None:
    """Though it comes after the word to go back, which overtook it. Its part is sent, or others would wait for it."""
    party = taught("party2")  # with nobody below
    party.handle(Received(2.0, "label", SharedResiduals(2, 2, zeros(2, 1) + 0.5)))
    (answer,) = party.handle(Received(3.0, "label", GoBack(1, 0, 3, 0.5)))
    assert isinstance(answer, Send) and isinstance(answer.message, WentBack)
    weights_then = party.state().tensors["member.block.weights"]
    assert party.handle(TimerFired(3.0, "step")) == []  # the lesson that waited is gone
    (part,) = party.handle(Received(3.0, "label", request(3)))
    assert isinstance(part, Send) and isinstance(part.message, ProductSum)
    again = introduced("afsaga", "party2", updates="everybody", in_flight=2, arity=2)
    again.restore(party.state())
    for one in (party, again):
        assert one.handle(Received(3.0, "label", SharedResiduals(3, 3, zeros(2, 1) + 0.5))) == []
        assert one.handle(TimerFired(3.0, "step")) == []
        assert torch.equal(one.state().tensors["member.block.weights"], weights_then)
        one.handle(Received(4.0, "label", request(4, range(24), in_pass=1)))  # and from here on it learns again
        assert one.handle(Received(4.0, "label", SharedResiduals(4, 4, zeros(24, 1) + 0.5)))
        assert one.handle(TimerFired(4.0, "step"))


def test_parts_of_a_sum_that_do_not_fit_together_are_refused() -> None:
    party = introduced("afsgd", "party1")
    party.handle(Received(1.0, "label", ProductRequest("label", 1, ROWS)))
    with pytest.raises(ProtocolError, match="shapes"):
        party.handle(Received(1.0, "party3", ProductSum("label", 1, zeros(1, 1))))


def test_a_part_that_overtakes_its_request_is_judged_on_its_own() -> None:
    party = introduced("afsgd", "party1", sums="two-tree")
    for shape in ((25, 1), (0, 1), (2, 2)):
        with pytest.raises(ProtocolError, match="party2 sent a part of a sum of shape"):
            party.handle(Received(1.0, "party2", MaskedSum("label", 1, 1, words(*shape))))
    party.handle(Received(1.0, "party2", MaskedSum("label", 1, 1, words(3, 1))))  # might be right
    effects = party.handle(Received(1.0, "label", ProductRequest("label", 1, ROWS)))  # who asks is not to blame
    assert not any(isinstance(effect, Send) and isinstance(effect.message, MaskedSum) for effect in effects[:1])
    party.handle(Received(1.0, "party2", MaskedSum("label", 1, 1, words(2, 1))))  # the true one is still waited for
    waiting = party.state().part("member").part("sums")
    assert "party2" not in waiting.values["open"][0][4][0]


@pytest.mark.parametrize("sums", ["two-tree", "pairwise"])
def test_a_root_does_not_get_two_sums_under_one_mask(sums: str) -> None:
    party = introduced("afsgd", "party2", sums=sums)
    parent = next(
        name for name in EVERYBODY if name != "party2" and _takes(introduced("afsgd", "party2", sums=sums), name)
    )
    party.handle(Received(1.0, parent, ProductRequest("label", 5, ROWS)))
    with pytest.raises(ProtocolError, match=r"used up|asked for twice"):
        party.handle(Received(1.0, parent, ProductRequest("label", 5, ROWS + 1)))


def _takes(party: Party, sender: str) -> bool:
    try:
        party.handle(Received(1.0, sender, ProductRequest("label", 5, ROWS)))
    except ProtocolError:
        return False
    return True


BEFORE_THEIR_TIME = [
    ("afsgd", "label", ProductRequest("label", 1, ROWS)),
    ("fsgd", "party3", ProductSum("label", 1, zeros(2, 1))),
    ("fcg", "party3", ProductSum("label", 1, zeros(2, 1))),
]


@pytest.mark.parametrize(("name", "sender", "message"), BEFORE_THEIR_TIME)
def test_messages_before_their_time_are_kept_up_to_a_bound(
    name: str, sender: str, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.algorithms.linear_models.parts.linear_party.MOST_EARLY", 3)
    party = TinyFederation(tiny_data(), papers_form(name), Training(epochs=2, batch_size=8)).parties()["party1"]
    party.handle(Started(0.0))
    for _ in range(3):
        assert party.handle(Received(0.0, sender, message)) == []
    with pytest.raises(ProtocolError, match=f"{sender} has sent 3 messages before their time"):
        party.handle(Received(0.0, sender, message))


@pytest.mark.parametrize(("name", "sender", "message"), BEFORE_THEIR_TIME)
def test_messages_before_their_time_are_kept_up_to_a_number_of_bytes(
    name: str, sender: str, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.algorithms.linear_models.parts.block_party.MOST_KEPT_BYTES", 5000)
    plan = TinyFederation(tiny_data(), papers_form(name), Training(epochs=2, batch_size=8))
    party, again = plan.parties()["party1"], plan.parties()["party1"]
    party.handle(Started(0.0))
    with pytest.raises(ProtocolError, match=f"{sender} has sent .* bytes before their time"):
        for taken in range(1000):
            if taken == 5:  # a restart does not begin the count anew
                again.restore(party.state())
                party = again
            party.handle(Received(0.0, sender, message))
    assert 5 < taken < 30


def test_what_came_early_and_was_wrong_is_held_against_its_sender_alone() -> None:
    """Whose message completes the introductions is not to blame for what another had sent."""
    federation = TinyFederation(tiny_data(), ALGORITHMS["fsgd"].settings(), Training(epochs=2, batch_size=8))
    parties = HandTurnedParties(federation.parties())
    parties.start("label", "party1", "party2", "party3")
    parties.deliver("label", "party1")
    early = ProductSum("label", 1, zeros(3, 1))  # the batch will have 8 rows
    assert parties.give("party1", Received(0.0, "party3", early)) == []
    for sender in ("party2", "party3"):
        parties.deliver(sender, "party1")
    for sender in ("party1", "party2", "party3"):
        parties.deliver(sender, "label")
    parties.deliver("label", "party1")  # the step, which says how many rows there are
    with pytest.raises(ProtocolError, match="party3 sent a part of a sum of shape"):
        parties.give("party1", Received(0.0, "party3", ProductSum("label", 1, zeros(8, 1))))


def test_a_conjugate_party_refuses_what_is_of_another_schedule_before_its_time() -> None:
    federation = TinyFederation(tiny_data(), ALGORITHMS["fcg"].settings(), Training(epochs=2, batch_size=8))
    disturbed, undisturbed = HandTurnedParties(federation.parties()), HandTurnedParties(federation.parties())
    stray = SharedStep(1, 1, zeros(0, 1), ROWS)  # of another schedule
    for parties in (disturbed, undisturbed):
        parties.start()
        if parties is disturbed:
            with pytest.raises(ProtocolError, match="party3 sent SharedStep"):
                parties.give("party1", Received(parties.clock(), "party3", stray))
        parties.settle()
        assert parties.finished == set(federation.names)
    models = ({name: one.model() for name, one in run.parties.items()} for run in (disturbed, undisturbed))
    assert_same_bits(*(weights(own) for own in models))


def test_a_late_reply_changes_nothing() -> None:
    party = introduced("afsgd", "party1")
    before = party.state().tensors["member.block.weights"]
    with pytest.raises(ProtocolError, match="label answered the request 7, which was never made"):
        party.handle(Received(1.0, "label", ResidualReply(7, zeros(8, 1))))
    assert party.handle(Received(1.0, "label", ResidualReply(0, zeros(8, 1)))) == []
    assert (party.state().tensors["member.block.weights"] == before).all()
    assert party.handle(Received(1.0, "label", Stop("done")))
