"""With many parties the label party makes one sum for several requests: everybody gets its own rows' residuals."""

from typing import Any

import numpy as np
import pytest
from papers_form import papers_form

from colonnade import Outcome, Simulate, SimulatedParty, Training, train
from colonnade.algorithms.linear_models.parts import requests
from colonnade.algorithms.linear_models.parts.requests import MOST_SUMS, Requests, RowRequest, laid_out
from colonnade.messages import Abandoned, ProductRequest, ProductSum, ResidualReply, ResidualRequest
from colonnade.party import Effect, Party, PeerLost, Received, Send, Started
from colonnade.state import State
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
ROWS = {"party1": np.arange(8), "party2": np.arange(4, 12), "party3": np.arange(16, 24)}


def label_party(**settings: Any) -> Party:
    """Of a star of three to which everybody has said who they are; each party's products are its rows' numbers."""
    training = Training(epochs=9, batch_size=8)
    parties = TinyFederation(DATA, papers_form("afsgd", arity=3, **settings), training).parties()
    for other, party in parties.items():
        for effect in party.handle(Started(0.0)):
            if isinstance(effect, Send) and effect.to == "label":
                parties["label"].handle(Received(0.0, other, effect.message))
    return parties["label"]


def ask(label: Party, who: str) -> list[Effect]:
    return [*label.handle(Received(0.0, who, ResidualRequest(1, ROWS[who].astype(np.uint32))))]


def answer(label: Party, number: int, rows: Any) -> list[Effect]:
    effects: list[Effect] = []
    for name in ROWS:
        part = np.asarray(rows, float)[:, None] / 30
        effects += label.handle(Received(0.0, name, ProductSum("label", number, part)))
    return effects


def sent(effects: list[Effect], kind: Any) -> dict[str, Any]:
    return {one.to: one.message for one in effects if isinstance(one, Send) and isinstance(one.message, kind)}


def expected(who: str) -> Any:
    """σ(θ) − y, with θ three times a row's number over 30."""
    targets = DATA.labels.train.double().numpy()[ROWS[who]]
    return 1 / (1 + np.exp(-ROWS[who] / 10)) - targets


@pytest.fixture
def one_sum_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_SUMS", 1)


def test_requests_that_come_while_sums_are_under_way_share_the_next_one(one_sum_at_a_time: None) -> None:
    label = label_party()
    assert len(sent(ask(label, "party1"), ProductRequest)) == 3
    assert not sent(ask(label, "party2"), ProductRequest) and not sent(ask(label, "party3"), ProductRequest)
    first = answer(label, 1, ROWS["party1"])
    assert sent(first, ResidualReply).keys() == {"party1"}
    asked = sent(first, ProductRequest)
    together = [*ROWS["party2"], *ROWS["party3"]]
    assert len(asked) == 3 and all(one.rows.tolist() == together for one in asked.values())
    replies = sent(answer(label, 2, together), ResidualReply)
    assert replies.keys() == {"party2", "party3"}
    for who, reply in replies.items():
        assert np.allclose(reply.residuals[:, 0], expected(who)), who


def test_who_waits_is_remembered(one_sum_at_a_time: None) -> None:
    label = label_party()
    for who in ROWS:
        ask(label, who)
    restored = label_party()
    restored.restore(label.state())
    replies = [
        sent(answer(one, 2, [*ROWS["party2"], *ROWS["party3"]]), ResidualReply)
        for one in (label, restored)
        if answer(one, 1, ROWS["party1"])
    ]
    assert len(replies) == 2 and replies[0].keys() == replies[1].keys() == {"party2", "party3"}


def test_a_shared_sum_that_is_abandoned_is_abandoned_for_all_of_them(one_sum_at_a_time: None) -> None:
    label = label_party(max_product_age_epochs=0.0)
    for who in ROWS:
        ask(label, who)
    abandoned = sent([*label.handle(PeerLost(1.0, "party3"))], Abandoned)
    assert abandoned.keys() == {"party1", "party2", "party3"}  # nor can the next one be made


def test_a_request_before_the_last_was_answered_is_refused_though_it_waits(one_sum_at_a_time: None) -> None:
    label = label_party()
    ask(label, "party1")
    ask(label, "party2")
    with pytest.raises(Exception, match="before it was answered"):
        ask(label, "party2")


def asked(name: str, first_row: int) -> RowRequest:
    return RowRequest(name, 1, np.arange(first_row, first_row + 4, dtype=np.uint32), 0)


def all_groups(waiting: Requests) -> list[str]:
    """Who shares a sum with whom."""
    groups: list[str] = []
    while together := waiting.next():
        groups.append("".join(one.sender for one in together))
        waiting.begin(len(groups), together)
    return groups


def test_a_sum_has_no_more_rows_than_everybody_takes() -> None:
    waiting = Requests(most_rows=10)
    for place, name in enumerate("abcde"):
        waiting.add(asked(name, 4 * place))
    assert all_groups(waiting) == ["ab", "cd", "e"]
    assert waiting.end(2)[0].sender == "c" and waiting.end(2) == []


def test_rows_that_several_ask_for_are_summed_once() -> None:
    waiting = Requests(most_rows=10)
    for name, first_row in zip("abcdef", (0, 0, 20, 40, 20, 0), strict=True):
        waiting.add(asked(name, first_row))
    assert all_groups(waiting) == ["abcef", "d"]
    rows, places = laid_out(waiting.end(1))
    assert rows.tolist() == [0, 1, 2, 3, 20, 21, 22, 23]
    assert [place.start for place in places] == [0, 0, 4, 4, 0]


def test_more_rows_than_a_sum_may_have_go_alone() -> None:
    waiting = Requests(most_rows=2)
    waiting.add(asked("a", 0))
    waiting.add(asked("b", 8))
    assert all_groups(waiting) == ["a", "b"]


def test_what_earlier_versions_wrote_is_read() -> None:
    """One line per sum: its number, who asked, their number, and the answers so far."""
    state = State({}, {"asked": [[7, "a", 3, 5]]})
    state.put("asked.0", np.arange(4, dtype=np.uint32))
    waiting = Requests(most_rows=10)
    waiting.restore(state)
    assert [(one.sender, one.exchange, one.answers_then, one.rows.tolist()) for one in waiting.end(7)] == [
        ("a", 3, 5, [0, 1, 2, 3])
    ]


def run(scheme: str, **world: Any) -> Outcome:
    training = Training(epochs=12, batch_size=8, l2=0.05, evaluate_every_epochs=0)
    settings = papers_form("afsaga", search_every_epochs=0, sums=scheme, max_product_age_epochs=0.0)
    return train(DATA, settings, training=training, simulate=Simulate(**world))


@pytest.mark.parametrize("scheme", ["plain", "two-tree", "pairwise"])
def test_a_training_with_shared_sums_comes_to_the_same_optimum(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run(scheme).summary
    monkeypatch.setattr(requests, "MOST_SUMS", 1)
    away = {"party2": SimulatedParty(crashes=((0.05, 0.1),))}
    for world in ({}, {"parties": away}):
        shared = run(scheme, **world).summary
        assert shared["test"]["log_loss"] == pytest.approx(alone["test"]["log_loss"], rel=0.02)
        assert shared["frames_by_message"]["ProductRequest"] < alone["frames_by_message"]["ProductRequest"]


def test_small_federations_share_nothing() -> None:
    assert MOST_SUMS >= 16


@pytest.mark.parametrize(
    ("settings", "alike"), [({}, True), ({"step": "fixed"}, False), ({"precondition": "none"}, False)]
)
def test_parties_draw_the_same_rows_unless_the_papers_form_is_asked_for(settings: dict[str, str], alike: bool) -> None:
    federation = TinyFederation(DATA, papers_form("afsaga", **settings), Training(epochs=9, batch_size=8))
    parties: dict[str, Any] = federation.parties()
    drawn = [parties[name]._solver._windows.next().tolist() for name in ("party1", "party2", "party3")]
    assert (drawn[0] == drawn[1] == drawn[2]) == alike
