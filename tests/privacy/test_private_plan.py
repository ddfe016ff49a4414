"""A federation's plan becomes noise, releases and figures; and a run costs what its plan said, or less."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade
from colonnade import Cascaded, Centralised, Czofo, Dpzv, PerturbationSettings, Split, Training, Vafl, Zoo, ZooSync
from colonnade.algorithms.training import DecidedTraining
from colonnade.costs.guarantees import (
    EVERY_OTHER,
    epsilon_curves,
    guarantees,
    overall,
    planned_guarantees,
    privacy_summary,
)
from colonnade.costs.noise import calibrated, release_plan
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Facts, Plan
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.accounting import OUTSIDER, TOGETHER
from colonnade.privacy.gaussian import epsilon_of, mu_of
from colonnade.reports.epsilons import in_one_line

TRAINING = DecidedTraining(epochs=3, batch_size=8, learning_rate=0.01)


def data_of(rows: int = 24, parties: int = 2) -> FederatedData:
    X = np.random.default_rng(1).normal(size=(rows + 8, 2 * parties))
    y = (X[:, 0] > 0).astype(int)
    return colonnade.from_arrays(
        X[:rows], y[:rows], X_test=X[rows:], y_test=y[rows:], parties=parties, standardise=False
    )


DATA = data_of()


def plan_of(algorithm: Any, training: Training = TRAINING, **privacy: Any) -> Plan:
    bottom = BottomSettings("linear", embedding=2)
    return Plan(algorithm, training, PerturbationSettings(**privacy), bottom, TopSettings(), 0)


def noised(plan: Plan) -> tuple[Plan, Facts]:
    facts = facts_of(DATA, plan)
    return calibrated(plan, facts), facts


def run(plan: Plan, data: FederatedData = DATA) -> dict[str, Any]:
    outcome = colonnade.train(
        data, plan.algorithm, training=plan.training, privacy=plan.privacy, bottom=plan.bottom, top=plan.top, seed=1
    )
    assert outcome.finished
    return outcome.summary


# --- the noise --------------------------------------------------------------------------------------------------


def test_noise_on_slopes_by_hand() -> None:
    # 24 rows in batches of 8: every label is used once an epoch by each of 2 parties, 6 times with 2C/B = 0.25.
    plan, _ = noised(plan_of(Dpzv(clip=1.0, server_update="frozen"), labels_epsilon=2.0))
    mu = mu_of(2.0, 1e-5)
    assert plan.algorithm.noise == pytest.approx(math.sqrt(6) * 0.25 / mu)
    assert plan.algorithm.server_noise == 0
    # As many private updates, each with its own clip, and with nine tenths of μ², or half, or what is asked for.
    for update, asked, share in (("dp-sgd", 0.0, 0.9), ("private-zo", 0.0, 0.5), ("dp-sgd", 0.25, 0.25)):
        algorithm = Dpzv(clip=1.0, server_update=update, server_clip=0.5)
        plan, _ = noised(plan_of(algorithm, labels_epsilon=2.0, update_share=asked))
        assert plan.algorithm.noise == pytest.approx(math.sqrt(6 / (1 - share)) * 0.25 / mu)
        assert plan.algorithm.server_noise == pytest.approx(math.sqrt(6 / share) * 0.125 / mu)
    # The paper: 2C√T/(Dμ), T = 2 · 9.
    plan, _ = noised(plan_of(Dpzv(clip=1.0), labels_epsilon=2.0, formula="paper"))
    assert plan.algorithm.noise == pytest.approx(2 * math.sqrt(18) / (24 * mu))


def test_noise_on_embeddings_by_hand() -> None:
    mu = mu_of(2.0, 1e-5)
    # Three uploads of a row, and one more that no reply may come to; sensitivity 2C.
    plan, _ = noised(plan_of(Vafl(), columns_epsilon=2.0, clip=0.5, bottom_update="frozen"))
    assert plan.privacy.noise == pytest.approx(math.sqrt(4) / mu)
    # In lock step there is none more.
    plan, _ = noised(plan_of(Split(), columns_epsilon=2.0, clip=0.5, bottom_update="frozen"))
    assert plan.privacy.noise == pytest.approx(math.sqrt(3) / mu)
    # DP-SGD takes a tenth of μ², or what is asked for: 4 steps with 2 · 0.25/8.
    private = {"columns_epsilon": 2.0, "clip": 0.5, "bottom_update": "dp-sgd", "update_clip": 0.25}
    for asked, share in ((0.0, 0.1), (0.5, 0.5)):
        plan, _ = noised(plan_of(Vafl(), update_share=asked, **private))
        assert plan.privacy.noise == pytest.approx(math.sqrt(4 / (1 - share)) / mu)
        assert plan.privacy.update_noise == pytest.approx(math.sqrt(4 / share) * 0.0625 / mu)
    # 18 evaluations, one an exchange, outnumber uploads; test rows take no part in steps, which may have the rest.
    often = replace(TRAINING, evaluate_every_epochs=1 / 6)
    plan, _ = noised(plan_of(Vafl(), often, **private))
    assert plan.privacy.noise == pytest.approx(math.sqrt(18) / mu)
    training = math.sqrt(4) / plan.privacy.noise
    steps = math.sqrt(4) * 0.0625 / plan.privacy.update_noise
    assert math.hypot(training, steps) == pytest.approx(mu)
    # The paper: 2C · N_m√K/(μN), K = 9. The DPZV paper takes the same for its baselines.
    for algorithm in (Vafl(), Zoo(), Czofo()):
        plan, facts = noised(plan_of(algorithm, columns_epsilon=2.0, clip=0.5, formula="paper"))
        assert plan.privacy.noise == pytest.approx(8 * 3 / (24 * mu))
        of_columns = [one for one in planned_guarantees(plan, facts) if one.claimed is not None]
        assert of_columns and all(one.claimed == pytest.approx(2.0) for one in of_columns)
        by_samples = epsilon_of(math.sqrt(8) * mu, 1e-5)  # eight samples in an upload
        assert all(one.claimed_otherwise == pytest.approx(by_samples) for one in of_columns)


def test_a_noise_that_is_given_stays_and_the_target_is_a_budget() -> None:
    given = plan_of(Vafl(), columns_epsilon=2.0, clip=0.5, noise=9.0)
    assert noised(given)[0] == given
    given = plan_of(Dpzv(noise=3.0, server_update="private-zo", server_noise=1.0), labels_epsilon=2.0)
    assert noised(given)[0] == given


def test_calibrating_twice_changes_nothing() -> None:
    for update, share in (("frozen", 0.0), ("dp-sgd", 0.2)):
        private = {"labels_epsilon": 2.0, "columns_epsilon": 1.0, "clip": 1.0, "update_share": share}
        plan, facts = noised(plan_of(Dpzv(server_update=update), **private))
        assert calibrated(plan, facts) == plan


@pytest.mark.parametrize(
    ("algorithm", "privacy", "sentence"),
    [
        (Vafl(), {"labels_epsilon": 1.0}, r"exact gradients.*Choose cascaded or zoo or dpzv"),
        (ZooSync(), {"labels_epsilon": 1.0}, r"exact mean losses.*Choose cascaded or zoo or dpzv"),
        (Cascaded(), {"labels_epsilon": 1.0}, r"no noise on answers keeps it with server_update = 'first-order'"),
        (Cascaded(), {"labels_epsilon": 1.0, "formula": "paper"}, r"the paper of cascaded has no noise on answers"),
        (Czofo(), {"labels_epsilon": 1.0}, r"exact losses of single rows.*Choose cascaded or zoo or dpzv"),
        (Dpzv(clip=0.0, server_update="frozen"), {"labels_epsilon": 1.0}, r"without algorithm\.clip"),
        (Dpzv(), {"labels_epsilon": 1.0}, r"'auto', which updates the top model from raw labels"),
        (Dpzv(server_update="first-order"), {"labels_epsilon": 1.0}, "Choose private-zo, dp-sgd or frozen"),
        (Dpzv(server_update="dp-sgd"), {"labels_epsilon": 1.0, "formula": "paper"}, "that of dpzv has none"),
        (Dpzv(server_update="dp-sgd", noise=1.0), {"labels_epsilon": 1.0}, "both algorithm.noise and server_noise"),
        (Vafl(), {"columns_epsilon": 1.0, "clip": 1.0}, "Choose frozen or dp-sgd"),
        (Czofo(), {"columns_epsilon": 1.0, "clip": 1.0}, "updates bottom models from raw columns"),
        (Split(), {"columns_epsilon": 1.0, "clip": 1.0, "formula": "paper"}, "there is none for the columns of split"),
        (
            Vafl(),
            {"columns_epsilon": 1.0, "clip": 1.0, "formula": "paper", "bottom_update": "dp-sgd"},
            "none for a private update",
        ),
        (
            Vafl(),
            {"columns_epsilon": 1.0, "clip": 1.0, "noise": 1.0, "bottom_update": "dp-sgd"},
            r"both privacy\.noise and update_noise",
        ),
        (Dpzv(), {"bottom_update": "frozen"}, "move along random directions"),
        (Vafl(), {"formula": "paper"}, "there is none: give labels_epsilon"),
        (Centralised(), {"labels_epsilon": 1.0}, "would not be kept"),
        (Dpzv(server_update="frozen"), {"labels_epsilon": 1.0, "update_share": 0.5}, "no target with a private update"),
        (Dpzv(server_update="dp-sgd", noise=1.0, server_noise=1.0), {"update_share": 0.5}, "no target with a private"),
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused(algorithm: Any, privacy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        run(plan_of(algorithm, **privacy))


# --- plans and runs ---------------------------------------------------------------------------------------------

KEPT: dict[str, tuple[Any, dict[str, Any]]] = {
    "dpzv, dp-sgd": (Dpzv(clip=1.0, server_update="dp-sgd"), {"labels_epsilon": 30.0}),
    "dpzv, private-zo, both": (
        Dpzv(clip=1.0, server_update="private-zo", wait_for=2),
        {"labels_epsilon": 30.0, "columns_epsilon": 50.0, "clip": 1.0},
    ),
    "vafl, dp-sgd": (
        Vafl(in_flight=2, warm_up=True, max_delay=3),
        {"columns_epsilon": 20.0, "clip": 1.0, "bottom_update": "dp-sgd"},
    ),
    "split, frozen": (Split(), {"columns_epsilon": 8.0, "clip": 1.0, "bottom_update": "frozen"}),
    "czofo, frozen": (
        Czofo(directions=2),
        {"columns_epsilon": 8.0, "clip": 1.0, "bottom_update": "frozen"},
    ),
    "cascaded": (Cascaded(directions=2, two_sided=True), {"columns_epsilon": 8.0, "clip": 1.0}),
    "zoo-sync": (ZooSync(), {"columns_epsilon": 8.0, "clip": 1.0}),
    "zoo": (Zoo(), {"columns_epsilon": 8.0, "clip": 1.0}),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_target_is_kept_by_the_plan_and_by_its_run(name: str) -> None:
    algorithm, privacy = KEPT[name]
    given = plan_of(algorithm, **privacy)
    plan, facts = noised(given)
    targets = {"labels": privacy.get("labels_epsilon"), "columns": privacy.get("columns_epsilon")}
    planned = [figure for figure in planned_guarantees(plan, facts) if figure.adversary != EVERY_OTHER]
    for what, target in targets.items():
        own = [figure.sound for figure in planned if figure.direction.startswith(what)]
        if target is not None:
            assert max(own) == pytest.approx(target, rel=1e-6)  # no more noise than is needed, and no less
    told = run(given)["privacy"]
    assert told["figures"]
    for figure in told["figures"]:
        target = targets[figure["direction"].split()[0]]
        if target is None:
            assert figure["sound"] is None and "without noise" in figure["conditions"][0]
        else:
            assert 0 < figure["sound"] <= target * (1 + 1e-6)
            assert any("Enforced" in words for words in figure["conditions"])
    assert 0 < told["sound"] <= max(target for target in targets.values() if target) * (1 + 1e-6)
    assert json.loads(json.dumps(told)) == told


def test_a_plan_counts_every_upload_of_its_run() -> None:
    """Where everybody is equally fast, the plan is exact, but for the uploads that were under way at the end."""
    algorithm = Vafl(warm_up=True)
    plan = plan_of(algorithm, noise=5.0, clip=1.0, columns_epsilon=0.0)
    counted = release_plan(plan, facts_of(DATA, plan))
    events = {event["protects"]: event for event in run(plan)["privacy"]["events"] if event["party"] == "party1"}
    assert events["columns of party1, test rows"]["max_releases_per_row"] == counted.evaluations == 3
    most = events["columns of party1, training rows"]["max_releases_per_row"]
    assert most <= counted.uploads_of_a_row + 1 <= most + 1
    assert (
        release_plan(plan_of(Vafl(max_delay=2)), facts_of(DATA, plan)).refreshes == 4
    )  # one for the other's every use


def test_figures_of_a_papers_formula() -> None:
    """Claimed as asked for; sound √(D/B) times the μ, as docs/privacy.md says; a plain update makes it conditional."""
    given = plan_of(Dpzv(clip=1.0), labels_epsilon=1.0, formula="paper")
    plan, facts = noised(given)
    found = {figure.adversary: figure for figure in planned_guarantees(plan, facts)}
    together = found[TOGETHER]
    assert together.claimed == pytest.approx(1.0)
    assert together.sound == math.inf
    assert together.conditional == pytest.approx(epsilon_of(math.sqrt(24 / 8) * mu_of(1.0, 1e-5), 1e-5))
    assert any("privacy.formula = paper" in words for words in together.conditions)
    assert any("top model of label" in words for words in together.conditions)
    assert OUTSIDER in found
    frozen, _ = noised(plan_of(Dpzv(clip=1.0, server_update="frozen"), labels_epsilon=1.0, formula="paper"))
    worst = overall(planned_guarantees(frozen, facts))
    assert worst is not None and worst.sound == pytest.approx(together.conditional)
    told = run(given)["privacy"]
    assert (told["formula"], told["sound"], told["conditional"]) == ("paper", None, pytest.approx(together.conditional))
    assert told["claimed"] == pytest.approx(1.0)


def test_vafl_as_printed_is_conditional_for_training_rows_only() -> None:
    plan = plan_of(Vafl(), noise=4.0, clip=1.0)
    told = run(plan)["privacy"]["figures"]
    training = [one for one in told if one["direction"] == "columns of party1, training rows"]
    test = [one for one in told if one["direction"] == "columns of party1, test rows"]
    assert all(one["sound"] is None and one["conditional"] > 0 and one["claimed"] > 0 for one in training)
    assert all(one["sound"] > 0 and one["claimed"] is None for one in test)
    assert any("bottom model of party1" in words for words in training[0]["conditions"])


def test_without_a_clip_nothing_is_bounded() -> None:
    told = run(plan_of(Dpzv(), noise=4.0))["privacy"]
    assert told["sound"] is None
    assert any("has no clip" in words for words in told["conditions"])


def test_without_noise_everything_is_infinite_and_says_why() -> None:
    told = run(plan_of(Vafl()))["privacy"]
    assert (told["claimed"], told["sound"], told["events"]) == (None, None, [])
    assert told["conditions"] == ["No value was noised: nothing in this run is differentially private (ε = ∞)."]
    assert [(one["direction"], one["conditions"]) for one in told["figures"]] == [
        ("labels of label, training rows", ["No guarantee: gradients carry these data without noise."]),
        ("columns of party1", ["No guarantee: embeddings carry these data without noise."]),
        ("columns of party2", ["No guarantee: embeddings carry these data without noise."]),
    ]


@pytest.fixture(scope="module")
def lender() -> FederatedData:
    """The label party has a column of its own."""
    generator = np.random.default_rng(3)
    ids = np.arange(80)
    bank = pd.DataFrame({"id": ids, "a": generator.normal(size=80), "paid": generator.integers(0, 2, 80)})
    shop = pd.DataFrame({"id": ids, "b": generator.normal(size=80), "c": generator.normal(size=80)})
    return colonnade.from_frames({"bank": bank, "shop": shop}, label_party="bank", label="paid", id="id")


OWN_COLUMNS = "columns of bank"


@pytest.mark.parametrize(
    ("algorithm", "privacy", "words"),
    [
        (Vafl(), {"columns_epsilon": 8.0, "clip": 1.0, "bottom_update": "frozen"}, "gradients"),
        (ZooSync(), {"columns_epsilon": 8.0, "clip": 1.0}, "mean losses"),
        (Dpzv(), {}, "slopes"),
    ],
)
def test_exact_answers_carry_the_label_partys_own_columns(
    lender: FederatedData, algorithm: Any, privacy: dict[str, Any], words: str
) -> None:
    outcome = colonnade.train(
        lender, algorithm, training=DecidedTraining(epochs=1, batch_size=16), privacy=PerturbationSettings(**privacy)
    )
    told = outcome.summary["privacy"]
    (own,) = [figure for figure in told["figures"] if figure["direction"] == OWN_COLUMNS]
    assert own["sound"] is None and own["adversary"] == EVERY_OTHER
    assert own["conditions"] == [f"No guarantee: {words} carry these data without noise."]
    assert told["unprotected"][:2] == ["labels of bank, training rows", OWN_COLUMNS]
    line = in_one_line(told)
    if privacy:
        assert line.startswith(f"ε = {told['sound']:.4g} for columns of shop, t")
        assert line.endswith("; not protected (ε = ∞): labels of bank, training rows, columns of bank")


def test_noised_answers_protect_the_label_partys_own_columns_with_the_label(lender: FederatedData) -> None:
    outcome = colonnade.train(
        lender,
        Dpzv(server_update="dp-sgd", clip=1.0),
        training=DecidedTraining(epochs=1, batch_size=16),
        privacy=PerturbationSettings(labels_epsilon=4.0),
    )
    told = outcome.summary["privacy"]
    assert OWN_COLUMNS not in [figure["direction"] for figure in told["figures"]]
    assert told["unprotected"] == ["columns of shop"]
    assert any("own columns" in words for words in told["conditions"])


def test_linear_federations_send_exact_sums() -> None:
    told = colonnade.train(DATA, "afsgd", training=DecidedTraining(epochs=1, batch_size=8)).summary["privacy"]
    assert [one["conditions"][0] for one in told["figures"]][:2] == [
        "No guarantee: residuals carry these data without noise.",
        "No guarantee: exact sums of products carry these data without noise.",
    ]


def test_one_who_trains_alone_sends_nothing() -> None:
    plan = plan_of(Centralised())
    facts = facts_of(DATA, plan)
    assert planned_guarantees(plan, facts) == guarantees(plan, facts, []) == []
    assert "Nothing was sent" in privacy_summary(plan, [], [])["conditions"][0]


def test_curves_grow_with_the_epochs() -> None:
    plan, facts = noised(plan_of(Dpzv(clip=1.0, server_update="frozen"), labels_epsilon=1.0, formula="paper"))
    (curve,) = epsilon_curves(plan, facts, [1, 3, 9])
    assert curve.claimed[1] == pytest.approx(1.0) and not curve.conditional
    assert curve.sound[0] < curve.sound[1] < curve.sound[2]
    assert all(
        claimed is not None and claimed < sound for claimed, sound in zip(curve.claimed, curve.sound, strict=True)
    )
