"""What a training with a precision is going to send, against what it sent; and the sentences about it."""

from typing import Any

import pytest

import colonnade
from colonnade import Cascaded, Dpzv, Split, Training, Vafl, algorithms
from colonnade.costs.traffic import expected_traffic
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Plan, decided_training
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings

# 112 training rows in batches of 15: seven whole ones and one of 7 an epoch.
DATA = colonnade.dataset("iris", parties=2)
INT8 = Training(epochs=1, batch_size=15, precision="int8")
HALVES_UP = Training(epochs=1, batch_size=15, precision_up="float16")


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [(Split(), INT8), (Split(), HALVES_UP), (Vafl(warm_up=True), INT8), (Dpzv(directions=2), INT8), (Cascaded(), INT8)],
    ids=["split", "split, up", "vafl", "dpzv", "cascaded"],
)
def test_the_forecast_is_what_is_sent(algorithm: Any, training: Training) -> None:
    given = PerturbationSettings(), BottomSettings(), TopSettings(), 0
    plan = Plan(algorithm, decided_training(training, algorithm, DATA.rows, 2), *given)
    told: dict[str, int] = {}
    for one in expected_traffic(plan, facts_of(DATA, plan)):
        told[one.kind.__name__] = told.get(one.kind.__name__, 0) + one.size_bytes
    sent = colonnade.train(DATA, algorithm, training=training).summary["bytes_by_message"]
    upload = algorithms.find(algorithms.name_of(algorithm)).conversation
    assert upload is not None
    for kind in (upload.upload.__name__, "WarmUpUpload"):
        # A number in a header may take another byte, which the padding makes eight.
        assert told.get(kind, 0) == pytest.approx(sent.get(kind, 0), abs=8 * 18)
    assert told.keys() == sent.keys() or algorithm == Dpzv(directions=2)


def test_the_sentences_name_the_form() -> None:
    told = [one["sentence"] for one in colonnade.train(DATA, Vafl(), training=INT8, seed=2).summary["learnt"]]
    assert "label saw 127 int8 16-number embeddings of 112 training rows of party1." in told
    assert "label saw 38 exact 16-number embeddings of 38 test rows of party1." in told
    assert "party1 saw 112 int8 16-number gradients that tell of label's labels." in told
