"""A training that does not descend goes back to a good model and takes shorter steps; a private one never does."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import colonnade
from colonnade import PerturbationSettings, Simulate, SimulatedParty, Training
from colonnade.algorithms.parts.divergence import CUTS, DivergedError, DivergenceWatch, Healing, worst_scores
from colonnade.algorithms.parts.optimiser import Optimiser, OptimiserSettings
from colonnade.algorithms.split_models.parts.validation import Recall
from colonnade.costs.noise import planned_releases
from colonnade.errors import ProtocolError, RunError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Plan, decided_training
from colonnade.launch.outcome import Outcome
from colonnade.messages import GoBack, GoOn, WentBack
from colonnade.party import Received
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights

LABELS = torch.tensor([0, 1] * 10)
PLAIN_STEP = {"step": "fixed", "decay": 0.0, "precondition": "none"}
LINEAR = {
    "afsgd": ("afsgd", PLAIN_STEP),
    "fsgd": ("fsgd", PLAIN_STEP),
    "everybody": ("afsgd", {**PLAIN_STEP, "updates": "everybody", "in_flight": 3}),
}


def chosen(name: str) -> Any:
    algorithm, own = LINEAR.get(name, (name, {}))
    return colonnade.algorithms.find(algorithm).settings(**own)


@cache
def data(task: str) -> Any:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 8))
    score = X @ random.normal(size=8)
    y = score if task == "regression" else (score > 0).astype(int)
    return colonnade.from_arrays(X, y, parties=2, task=task)


@cache
def healed(algorithm: str) -> Outcome:
    """With a rate a hundred times that at which it learns well."""
    linear = algorithm in LINEAR
    training = Training(epochs=12, batch_size=16, learning_rate=5.0 if linear else 50.0, optimiser="sgd")
    return colonnade.train(data("regression" if linear else "binary"), chosen(algorithm), training=training)


@pytest.mark.parametrize("algorithm", ["vafl", "split", "centralised", *LINEAR])
def test_a_rate_a_hundred_times_too_large_is_found_out_and_the_training_learns(algorithm: str) -> None:
    summary = healed(algorithm).summary
    cuts = summary["step_cuts"]
    assert 1 <= len(cuts) <= len(CUTS) and cuts == sorted(cuts)
    assert cuts[0] < 1.0, "the first sign is there within the first epoch"
    metric = summary["test"].get("accuracy", summary["test"].get("r2", 0.0))
    assert metric > 0.9 and summary["status"] == "finished"
    if algorithm != "centralised":
        frames = summary["frames_by_message"]
        assert frames["GoBack"] == frames["WentBack"] == 2 * len(cuts)
    notes = [line["note"] for line in healed(algorithm).metrics if "note" in line]
    assert sum("did not descend" in note for note in notes) == len(cuts)


def test_one_that_descends_is_left_alone() -> None:
    outcome = colonnade.train(data("binary"), "vafl", training=Training(epochs=3, heal=True))
    plain = colonnade.train(data("binary"), "vafl", training=Training(epochs=3, heal=False))
    assert_same_bits(weights(outcome.models), weights(plain.models))
    assert "step_cuts" not in outcome.summary and "GoBack" not in outcome.summary["frames_by_message"]


@settings(max_examples=8, deadline=None)
@given(
    algorithm=st.sampled_from(["vafl", "split", *LINEAR]),
    latency=st.sampled_from([0.001, 0.05]),
    reorder=st.booleans(),
    crash=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_ends_well_whatever_the_schedule(
    algorithm: str, latency: float, reorder: bool, crash: bool, seed: int
) -> None:
    linear = algorithm in LINEAR
    world = Simulate(
        latency_seconds={"distribution": "exponential", "mean": latency},
        reorder=reorder,
        parties={"party1": SimulatedParty(slowdown=3.0, crashes=((0.05, 0.4),) if crash else ())},
    )
    training = Training(epochs=20, batch_size=8, learning_rate=50.0 if linear else 300.0, optimiser="sgd")
    task = "regression" if linear else "binary"
    plan = TinyFederation(tiny_data(task), chosen(algorithm), training, simulate=world, seed=seed)
    with TemporaryDirectory() as folder:
        try:
            outcome = plan.run(Path(folder) / "run")
        except RunError as error:
            said = str(error)
            assert "begun again" in said or "honest" in said or "learnt nothing" in said  # and what was tried
            return
        assert outcome.finished
        assert np.isfinite(outcome.summary["train_loss"])


# --- private trainings ------------------------------------------------------------------------------------------


def test_a_private_training_is_never_begun_again_and_spends_as_planned() -> None:
    private = PerturbationSettings(noise=0.5, clip=1.0)
    training = Training(epochs=2, batch_size=8, learning_rate=300.0, optimiser="sgd", heal=True)
    plan = TinyFederation(tiny_data(), colonnade.Vafl(), training, privacy=private)
    with TemporaryDirectory() as folder:
        summary = plan.run(Path(folder) / "run").summary
    assert "step_cuts" not in summary and "GoBack" not in summary["frames_by_message"]
    decided = decided_training(training, plan.algorithm, plan.data.rows, 3)
    agreed = Plan(plan.algorithm, decided, private, plan.bottom, plan.top, 0)
    planned = {one.protects: one.times for one in planned_releases(agreed, facts_of(plan.data, agreed))}
    for event in summary["privacy"]["events"]:
        assert event["max_releases_per_row"] <= planned[event["protects"]]


# --- messages ---------------------------------------------------------------------------------------------------


def label_and_party(heal: bool = True) -> tuple[Any, Any]:
    training = Training(epochs=2, batch_size=8, learning_rate=0.1, heal=heal)
    parties = TinyFederation(tiny_data(), colonnade.Vafl(), training).parties()
    return parties["label"], parties["party1"]


def test_a_party_goes_back_to_its_first_weights_with_shorter_steps() -> None:
    _, party = label_and_party()
    first = {name: tensor.clone() for name, tensor in party.model()["bottom"].state_dict().items()}
    party._bottom.network.load({name: tensor + 1 for name, tensor in party._bottom.network.state().items()})
    effects = party.handle(Received(1.0, "label", GoBack(1, 0, 7, 0.125)))
    assert_same_bits(dict(party.model()["bottom"].state_dict()), first)
    assert isinstance(effects[0].message, WentBack) and effects[0].message.version == 0
    assert type(effects[1].message).__name__ == "EmbeddingUpload"  # it begins anew
    assert party.counts()["steps"] == 7 and party._bottom._optimiser._rate() == pytest.approx(0.0125)
    assert party.handle(Received(1.0, "label", GoBack(1, 0, 7, 0.125))) == []  # once
    again = label_and_party()[1]
    again.restore(party.state())
    assert again._bottom._optimiser._rate() == pytest.approx(0.0125)


@pytest.mark.parametrize(
    "message", [GoBack(0, 0, 0, 0.5), GoBack(1, -1, 0, 0.5), GoBack(1, 0, 0, 1.5), GoBack(1, 0, 0, -1.0)]
)
def test_what_cannot_be_asked_for_is_refused(message: GoBack) -> None:
    _, party = label_and_party()
    with pytest.raises(ProtocolError, match=r"cannot be|is impossible"):
        party.handle(Received(1.0, "label", message))
    linear = TinyFederation(tiny_data(), colonnade.Afsgd(updates="one")).parties()["party1"]
    with pytest.raises(ProtocolError, match="the label party's"):
        linear.handle(Received(1.0, "party2", GoOn(1)))
    with pytest.raises(ProtocolError):
        label_and_party(heal=False)[1].handle(Received(1.0, "label", message))


def test_uploads_of_models_that_are_gone_are_recognised() -> None:
    class Top:
        def go_back(self, copy: Any) -> None:
            self.copy = copy

    recall, top = Recall(("a", "b")), Top()
    recall.versions.offer(0, {"w": torch.zeros(1)})
    sent = recall.call(0, top, ["a"], {"a": 3, "b": 5}, 0.5)
    assert [(one.to, one.message.replies) for one in sent] == [("a", 3), ("b", 5)]
    assert recall.is_behind("a") and recall.is_behind("b") and recall.waits
    assert recall.went_back("a", WentBack(1, 0, 4)) and not recall.waits
    assert recall.is_void("a", 3) and not recall.is_void("a", 4) and recall.is_behind("b")
    with pytest.raises(ProtocolError, match="nobody asked for"):
        recall.went_back("a", WentBack(2, 0, 4))
    assert not recall.went_back("b", WentBack(1, 0, 9)) and recall.is_void("b", 8)


# --- parts ------------------------------------------------------------------------------------------------------


def watched(losses: list[float], per_epoch: int = 64) -> None:
    watch = DivergenceWatch("binary", LABELS, closely=True)
    for number, loss in enumerate(losses):
        watch.add(loss, (1 + number) / per_epoch)


def test_what_does_not_descend_is_seen_within_an_epoch() -> None:
    with pytest.raises(DivergedError, match="its loss is 60"):
        watched([0.7, *[30.0] * 8, *[60.0] * 8])  # two windows far above, and rising
    with pytest.raises(DivergedError):
        watched([0.7] + [2.0] * 64)  # a whole epoch above, and not falling
    with pytest.raises(DivergedError):
        watched([0.7, 1e6])


@pytest.mark.parametrize(
    "losses",
    [
        [0.7, *[30.0] * 8, *[20.0] * 8, *[15.0] * 8],  # high, and falling
        [50.0, *[60.0] * 64],  # where it began
        [0.7] + [1.3] * 128,  # noise may keep it there
        [0.7] * 7 + [90.0] + [0.7] * 60,  # an outlier
    ],
)
def test_what_is_slow_or_noisy_is_left_alone(losses: list[float]) -> None:
    watched(losses)


def test_a_step_is_cut_so_often_and_then_the_run_fails_in_words() -> None:
    healing, error = Healing(heals=True), DivergedError("The training has diverged.")
    assert [healing.cut(number / 4, error) for number in range(4)] == list(CUTS)
    again = Healing(heals=True)
    again.restore(healing.state())
    assert again.scale == CUTS[-1] and again.counts() == {"step_cuts": [0.0, 0.25, 0.5, 0.75]}
    with pytest.raises(RunError, match=r"begun again 4 times.*another algorithm"):
        again.cut(1.0, error)
    with pytest.raises(DivergedError):
        Healing(heals=False).cut(1.0, error)
    with pytest.raises(DivergedError):
        Healing(heals=True).cut(1.0, error, ending=True)
    assert worst_scores("binary", LABELS)["log_loss"] == pytest.approx(10 * np.log(2))


def test_an_optimiser_begins_anew() -> None:
    weight = torch.tensor([1.0])
    one = Optimiser([weight], OptimiserSettings("adam", learning_rate=0.1))
    one.step([torch.tensor([1.0])])
    one.restart(0.5)
    other = Optimiser([weight], OptimiserSettings("adam", learning_rate=0.1))
    assert "scale" not in other.state()
    other.load(one.state())
    assert other._rate() == 0.05 and float(other.state()["moment1.0"]) == 0.0


def test_a_slow_party_may_be_asked_again_before_it_answers() -> None:
    """Each of its answers voids what it had uploaded by then, also one that a later request has overtaken."""
    recall = Recall(["party1"])
    recall._number, recall._behind, recall._awaited = 3, ["party1"], ["party1"]  # asked three times
    for number in (1, 2):
        assert not recall.went_back("party1", WentBack(number, 0, 4 + number))
        assert recall.is_void("party1", 3 + number) and not recall.is_void("party1", 4 + number)
        assert recall.is_behind("party1")
    assert recall.went_back("party1", WentBack(3, 0, 7))
    assert not recall.is_behind("party1") and recall.is_void("party1", 6)
    assert not recall.went_back("party1", WentBack(1, 0, 5))  # overtaken on its way
    assert recall.is_void("party1", 6)
