"""Single messages that once did harm: each is refused on arrival, its sender is named, and the party is as it was."""

from typing import Any

import numpy as np
import pytest
from lying_peer import BUDGET, NOISED_ANSWERS, TRAINING, besiege, digest_of
from papers_form import papers_form

from colonnade import PerturbationSettings
from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.algorithms.split_models.parts.evaluation import MOST_WAITING
from colonnade.algorithms.table import which
from colonnade.errors import ProtocolError, RunError
from colonnade.messages import (
    Abandoned,
    BatchRequest,
    BudgetSpent,
    EmbeddingUpload,
    EvaluationEmbedding,
    EvaluationRequest,
    Introduction,
    JointStep,
    LossReport,
    MaskedSum,
    Message,
    PairUpload,
    ProductRequest,
    ProductSum,
    RefreshedEmbedding,
    WeightsSettled,
)
from colonnade.party import Party, Received, Send, Started
from colonnade.testing import HandTurnedParties, TinyFederation, tiny_data

ROWS = np.arange(8, dtype=np.uint32)


def started(name: str, task: str = "binary", privacy: PerturbationSettings | None = None, **how: Any) -> Any:
    """All parties, started and introduced to one another; nothing else is delivered."""
    plan = TinyFederation(
        tiny_data(task), papers_form(name, **how), TRAINING, privacy=privacy or PerturbationSettings()
    )
    parties = HandTurnedParties(plan.parties())
    parties.start()
    if ALGORITHMS[name].linear_party and ALGORITHMS[name].conversation.tells_columns:
        for sender in plan.names:
            for receiver in plan.names:
                if sender != receiver:
                    parties.deliver(sender, receiver)
    return parties


def refuses(party: Party, sender: str, message: Message, match: str = "") -> None:
    before = digest_of(party)
    with pytest.raises(ProtocolError, match=f"(?s){sender}.*{match}"):
        party.handle(Received(1.0, sender, message))
    assert digest_of(party) == before


def embedding(value: float, width: int = 2) -> Any:
    return np.full((8, width), value, np.float32)


# --- a feature party that lies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", which(lambda row: bool(row.linear_party and row.conversation.asynchronous)), ids=lambda row: row.name
)
@pytest.mark.parametrize("root", ["label", "party1"])
def test_what_was_not_asked_for_cannot_be_abandoned(row: Algorithm, root: str) -> None:
    label = started(row.name).parties["label"]  # it has no columns, so it has asked for nothing
    for number in (0, 1, 7):
        refuses(label, "party1", Abandoned(root, number))


@pytest.mark.parametrize("value", [1e6, 3e38, -1e6])
def test_an_absurd_upload_costs_its_sender_its_place_and_nobody_else_anything(value: float) -> None:
    parties = started("vafl")
    label = parties.parties["label"]
    refuses(label, "party2", EmbeddingUpload(0, ROWS, embedding(value)), "magnitude")
    for sender in ("party1", "party3"):
        assert any(isinstance(effect, Send) for effect in parties.deliver(sender, "label"))


def test_large_numbers_are_judged_by_what_they_do_to_the_loss() -> None:
    label = started("vafl").parties["label"]
    refuses(label, "party2", EmbeddingUpload(0, ROWS, embedding(9e4)), "the loss of its batch")
    assert label.handle(Received(1.0, "party1", EmbeddingUpload(0, ROWS, embedding(150.0))))


def test_who_sends_what_when_a_training_diverges_is_told() -> None:
    plan = TinyFederation(tiny_data("regression"), ALGORITHMS["vafl"].settings(), TRAINING)
    label = plan.parties()["label"]
    with pytest.raises(RunError, match=r"diverged.*party2 .*, party[13] "):
        for exchange in range(40):
            for sender in ("party1", "party2", "party3"):
                value = 40.0 if sender == "party2" else 1.0
                label.handle(Received(1.0, sender, EmbeddingUpload(exchange, ROWS, embedding(value))))


@pytest.mark.parametrize("value", [1e10, 1e300])
def test_a_sum_of_absurd_products_is_refused_by_the_first_who_sees_it(value: float) -> None:
    parties = started("afsgd").parties
    refuses(parties["party1"], "party3", ProductSum("label", 1, np.full((8, 1), value)), "products of magnitude")


def test_a_masked_part_of_a_wrong_shape_is_refused_before_its_request() -> None:
    party = started("afsgd", sums="two-tree").parties["party1"]
    for shape in ((8, 2), (25, 1), (0, 1)):
        refuses(party, "party2", MaskedSum("label", 3, 1, np.zeros(shape, np.uint64)), "shape")


def test_sums_that_nobody_asked_for_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.algorithms.linear_models.parts.block_party.MOST_KEPT_BYTES", 10_000)
    party = started("afsgd", sums="two-tree").parties["party1"]
    taken = 0
    with pytest.raises(ProtocolError, match=r"party2 has sent \d+ bytes of sums that nobody has asked for"):
        for taken in range(1000):
            party.handle(Received(1.0, "party2", MaskedSum("label", 100 + taken, 1, np.zeros((24, 1), np.uint64))))
    assert 5 < taken < 30


def test_budgets_are_spent_once() -> None:
    label = started("vafl", privacy=BUDGET).parties["label"]
    label.handle(Received(1.0, "party1", BudgetSpent("rows of party1")))
    refuses(label, "party1", BudgetSpent("rows of party1"), "twice")


def test_nobody_takes_the_answers_that_were_planned_for_another() -> None:
    label = started("dpzv", privacy=PerturbationSettings(labels_epsilon=20.0), **NOISED_ANSWERS).parties["label"]
    kinds: dict[str, list[str]] = {"party1": [], "party2": []}
    for exchange in range(200):
        effects = label.handle(Received(1.0, "party1", PairUpload(exchange, ROWS, embedding(0.1), embedding(0.2))))
        kinds["party1"] += [type(one.message).__name__ for one in effects if isinstance(one, Send)]
        if "RowsRefused" in kinds["party1"]:
            break
    assert kinds["party1"][0] == "SlopeReply" and kinds["party1"][-1] == "RowsRefused"
    effects = label.handle(Received(1.0, "party2", PairUpload(0, ROWS, embedding(0.1), embedding(0.2))))
    assert [type(one.message).__name__ for one in effects if isinstance(one, Send)] == ["SlopeReply"]


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("vafl", {}, RefreshedEmbedding(1, ROWS, embedding(0.0))),
        ("vafl", {}, EvaluationEmbedding(1, 0, embedding(0.0))),
        ("afsgd", {}, WeightsSettled()),
        ("afsgd", {}, LossReport(1, 0.5)),
        ("afsgd", {"labels": "everywhere"}, LossReport(10_000, 0.5)),
        ("afsgd", {"labels": "everywhere"}, LossReport(1, 1e300)),
    ],
)
def test_the_label_party_refuses_answers_to_what_it_never_said(
    name: str, how: dict[str, Any], message: Message
) -> None:
    refuses(started(name, **how).parties["label"], "party1", message)


# --- a label party that lies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("privacy", [BUDGET, PerturbationSettings()], ids=["budget", "none"])
def test_a_batch_of_rows_that_do_not_exist(privacy: PerturbationSettings) -> None:
    party = started("split", privacy=privacy).parties["party1"]
    refuses(party, "label", BatchRequest(1, np.array([0, 4_000_000_000], np.uint32)), "there are 24")


@pytest.mark.parametrize(
    "step",
    [
        JointStep(1, 0.0, 0.0, np.full((24, 1), 2.0)),  # no residual of a class is so large: its curvature is negative
        JointStep(1, 1e308, 1e308, np.full((24, 1), 1e300)),
        JointStep(1, 0.0, 0.0, np.zeros((23, 1))),
    ],
)
def test_a_step_of_conjugate_gradients_that_cannot_be(step: JointStep) -> None:
    refuses(started("fcg").parties["party1"], "label", step)


def test_a_second_step_for_the_same_sum() -> None:
    party = started("fcg").parties["party1"]
    party.handle(Received(1.0, "label", JointStep(1, 0.0, 0.0, np.full((24, 1), 0.5))))
    refuses(party, "label", JointStep(1, 1.0, 0.0, np.full((24, 1), 0.5)), "the last")
    refuses(party, "label", JointStep(2, 1e40, 0.0, np.full((24, 1), 0.5)), "a step")


def test_a_request_that_is_made_twice_is_counted_once() -> None:
    party = started("afsgd", sums="two-tree").parties["party1"]
    party.handle(Received(1.0, "label", ProductRequest("label", 1, ROWS)))
    refuses(party, "label", ProductRequest("label", 1, ROWS), "twice|used up")
    refuses(party, "label", ProductRequest("label", 2**40, ROWS), "leap")


def test_a_mask_key_that_is_none_is_its_senders_fault() -> None:
    """And not of whoever introduces itself last, when masks are agreed on."""
    plan = TinyFederation(tiny_data(), papers_form("afsgd", sums="pairwise"), TRAINING)
    party = plan.parties()["party1"]
    party.handle(Started(0.0))
    refuses(party, "party2", Introduction(0.0, 0.0, np.zeros(4, np.uint64)), "X25519")


def test_an_honest_reply_is_not_refused_for_an_evaluation_that_was_wrong() -> None:
    parties = started("split")
    refuses(parties.parties["party1"], "label", EvaluationRequest(1, 2, 25, 1), "there are 8")
    parties.settle()
    assert parties.finished == {*parties.parties}


@pytest.mark.parametrize("name", ["vafl", "split"])
def test_evaluations_that_wait_are_few(name: str) -> None:
    party = started(name).parties["party1"]
    for number in range(MOST_WAITING + 4):
        party.handle(Received(1.0, "label", EvaluationRequest(number, 0, 8, 1000)))
    refuses(party, "label", EvaluationRequest(9999, 0, 8, 1000), "waiting")
    refuses(party, "label", EvaluationRequest(1, 4, 8, 0), "there are 8")


def test_batches_whose_replies_never_come_are_forgotten() -> None:
    party = started("split", party_timeout_seconds=1.0).parties["party1"]
    for step in range(1, 30):
        party.handle(Received(1.0, "label", BatchRequest(step, ROWS)))
    assert len(party.state().part("bottom").values["pending"]) == 4


# --- found by lying at random ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("vafl", 1228),  # honest embeddings that a spoilt model has driven far out
        ("zoo", 1375),
        ("afsgd", 1106),  # a party that believed in a request which the one above it had made up
    ],
)
def test_what_was_found_stays_mended(name: str, number: int) -> None:
    besiege(ALGORITHMS[name], number)
