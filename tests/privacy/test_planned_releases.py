"""What a plan releases: counted as the batches are really cut, and the worked examples of docs/privacy.md from it."""

import math

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

import colonnade
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.batches import Batches
from colonnade.errors import SettingsError
from colonnade.privacy import claims
from colonnade.privacy.accounting import (
    TOGETHER,
    ClaimedPrivacy,
    Direction,
    account,
    labels_hidden_state,
    recorded_releases,
    worst_row_mu,
)
from colonnade.privacy.gaussian import epsilon_of
from colonnade.privacy.plan import (
    UNLIKELY,
    ReleasePlan,
    embedding_releases,
    slope_releases,
)

plans = st.builds(
    ReleasePlan,
    rows=st.integers(8, 60),
    batch_size=st.integers(1, 8),
    epochs=st.floats(0.2, 6),
    feature_parties=st.sampled_from([("a",), ("a", "b")]),
)


@given(plans)
def test_a_plan_has_the_exchanges_of_its_training(plan: ReleasePlan) -> None:
    training = DecidedTraining(epochs=plan.epochs, batch_size=plan.batch_size)
    assert plan.exchanges_per_party == training.steps(plan.rows)
    assert plan.exchanges == training.steps(plan.rows) * len(plan.feature_parties)


@given(plans, st.integers(0, 10))
def test_batches_use_rows_no_more_than_planned(plan: ReleasePlan, seed: int) -> None:
    batches = Batches(plan.rows, plan.batch_size, torch.Generator().manual_seed(seed))
    whole, short = np.zeros(plan.rows, int), np.zeros(plan.rows, int)
    for _ in range(plan.exchanges_per_party):
        batch = batches.next()
        counted = whole if len(batch) == plan.batch_size else short
        counted[batch] += 1
    assert (whole + short).max() <= sum(plan.uses)
    assert short.max() <= plan.uses[1]


def test_short_batches_are_counted_up_to_an_unlikely_number() -> None:
    # 1,000 rows in batches of 64 leave 40: one of 25. The least k with 1,000 · P[Binomial(20, 1/25) > k] ≤ 1e-6:
    plan = ReleasePlan(rows=1000, batch_size=64, epochs=20)
    k = next(k for k in range(21) if 1000 * stats.binom.sf(k, 20, 0.04) <= UNLIKELY)
    assert plan.uses == (20 - k, k)
    assert 0 < k < 20
    assert ReleasePlan(rows=1000, batch_size=64, epochs=20, whole_batches=True).uses == (20, 0)


def test_slopes_of_a_plan_by_hand() -> None:
    # B = 10 of 25 rows: two whole batches and one of 5, once an epoch. C = 1, σ = 0.4.
    plan = ReleasePlan(rows=25, batch_size=10, epochs=1, label_party="bank", feature_parties=("shop", "store"))
    assert plan.uses == (0, 1)  # the one epoch may put any row into the short batch
    releases = slope_releases(plan, clip=1.0, noise=0.4, server_clip=2.0, server_noise=0.8)
    # A row in the short batch: 2/5/0.4 = 1 from the slope, 4/5/0.8 = 1 from the update, for each of two parties.
    assert worst_row_mu(releases) == pytest.approx(math.sqrt(4))
    seen_by_shop = [release for release in releases if "shop" in release.viewers]
    assert worst_row_mu(seen_by_shop) == pytest.approx(math.sqrt(3))


def test_embeddings_of_a_plan_by_hand() -> None:
    plan = ReleasePlan(
        rows=100, batch_size=10, epochs=4, warm_up=True, refreshes=4, evaluations=16, embeddings_per_upload=2
    )
    training, test = embedding_releases(plan, "shop", clip=1.0, noise=4.0)
    # 4 uploads of 2 embeddings and one that no reply came to, a warm-up and 4 refreshes make 15, each with μ = 2/4.
    assert training.mu == pytest.approx(0.5 * math.sqrt(15))
    assert test.mu == pytest.approx(0.5 * math.sqrt(16))
    assert (training.protects, test.protects) == ("columns of shop, training rows", "columns of shop, test rows")
    assert embedding_releases(plan, "shop", clip=0.0, noise=4.0)[0].mu == math.inf


# --- the worked examples: MNIST, D = 60,000, B = 64, 100 epochs, δ = 1e-3 ------------------------------------------


def solved_mu(epsilon: float, delta: float) -> float:
    """μ from Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) = δ, the paper's equation 22, by a plain root finder."""

    def excess(mu: float) -> float:
        return float(
            stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - delta
        )

    return float(optimize.brentq(excess, 0.05, 10))


@pytest.mark.parametrize(("claimed", "documented"), [(1.0, 107), (10.0, 3000)])
@pytest.mark.parametrize("parties", [1, 7])
def test_the_noise_of_the_paper_and_what_it_is_worth(claimed: float, documented: int, parties: int) -> None:
    rows, batch, epochs, clip, delta = 60_000, 64, 100, 1.0, 1e-3
    names = tuple(f"party{number}" for number in range(parties))
    plan = ReleasePlan(rows, batch, epochs, "bank", names, whole_batches=True)
    noise = claims.slopes_noise(solved_mu(claimed, delta), clip, plan.exchanges, rows)
    figures = {
        figure.adversary: figure
        for figure in account(
            Direction(plan.labels, "bank", hidden_state=labels_hidden_state("bank", "frozen")),
            slope_releases(plan, clip, noise),
            delta,
            "bank",
            names,
            claimed=ClaimedPrivacy(claims.slopes_mu(noise, clip, plan.exchanges, rows)),
        )
    }
    figure = figures[TOGETHER if parties > 1 else "feature party party0"]
    assert figure.claimed == pytest.approx(claimed, rel=1e-6)
    # Once an epoch and party a row is released with sensitivity 2C/B: the same by dp-accounting's books.
    accountant = PLDAccountant(value_discretization_interval=1e-2)
    once = GaussianDpEvent(noise_multiplier=noise / (2 * clip / batch))
    accountant.compose(SelfComposedDpEvent(once, epochs * parties))
    assert figure.sound == pytest.approx(accountant.get_epsilon(delta), rel=0.01)
    assert figure.sound == pytest.approx(documented, rel=0.03)
    # T grows with the parties as the releases of a row do: μ is √(D/B) times the claimed one, however many there are.
    assert figure.sound == pytest.approx(
        epsilon_of(math.sqrt(rows / batch) * solved_mu(claimed, delta), delta), rel=0.01
    )


def test_rows_left_over_cost_more() -> None:
    """60,000 rows are 937 batches of 64 and one of 32, in which a row costs as much as four times in a whole one."""
    plan = ReleasePlan(60_000, 64, 100, "bank", ("shop",))
    whole, short = plan.uses
    assert plan.short_batch == 32
    assert worst_row_mu(slope_releases(plan, 1.0, 2 / 64)) == pytest.approx(math.sqrt(whole + 4 * short))
    assert any("32 rows" in words for words in plan.conditions())


# --- a run --------------------------------------------------------------------------------------------------------


def test_a_run_releases_what_its_plan_said() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(32, 4))
    data = colonnade.from_arrays(
        X[:24],
        (X[:24, 0] > 0).astype(int),
        X_test=X[24:],
        y_test=(X[24:, 0] > 0).astype(int),
        parties=2,
        standardise=False,
    )
    settings = Dpzv(clip=0.5, noise=0.4, server_update="private-zo", server_clip=0.25, server_noise=0.3, wait_for=2)
    outcome = colonnade.train(
        data,
        settings,
        training=DecidedTraining(epochs=3, batch_size=8, evaluate_every_epochs=0),
        privacy=colonnade.PerturbationSettings(noise=2.0, clip=1.0),
    )
    parties = tuple(data.columns)
    plan = ReleasePlan(24, 8, 3, data.label_party, parties, evaluations=1, embeddings_per_upload=2)
    planned = slope_releases(plan, 0.5, 0.4, 0.25, 0.3)
    for party in parties:
        planned += embedding_releases(plan, party, 1.0, 2.0)
    recorded = recorded_releases(outcome.summary["privacy"]["events"])
    for protects in {release.protects for release in planned}:
        mu = worst_row_mu([release for release in recorded if release.protects == protects])
        assert mu > 0
        most = worst_row_mu([release for release in planned if release.protects == protects])
        assert mu == pytest.approx(most)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 11},
        {"batch_size": 0},
        {"epochs": 0},
        {"epochs": math.inf},
        {"feature_parties": ()},
        {"refreshes": -1},
        {"in_flight": -1},
        {"evaluations": -1},
        {"embeddings_per_upload": 0},
    ],
)
def test_impossible_plans_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        ReleasePlan(**({"rows": 10, "batch_size": 2, "epochs": 1.0} | wrong))  # type: ignore[arg-type]
