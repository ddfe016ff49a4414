"""Budgets are kept by the row: the owner of the protected data counts, refuses, and the training ends cleanly."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colonnade
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.split_models.parts.budget import PartyBudgets, RowBudget, budget_mu
from colonnade.algorithms.split_models.split import Split
from colonnade.errors import ProtocolError
from colonnade.federation.building import build_parties
from colonnade.messages import BatchRequest, Message, PairUpload, RefreshRequest
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Party, Received, Started
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.gaussian import mu_of
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty

TRAINING = colonnade.Training(epochs=6, batch_size=16, learning_rate=0.05, evaluate_every_epochs=0)


def worst_mu(outcome: colonnade.Outcome, protects: str) -> float:
    """√Σ (s/σ)² of the row that was released most, from the run's own books."""
    kinds = [kind for kind in outcome.summary["privacy"]["events"] if kind["protects"].startswith(protects)]
    total = sum(kind["max_releases_per_row"] * (kind["sensitivity"] / kind["noise"]) ** 2 for kind in kinds)
    return float(np.sqrt(total))


def test_a_row_is_affordable_until_its_costs_reach_the_budget() -> None:
    budget = RowBudget(rows=3, mu=2.0)  # μ² = 4: four releases of cost 1
    rows = np.array([0, 2], np.uint32)
    for _ in range(4):
        assert budget.affordable(rows, 1.0).all()
        budget.spend(rows, 1.0)
    assert budget.affordable(np.arange(3, dtype=np.uint32), 1.0).tolist() == [False, True, False]
    assert budget.left(1.0) == 1
    again = RowBudget(rows=3, mu=2.0)
    again.restore(budget.state())
    assert again.left(1.0) == 1


def test_every_party_has_its_share_of_a_row_and_all_together_keep_to_the_whole() -> None:
    row = np.zeros(1, np.uint32)
    budgets = PartyBudgets(1, 2.0, ["a", "b"])  # μ² = 4: two releases of cost 1 for each
    for _ in range(2):
        assert budgets.all_affordable("a", row, 1.0)
        budgets.spend("a", row, 1.0)
    again = PartyBudgets(1, 2.0, ["a", "b"])
    again.restore(budgets.state())
    for one in (budgets, again):
        assert not one.all_affordable("a", row, 1.0) and not one.affordable("a", row, 1.0).any()
        assert one.all_affordable("b", row, 1.0)
    few = PartyBudgets(1, 1.0, ["a", "b"])  # one release in all: whoever asks first has it
    assert few.all_affordable("a", row, 1.0)
    few.spend("a", row, 1.0)
    assert not few.all_affordable("b", row, 1.0)


@given(costs=st.lists(st.floats(1e-3, 2.0), max_size=60), mu=st.floats(0.1, 5.0))
def test_no_order_of_releases_exceeds_the_budget(costs: list[float], mu: float) -> None:
    budget = RowBudget(rows=1, mu=mu)
    row = np.zeros(1, np.uint32)
    spent = 0.0
    for cost in costs:
        if budget.affordable(row, cost).all():
            budget.spend(row, cost)
            spent += cost
    assert spent <= mu * mu * (1 + 1e-6)


def test_without_a_target_or_with_a_papers_formula_there_is_no_budget() -> None:
    assert budget_mu(0.0, 1e-5, "sound") == budget_mu(1.0, 1e-5, "paper") == float("inf")
    assert budget_mu(1.0, 1e-5, "sound") == mu_of(1.0, 1e-5)


def private(epsilon: float, releases: float) -> PerturbationSettings:
    """Noise with which so many releases of a row cost ε."""
    clip = 1.0
    return PerturbationSettings(
        clip=clip, noise=2 * clip * releases**0.5 / mu_of(epsilon, 1e-5), columns_epsilon=epsilon, delta=1e-5
    )


@pytest.mark.parametrize("releases", [2.0, 3.5])
def test_vafl_ends_when_its_columns_budget_does(releases: float) -> None:
    data = colonnade.dataset("iris", parties=2)
    privacy = private(4.0, releases)
    outcome = colonnade.train(data, "vafl", training=TRAINING, privacy=privacy, seed=3)
    assert outcome.finished
    planned = colonnade.train(data, "vafl", training=TRAINING, seed=3).summary["exchanges"]
    assert 0 < outcome.summary["exchanges"] < planned
    for party in data.feature_parties:
        assert worst_mu(outcome, f"columns of {party}, training") <= mu_of(4.0, 1e-5) * (1 + 1e-6)
    assert any("budget" in line.get("note", "") for line in outcome.metrics)


def test_a_budget_that_the_plan_fits_into_changes_nothing() -> None:
    data = colonnade.dataset("iris", parties=2)
    privacy = private(4.0, 20)
    free = replace(privacy, columns_epsilon=0.0)
    bounded = colonnade.train(data, "vafl", training=TRAINING, privacy=privacy, seed=3)
    unbounded = colonnade.train(data, "vafl", training=TRAINING, privacy=free, seed=3)
    assert bounded.summary["exchanges"] == unbounded.summary["exchanges"]
    assert bounded.summary["test"] == unbounded.summary["test"]


def test_split_ends_when_a_batch_cannot_be_afforded() -> None:
    data = colonnade.dataset("iris", parties=2)
    outcome = colonnade.train(data, Split(), training=TRAINING, privacy=private(4.0, 2.0), seed=3)
    assert outcome.finished
    # Two epochs are affordable, and the third one's first batch is not.
    assert outcome.summary["epochs"] == pytest.approx(2.0)


def test_warm_up_and_refreshes_count_as_well() -> None:
    data = colonnade.dataset("iris", parties=2)
    settings = colonnade.Vafl(warm_up=True, max_delay=3)
    outcome = colonnade.train(data, settings, training=TRAINING, privacy=private(4.0, 3.0), seed=3)
    assert outcome.finished
    for party in data.feature_parties:
        assert worst_mu(outcome, f"columns of {party}, training") <= mu_of(4.0, 1e-5) * (1 + 1e-6)


def test_test_rows_have_a_budget_of_their_own() -> None:
    data = colonnade.dataset("iris", parties=2)
    training = replace(TRAINING, evaluate_every_epochs=0.5)
    outcome = colonnade.train(data, "vafl", training=training, privacy=private(4.0, 6.0), seed=3)
    assert outcome.finished
    for party in data.feature_parties:
        assert worst_mu(outcome, f"columns of {party}, test") <= mu_of(4.0, 1e-5) * (1 + 1e-6)


@pytest.mark.parametrize("update", ["frozen", "private-zo", "dp-sgd"])
def test_dpzv_refuses_rows_whose_labels_are_spent(update: str) -> None:
    data = colonnade.dataset("iris", parties=2)
    clip, mu = 1.0, mu_of(4.0, 1e-5)
    # Both parties ask for every row: five releases of it are two and a half epochs.
    noise = 2 * clip / TRAINING.batch_size * 5**0.5 / mu
    settings = colonnade.Dpzv(
        clip=clip, noise=noise, server_update=update, server_clip=1.0, server_noise=1000 * noise, in_flight=2
    )
    privacy = PerturbationSettings(labels_epsilon=4.0)
    outcome = colonnade.train(data, settings, training=TRAINING, privacy=privacy, seed=3)
    assert outcome.finished
    assert 0 < outcome.summary["exchanges"] < 0.6 * 2 * 6 * 7
    assert worst_mu(outcome, "labels of label") <= mu * (1 + 1e-6)


def test_a_resumed_run_has_spent_what_it_had(tmp_path: Path) -> None:
    data = colonnade.dataset("iris", parties=2)
    privacy = private(4.0, 3.0)
    whole = colonnade.train(data, "vafl", training=TRAINING, privacy=privacy, seed=3)
    seen = iter(range(1000))
    out = tmp_path / "run"
    colonnade.train(
        data,
        "vafl",
        training=TRAINING,
        privacy=privacy,
        seed=3,
        out=out,
        checkpoint_seconds=0.0,
        stop_requested=lambda: next(seen) > 40,
    )
    resumed = colonnade.train(data, "vafl", training=TRAINING, privacy=privacy, seed=3, out=out, resume=True)
    assert resumed.summary["privacy"]["events"] == whole.summary["privacy"]["events"]
    assert resumed.summary["exchanges"] == whole.summary["exchanges"]


def test_a_million_rows_cost_little_memory() -> None:
    ledger = Ledger()
    budget = RowBudget(1_000_000, 1.0)
    assert budget.state().tensors["spent"].nbytes == 8_000_000
    event = PrivacyEvent("gaussian", 2.0, 4.0, 1, row_ids=np.array([999_999], np.uint32), protects="a row", viewers=())
    ledger.spend("bank", event)
    assert sum(tensor.nbytes for tensor in ledger.state().tensors.values()) <= 8_000_000


@given(
    releases=st.lists(st.lists(st.integers(0, 5), unique=True, max_size=6), max_size=60),
    mu=st.floats(0.5, 4.0),
)
def test_a_glance_at_the_whole_budget_says_what_a_look_at_the_rows_does(releases: list[list[int]], mu: float) -> None:
    budget = RowBudget(rows=6, mu=mu)
    for release in releases:
        rows = np.array(release, np.uint32)
        assert budget.all_affordable(rows, 0.7) == bool(budget.affordable(rows, 0.7).all())
        if budget.all_affordable(rows, 0.7):
            budget.spend(rows, 0.7)


TWICE = np.array([3] * 2 + [*range(4, 18)], np.uint32)
"""A batch of 16 in which one row has two shares."""


def parties_of(name: str, privacy: PerturbationSettings, **settings: float) -> dict[str, Party]:
    data = colonnade.dataset("iris", parties=2)
    algorithm = ALGORITHMS[name].settings(**settings)
    return build_parties(data, algorithm, TRAINING, privacy, BottomSettings(), TopSettings(), seed=0)


def test_a_label_party_refuses_a_batch_that_names_a_row_twice() -> None:
    """Its answer is a mean over the batch: the more shares a row has, the more of its label it tells."""
    label = parties_of("dpzv", PerturbationSettings(), noise=1.0, clip=1.0)["label"]
    label.handle(Started(0.0))
    embedding = np.zeros((16, 16), np.float32)
    with pytest.raises(ProtocolError, match="party1 named a row twice"):
        label.handle(Received(0.0, "party1", PairUpload(1, TWICE, embedding, embedding)))


@pytest.mark.parametrize(
    ("name", "request_of"),
    [("vafl", lambda: RefreshRequest(1, TWICE)), ("split", lambda: BatchRequest(1, TWICE))],
)
def test_a_feature_party_tells_no_row_twice_in_one_message(name: str, request_of: Callable[[], Message]) -> None:
    """Each alone could be afforded; together they might not."""
    party = parties_of(name, private(1.0, 50.0))["party1"]
    party.handle(Started(0.0))
    with pytest.raises(ProtocolError, match="label named a row twice"):
        party.handle(Received(0.0, "label", request_of()))


@pytest.mark.parametrize("wait_for", [2, 3])
@pytest.mark.parametrize("slowdown", [1.0, 3.0])
def test_who_is_left_does_not_wait_for_who_has_no_budget_any_more(wait_for: int, slowdown: float) -> None:
    """With wait_for above 1, an upload that waits for another party's goes on when that party says it has none."""
    data = colonnade.dataset("iris", parties=3)
    world = Simulate(parties={"party1": SimulatedParty(slowdown=slowdown)})
    privacy = PerturbationSettings(labels_epsilon=4.0)
    for algorithm, own in (
        (colonnade.Dpzv(clip=1.0, server_update="frozen", wait_for=wait_for), privacy),
        (colonnade.Vafl(wait_for=wait_for), private(4.0, 3.0)),
    ):
        outcome = colonnade.train(data, algorithm, training=TRAINING, privacy=own, simulate=world, seed=3)
        assert outcome.finished


def test_with_noise_a_row_is_named_once_also_without_a_budget() -> None:
    privacy = PerturbationSettings(noise=1.0, clip=1.0, bottom_update="dp-sgd", update_noise=1.0)
    models = BottomSettings(), TopSettings()
    party = build_parties(colonnade.dataset("iris", parties=2), Split(), TRAINING, privacy, *models, 0)["party1"]
    party.handle(Started(0.0))
    with pytest.raises(ProtocolError, match="named a row twice"):
        party.handle(Received(0.0, "label", BatchRequest(1, np.zeros(16, np.uint32))))
