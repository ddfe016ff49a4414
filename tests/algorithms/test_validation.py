"""Validation rows: what is scored is what is kept, bit for bit; the best is used, test rows are looked at once."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade import Dpzv, PerturbationSettings, Simulate, SimulatedParty, Training, Vafl
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.parts.best import BestScore
from colonnade.algorithms.parts.losses import headline, metrics
from colonnade.algorithms.parts.versions import MOST_UNJUDGED, NO_COPY, Versions
from colonnade.costs.guarantees import planned_guarantees
from colonnade.costs.noise import planned_releases
from colonnade.costs.traffic import expected_traffic
from colonnade.errors import DataError, ProtocolError, SettingsError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Plan, decided_training
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.messages import GoBack, Keep, ValidationEmbedding, ValidationRequest, WentBack
from colonnade.party import Received, Send
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.wire.codec import decode, encode

DATA = tiny_data().with_validation(0.25)
# A rate at which the score goes up and down, so that the best evaluation is seldom the last.
TRAINING = Training(epochs=6, batch_size=6, learning_rate=3.0, optimiser="sgd", metric="log_loss")
ONE_PER_SCHEDULE = ("vafl", "split", "zoo", "afsgd", "fsaga", "fcg", "centralised")


def plan(name: str, **changes: Any) -> TinyFederation:
    row = ALGORITHMS[name]
    training = replace(TRAINING, learning_rate="auto", optimiser="auto") if row.brings_models else TRAINING
    return TinyFederation(DATA, row.settings(), **{"training": training, **changes})


def run(one: TinyFederation, **how: Any) -> Outcome:
    with TemporaryDirectory() as folder:
        return one.run(Path(folder) / "run", **how)


@cache
def trained(name: str) -> Outcome:
    return run(plan(name))


def validations(outcome: Outcome) -> list[dict[str, float]]:
    return [line["validation"] for line in outcome.metrics if "validation" in line]


def scores(outcome: Outcome, part: str) -> dict[str, float]:
    """Of the models that came out, computed apart."""
    columns = {name: getattr(own, part) for name, own in DATA.columns.items()}
    return metrics("binary", outcome.outputs(columns), getattr(DATA.labels, part))


# --- what is kept is what was scored ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_PER_SCHEDULE)
def test_the_best_model_that_was_scored_is_used_and_test_rows_are_looked_at_once(name: str) -> None:
    outcome = trained(name)
    found = validations(outcome)
    best = min(found, key=lambda one: one["log_loss"])
    assert len(found) == 6 and outcome.summary["validation"] == best
    assert outcome.summary["kept"]["model"] == "best"
    exactly = 1e-6 if ALGORITHMS[name].linear_party else 0.0  # their models are handed out in float32
    assert scores(outcome, "validation")["log_loss"] == pytest.approx(best["log_loss"], rel=exactly, abs=0)
    tested = [line["metric"] for line in outcome.metrics if line["metric"]]
    assert tested == [outcome.summary["test"]] and outcome.metrics[-1]["metric"]
    assert scores(outcome, "test")["log_loss"] == pytest.approx(tested[0]["log_loss"], rel=exactly, abs=0)
    assert outcome.summary["headline"] == "log_loss" and outcome.summary["data"]["validation_rows"] == 6


def test_that_differs_from_the_last_model_somewhere() -> None:
    went_back = [
        name for name in ONE_PER_SCHEDULE if validations(trained(name))[-1] != trained(name).summary["validation"]
    ]
    assert {"vafl", "split", "zoo"} & {*went_back}, "the rate is too small for this test to see anything"


@pytest.mark.parametrize("name", ["vafl", "split", "afsgd", "centralised"])
def test_the_last_model_if_asked_for(name: str) -> None:
    given = plan(name)
    last = run(given.training_with(keep="last"))
    assert last.summary["kept"]["model"] == "last"
    assert validations(last) == validations(trained(name))  # nothing that is learnt depends on what is kept
    assert scores(last, "validation")["log_loss"] == pytest.approx(validations(last)[-1]["log_loss"], rel=1e-6)
    frames = last.summary["frames_by_message"]
    assert "Keep" not in frames and "GoBack" not in frames


def test_validation_rows_do_not_change_what_is_learnt_from_the_others() -> None:
    """Without them, on the same rows, the same losses."""
    labels = replace(DATA.labels, validation=None)
    bare = replace(DATA, labels=labels, columns={n: replace(one, validation=None) for n, one in DATA.columns.items()})
    without = run(replace(plan("vafl"), data=bare))
    assert [line["loss"] for line in without.metrics if line["loss"]] == [
        line["loss"] for line in trained("vafl").metrics if line["loss"]
    ]
    assert without.summary["frames_by_message"].keys() & {"ValidationRequest", "Keep", "GoBack"} == set()
    assert "validation" not in without.summary


@pytest.mark.parametrize("name", ["vafl", "split", "afsgd", "fsaga", "centralised"])
def test_a_training_that_gets_no_better_stops(name: str) -> None:
    given = plan(name).training_with(epochs=40, early_stopping=2)
    outcome = run(given)
    found = [one["log_loss"] for one in validations(outcome)]
    best = found.index(min(found))
    # In a linear federation, and with several parties, one more evaluation may follow the one that ended it.
    assert outcome.summary["epochs"] < 39 and best + 2 < len(found) <= best + 4
    assert scores(outcome, "validation")["log_loss"] == pytest.approx(min(found), rel=1e-6)


# --- under any schedule -----------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(["vafl", "split", "afsgd", "fsaga"]),
    seed=st.integers(0, 1000),
    latency=st.sampled_from([0.0, 0.003, 0.05]),
    reorder=st.booleans(),
    slow=st.sampled_from([1.0, 7.0]),
)
@example(name="vafl", seed=136, latency=0.003, reorder=False, slow=7.0)  # party1 was still going back when one was due
def test_whatever_the_schedule_what_was_scored_is_what_is_used(
    name: str, seed: int, latency: float, reorder: bool, slow: float
) -> None:
    world = Simulate(
        latency_seconds={"distribution": "exponential", "mean": latency} if latency else 0.0,
        reorder=reorder,
        parties={"party1": SimulatedParty(slowdown=slow)},
    )
    outcome = run(replace(plan(name), simulate=world, seed=seed).training_with(evaluate_every_epochs=0.5))
    best = outcome.summary["validation"]["log_loss"]
    assert best == min(one["log_loss"] for one in validations(outcome))
    assert scores(outcome, "validation")["log_loss"] == pytest.approx(best, rel=1e-6)


def test_a_party_that_is_away_when_the_best_is_scored_keeps_its_last_model() -> None:
    away = Simulate(parties={"party1": SimulatedParty(crashes=((0.0, 1e9),))})
    outcome = run(replace(plan("vafl"), simulate=away))
    assert outcome.finished and outcome.summary["kept"]["model"] == "best"
    others = run(replace(plan("vafl"), simulate=Simulate(parties={"party1": SimulatedParty(crashes=((0.03, 0.2),))})))
    assert others.finished


@pytest.mark.parametrize("name", ["vafl", "split"])
def test_who_has_no_copy_of_that_version_says_so_in_a_message_that_is_taken(name: str) -> None:
    (answer,) = plan(name).parties()["party1"].handle(Received(1.0, "label", GoBack(1, 7, 0, 0.0)))
    assert isinstance(answer, Send) and isinstance(answer.message, WentBack) and answer.message.version == NO_COPY
    assert decode(encode(answer.message)).version == NO_COPY  # type: ignore[attr-defined]


def test_every_runtime_uses_the_best_model(tmp_path: Path) -> None:
    """A synchronous training has the same bits in processes of their own; an asynchronous one another order.

    Plain sums are added as their parts arrive: a linear one has the same bits but for the last.
    """
    for name in ("split", "fsaga"):
        given = plan(name)
        bottom, top = given.models()
        there = train(
            given.data,
            given.algorithm,
            training=given.training,
            bottom=bottom,
            top=top,
            runtime="processes",
            out=tmp_path / name,
        )
        if name == "split":
            assert_same_bits(weights(there.models), weights(trained(name).models))
        else:
            torch.testing.assert_close(weights(there.models), weights(trained(name).models), rtol=1e-12, atol=1e-14)
        assert there.summary["kept"] == trained(name).summary["kept"]
        assert there.summary["test"] == pytest.approx(trained(name).summary["test"])


# --- privacy and costs ------------------------------------------------------------------------------------------


NOISE = PerturbationSettings(noise=0.5, clip=1.0)


def test_noised_embeddings_of_validation_rows_are_spent_and_forecast() -> None:
    given = plan("vafl", privacy=NOISE)
    outcome = run(given)
    by_rows = {event["protects"]: event for event in outcome.summary["privacy"]["events"] if event["party"] == "party1"}
    assert by_rows["columns of party1, validation rows"]["max_releases_per_row"] == 6
    assert by_rows["columns of party1, test rows"]["max_releases_per_row"] == 1
    decided = decided_training(given.training, given.algorithm, DATA.rows, 3)
    planned = Plan(given.algorithm, decided, NOISE, given.bottom, given.top, 0)
    facts = facts_of(DATA, planned)
    counted = {one.protects: one.times for one in planned_releases(planned, facts)}
    assert counted["columns of party1, validation rows"] == 6 and counted["columns of party1, test rows"] == 1
    directions = {one.direction for one in planned_guarantees(planned, facts)}
    assert any("validation rows" in direction for direction in directions)


@pytest.mark.parametrize("name", ["vafl", "split", "fsaga"])
def test_the_forecast_of_traffic_counts_them(name: str) -> None:
    given = plan(name)
    bottom, top = given.models()
    decided = decided_training(given.training, given.algorithm, DATA.rows, 3)
    planned = Plan(given.algorithm, decided, PerturbationSettings(), bottom, top, 0)
    expected: dict[str, int] = {}
    for one in expected_traffic(planned, facts_of(DATA, planned)):
        expected[one.kind.__name__] = expected.get(one.kind.__name__, 0) + one.frames
    sent = trained(name).summary["frames_by_message"]
    for kind in ("ValidationRequest", "ValidationEmbedding", "EvaluationRequest", "EvaluationProductRequest", "Keep"):
        assert expected.get(kind, 0) == sent.get(kind, 0), kind


def test_where_labels_are_protected_nothing_follows_from_them() -> None:
    private = Dpzv(noise=0.5, clip=1.0, server_update="frozen")
    given = TinyFederation(DATA, private, training=replace(TRAINING, learning_rate="auto", optimiser="auto"))
    for choice in ({"keep": "best"}, {"early_stopping": 3}):
        with pytest.raises(SettingsError, match="labels, which noise protects"):
            run(given.training_with(**choice))
    outcome = run(given)
    assert validations(outcome) and outcome.summary["kept"]["model"] == "last"
    assert "Keep" not in outcome.summary["frames_by_message"]


def test_dpzv_holds_no_second_copy_unless_asked_to() -> None:
    given = TinyFederation(DATA, Dpzv(), training=replace(TRAINING, learning_rate="auto", optimiser="auto"))
    assert run(given).summary["kept"]["model"] == "last"
    asked = run(given.training_with(keep="best"))
    assert asked.summary["kept"]["model"] == "best"
    assert scores(asked, "validation")["log_loss"] == asked.summary["validation"]["log_loss"]


def test_a_choice_needs_validation_rows() -> None:
    bare = TinyFederation(tiny_data(), Vafl())
    for choice in ({"keep": "best"}, {"early_stopping": 3}):
        with pytest.raises(SettingsError, match=r"data\.validation"):
            run(bare.training_with(**choice))
    with pytest.raises(SettingsError, match="no metric of a binary task"):
        run(bare.training_with(metric="rmse"))


# --- peers that lie ---------------------------------------------------------------------------------------------


def refused(name: str, at: str, message: Any, sender: str, match: str) -> None:
    party = plan(name).parties()[at]
    before = party.state()
    with pytest.raises(ProtocolError, match=match):
        party.handle(Received(1.0, sender, message))
    after = party.state()
    assert after.values == before.values
    assert all(torch.equal(tensor, after.tensors[key]) for key, tensor in before.tensors.items())


@pytest.mark.parametrize("name", ["vafl", "split"])
def test_what_a_label_party_cannot_honestly_say_is_refused(name: str) -> None:
    def feature(message: Any, match: str, sender: str = "label") -> None:
        refused(name, "party1", message, sender, match)

    feature(Keep(2, 1), "impossible")
    feature(Keep(1, 1), "only the label party may", sender="party2")
    feature(ValidationRequest(0, 0), "count from 1")
    feature(GoBack(1, 1, 0, 2.0), "steps of 2")
    feature(GoBack(1, -1, 0, 0.0), "version -1")
    refused(name, "label", WentBack(1, 1, 0), "party1", r"nobody asked for|unasked")
    refused(name, "label", ValidationEmbedding(1, 0, torch.zeros(6, 2).numpy()), "party1", "0 were made")
    refused(name, "label", ValidationEmbedding(1, 0, torch.zeros(9, 2).numpy()), "party1", "not asked for")


def test_what_a_peer_of_a_linear_federation_cannot_honestly_say_is_refused() -> None:
    refused("afsgd", "party1", Keep(1, 1), "party2", "the label party's to send")
    refused("afsgd", "party1", GoBack(1, 1, 0, 0.0), "party2", "the label party's to send")


# --- parts ------------------------------------------------------------------------------------------------------


def test_a_later_copy_takes_the_place_of_those_that_were_judged() -> None:
    def copy(number: int) -> dict[str, torch.Tensor]:
        return {"w": torch.tensor([float(number)])}

    versions = Versions()
    versions.offer(1, copy(1))
    versions.judge("label", Keep(1, 1))
    for number in range(2, 6):  # no verdict comes
        versions.offer(number, copy(number))
    held = [number for number in range(6) if versions.take(number) is not None]
    assert held == [1, 4, 5] and len(held) == 1 + MOST_UNJUDGED
    versions.offer(3, copy(3))  # overtaken
    assert versions.take(3) is None
    again = Versions()
    again.restore(versions.state())
    assert again.take(5) == copy(5) and again.newest == 5
    versions.judge("label", Keep(4, 4))
    assert [number for number in range(6) if versions.take(number) is not None] == [4, 5]


def test_a_score_that_is_missing_or_no_number_is_never_the_best() -> None:
    best = BestScore("rmse", patience=1)
    assert not best.judge(1, 1.0, {}) and not best.judge(2, 2.0, {"rmse": float("nan")})
    assert best.judge(3, 3.0, {"rmse": 2.0}) and best.judge(4, 4.0, {"rmse": 1.0}) and best.version == 4
    assert headline("multiclass") == "accuracy" and headline("regression") == "rmse"
    lost = BestScore("accuracy")
    assert not lost.judge(1, 1.0, {"accuracy": 0.9, "log_loss": float("nan")})


def test_of_equal_scores_the_smaller_log_loss_is_the_better() -> None:
    """As of a rare class, whose rows are the last to be right: the model learns, though nothing more is right."""
    best = BestScore("accuracy", patience=2)
    losses = [0.5, 0.3, 0.2, 0.25, 0.2]
    found = [best.judge(number, number, {"accuracy": 0.98, "log_loss": loss}) for number, loss in enumerate(losses, 1)]
    assert found == [True, True, True, False, False] and best.version == 3 and best.is_over
    assert best.judge(6, 6.0, {"accuracy": 0.99, "log_loss": 0.9})


@pytest.mark.parametrize("name", ["vafl", "split", "afsgd", "centralised"])
def test_validation_rows_of_one_class_cannot_choose(name: str) -> None:
    rows = DATA.labels.validation
    assert rows is not None
    data = replace(DATA, labels=replace(DATA.labels, validation=torch.zeros_like(rows)))
    one = replace(plan(name), data=data)
    with pytest.raises(DataError, match=f"All {len(rows)} validation rows are of one class"):
        one.parties()
    replace(one, training=replace(one.training, keep="last")).parties()  # they are scored, and choose nothing


def test_a_metric_that_validation_rows_of_too_few_classes_do_not_have_is_replaced() -> None:
    best = BestScore("auc", patience=2)
    assert best.judge(1, 1.0, {"log_loss": 0.5}) and best.judge(2, 2.0, {"log_loss": 0.4})
    assert not best.judge(3, 3.0, {"log_loss": 0.6}) and not best.is_over
    assert best.counts("best")["kept"] == {"model": "best", "best_epoch": 2.0, "by": "log_loss"}


def test_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = torch.Generator().manual_seed(0)
    outputs, labels = torch.randn(40, 1, generator=generator), torch.randint(2, (40,), generator=generator)
    expected = f1_score(labels.numpy(), outputs[:, 0].numpy() > 0)
    assert metrics("binary", outputs, labels)["f1"] == pytest.approx(expected)
    outputs, labels = torch.randn(40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
    expected = f1_score(labels.numpy(), outputs.argmax(1).numpy(), average="macro")
    assert metrics("multiclass", outputs, labels)["f1"] == pytest.approx(expected)
