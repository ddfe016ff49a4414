"""Noise from a budget and a plan, and back; and what to change if the noise is too much."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import SettingsError
from colonnade.privacy import claims
from colonnade.privacy.accounting import worst_row_mu
from colonnade.privacy.calibration import (
    embedding_clip,
    embedding_noise,
    slope_clip,
    slope_noise,
    suggest_for_embeddings,
    suggest_for_slopes,
    top_noise,
)
from colonnade.privacy.gaussian import epsilon_of, mu_of
from colonnade.privacy.plan import ReleasePlan, embedding_releases, slope_releases

PLAN = ReleasePlan(rows=1000, batch_size=100, epochs=9, feature_parties=("shop", "store"))
ANSWERED = replace(PLAN, in_flight=0)
DELTA = 1e-5

plans = st.builds(
    ReleasePlan,
    rows=st.integers(50, 5000),
    batch_size=st.integers(1, 50),
    epochs=st.floats(0.5, 200),
    feature_parties=st.sampled_from([("a",), ("a", "b", "c")]),
    warm_up=st.booleans(),
    refreshes=st.integers(0, 3),
    evaluations=st.integers(0, 100),
    embeddings_per_upload=st.integers(1, 3),
)
epsilons = st.floats(math.log(0.01), math.log(10_000)).map(math.exp)
clips = st.floats(0.01, 100)
shares = st.floats(0.01, 0.99)


@given(epsilons, plans, clips)
def test_slope_noise_keeps_exactly_its_budget(epsilon: float, plan: ReleasePlan, clip: float) -> None:
    sound = slope_noise(epsilon, DELTA, plan, clip)
    assert epsilon_of(worst_row_mu(slope_releases(plan, clip, sound)), DELTA) == pytest.approx(epsilon, rel=1e-8)
    claimed = claims.slopes_noise(mu_of(epsilon, DELTA), clip, plan.exchanges, plan.rows)
    mu = claims.slopes_mu(claimed, clip, plan.exchanges, plan.rows)
    assert epsilon_of(mu, DELTA) == pytest.approx(epsilon, rel=1e-8)


@given(epsilons, plans, clips, clips, shares)
def test_slopes_and_private_updates_keep_a_budget_together(
    epsilon: float, plan: ReleasePlan, clip: float, server_clip: float, share: float
) -> None:
    noise = slope_noise(epsilon, DELTA, plan, clip, update_share=share)
    own = top_noise(epsilon, DELTA, plan, server_clip, share)
    spent = worst_row_mu(slope_releases(plan, clip, noise, server_clip, own))
    assert epsilon_of(spent, DELTA) == pytest.approx(epsilon, rel=1e-8)


@given(epsilons, plans, clips)
def test_embedding_noise_keeps_exactly_its_budget(epsilon: float, plan: ReleasePlan, clip: float) -> None:
    sound = embedding_noise(epsilon, DELTA, plan, clip)
    releases = embedding_releases(plan, plan.feature_parties[0], clip, sound)
    assert epsilon_of(max(release.mu for release in releases), DELTA) == pytest.approx(epsilon, rel=1e-8)
    claimed = claims.embeddings_noise(mu_of(epsilon, DELTA), clip, plan.exchanges_per_party, plan.batch_size, plan.rows)
    mu = claims.embeddings_mu(claimed, clip, plan.exchanges_per_party, plan.batch_size, plan.rows)
    assert epsilon_of(mu, DELTA) == pytest.approx(epsilon, rel=1e-8)


@given(epsilons, plans, clips)
def test_clips_are_the_other_way_round(epsilon: float, plan: ReleasePlan, clip: float) -> None:
    assert slope_clip(epsilon, DELTA, plan, slope_noise(epsilon, DELTA, plan, clip)) == pytest.approx(clip)
    assert embedding_clip(epsilon, DELTA, plan, embedding_noise(epsilon, DELTA, plan, clip)) == pytest.approx(clip)


def slopes_by_paper(epsilon: float, clip: float) -> float:
    return claims.slopes_noise(mu_of(epsilon, DELTA), clip, PLAN.exchanges, PLAN.rows)


def embeddings_by_paper(epsilon: float, clip: float) -> float:
    queries = PLAN.exchanges_per_party
    return claims.embeddings_noise(mu_of(epsilon, DELTA), clip, queries, PLAN.batch_size, PLAN.rows)


def test_noise_by_hand() -> None:
    mu = mu_of(2.0, DELTA)
    # A label is used 9 times by each of 2 parties, each time with 2C/B = 0.06: √18 · 0.06/μ.
    assert slope_noise(2.0, DELTA, PLAN, clip=3.0) == pytest.approx(math.sqrt(18) * 0.06 / mu)
    # As many updates of the label party itself: √2 more.
    assert slope_noise(2.0, DELTA, PLAN, 3.0, update_share=0.5) == pytest.approx(math.sqrt(36) * 0.06 / mu)
    # The paper: 2C√T/(Dμ) with T = 2 · 90.
    assert slopes_by_paper(2.0, 3.0) == pytest.approx(6 * math.sqrt(180) / (1000 * mu))
    # An embedding is uploaded 9 times by one party: 3 · 2C/μ; evaluated 16 times: 4 · 2C/μ.
    assert embedding_noise(2.0, DELTA, ANSWERED, 3.0) == pytest.approx(18 / mu)
    # One upload more, unanswered at the end, may have any row a tenth time.
    assert embedding_noise(2.0, DELTA, PLAN, 3.0) == pytest.approx(math.sqrt(10) * 6 / mu)
    assert embedding_noise(2.0, DELTA, replace(PLAN, evaluations=16), 3.0) == pytest.approx(24 / mu)
    # The paper: 2C · N_m√K/(μN), K = 90.
    assert embeddings_by_paper(2.0, 3.0) == pytest.approx(0.6 * math.sqrt(90) / mu)


def test_the_paper_asks_for_less_noise() -> None:
    # By √(D/B) for slopes; for embeddings by as much.
    assert slope_noise(1.0, DELTA, PLAN, 1.0) == pytest.approx(math.sqrt(10) * slopes_by_paper(1.0, 1.0))
    assert embedding_noise(1.0, DELTA, ANSWERED, 1.0) == pytest.approx(math.sqrt(10) * embeddings_by_paper(1.0, 1.0))


@settings(max_examples=40)
@given(plans)
def test_more_of_anything_needs_more_noise(plan: ReleasePlan) -> None:
    shuffled = replace(plan, whole_batches=True)
    noise = slope_noise(1.0, DELTA, shuffled, 1.0)
    assert slope_noise(1.0, DELTA, replace(shuffled, epochs=plan.epochs + 1), 1.0) > noise
    assert slope_noise(1.0, DELTA, replace(shuffled, feature_parties=("a", "b", "c", "d")), 1.0) > noise
    assert slope_noise(0.5, DELTA, shuffled, 1.0) > noise
    assert slope_noise(1.0, DELTA / 2, shuffled, 1.0) > noise
    assert slope_noise(1.0, DELTA, replace(shuffled, whole_batches=False), 1.0) >= noise
    uploads = replace(shuffled, evaluations=0)
    noise = embedding_noise(1.0, DELTA, uploads, 1.0)
    assert embedding_noise(1.0, DELTA, replace(uploads, refreshes=plan.refreshes + 1), 1.0) > noise


@pytest.mark.parametrize("wanted", [0.2, 0.5, 1.5])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_suggestions_for_slopes_are_enough_and_just_so(wanted: float, share: float) -> None:
    plan = ReleasePlan(rows=600, batch_size=30, epochs=20)

    def ratio(**changes: float) -> float:
        return slope_noise(1.0, DELTA, replace(plan, **changes), 1.0, update_share=share)  # type: ignore[arg-type]

    suggestion = suggest_for_slopes(1.0, DELTA, plan, wanted, update_share=share)
    assert suggestion.noise_to_signal == ratio()
    if suggestion.epochs is None:
        assert ratio(epochs=1) > wanted
    else:
        assert ratio(epochs=suggestion.epochs) <= wanted < ratio(epochs=suggestion.epochs + 1)
    assert suggestion.batch_size is not None
    assert ratio(batch_size=suggestion.batch_size) <= wanted
    assert all(ratio(batch_size=size) > wanted for size in range(1, suggestion.batch_size))


def test_suggestions_by_hand() -> None:
    plan = ReleasePlan(rows=1000, batch_size=100, epochs=16)
    mu = mu_of(1.0, DELTA)
    wanted = 2 * math.sqrt(4) / (100 * mu)  # 4 epochs' worth
    suggestion = suggest_for_slopes(1.0, DELTA, plan, wanted * (1 + 1e-9))
    assert (suggestion.epochs, suggestion.batch_size) == (4, 200)
    assert suggestion.noise_to_signal == pytest.approx(2 * wanted)
    # 3 · 2/μ allows 9 releases of a row: 8 epochs, and an upload that is on its way at the end
    assert suggest_for_embeddings(1.0, DELTA, plan, 2 * 3 / mu * (1 + 1e-9)).epochs == 8


def test_what_cannot_be_reached_is_not_suggested() -> None:
    suggestion = suggest_for_slopes(0.1, DELTA, ReleasePlan(rows=100, batch_size=10, epochs=10), 1e-3)
    assert (suggestion.epochs, suggestion.batch_size) == (None, None)
    suggestion = suggest_for_embeddings(0.1, DELTA, PLAN, 0.1)
    assert (suggestion.epochs, suggestion.batch_size) == (None, None)


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_impossible_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(SettingsError, match="ε"):
        slope_noise(epsilon, DELTA, PLAN, 1.0)


def test_other_nonsense_is_refused() -> None:
    with pytest.raises(SettingsError, match="clip"):
        embedding_noise(1.0, DELTA, PLAN, 0.0)
    with pytest.raises(SettingsError, match="ratio"):
        suggest_for_slopes(1.0, DELTA, PLAN, 0.0)
