"""Every algorithm trains on rows that some parties lack, predicts without any of them, and resumes to the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import (
    BottomSettings,
    Cascaded,
    Dpzv,
    PerturbationSettings,
    TopSettings,
    Training,
    Vafl,
    from_arrays,
    train,
)
from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.algorithms.row import Family
from colonnade.data.federated import FederatedData
from colonnade.messages import EmbeddingUpload
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.testing.tiny_federation import lacking
from colonnade.trace import read_trace
from colonnade.wire.codec import decode

LINEAR: dict[str, Any] = {"bottom": BottomSettings("linear"), "top": TopSettings("sum")}
MODELS = {"zoo": LINEAR, "zoo-sync": LINEAR, "dpzv": LINEAR}  # as in test_algorithm_contracts.py


@pytest.fixture(scope="module")
def data() -> FederatedData:
    """Of three parties each knows two columns in three, so that a row can be told by what is left of it."""
    draws = np.random.default_rng(2)
    score = draws.normal(size=240)
    X = np.sign(score)[:, None] * 1.5 + draws.normal(size=(240, 6))
    return lacking(from_arrays(X, (score > 0).astype(int), parties=3))


@pytest.mark.parametrize("row", ALGORITHMS.values(), ids=list(ALGORITHMS))
def test_it_learns_and_predicts_with_rows_that_some_lack(row: Algorithm, data: FederatedData) -> None:
    training = Training(epochs=10, evaluate_every_epochs=0)
    outcome = train(data, row.name, training=training, **MODELS.get(row.name, {}))
    assert outcome.summary["test"]["accuracy"] > 0.85
    rows = {name: held.test for name, held in data.columns.items()}
    said = outcome.predict(rows)
    assert (said == data.labels.test.numpy()).mean() == pytest.approx(outcome.summary["test"]["accuracy"], abs=0.02)
    for gone in data.feature_parties:
        left = {name: held for name, held in rows.items() if name != gone}
        assert (outcome.predict(left) == data.labels.test.numpy()).mean() > 0.75
        if row.family is not Family.ALONE:
            stand_in = outcome.model.parties[gone].stand_in()
            absent = outcome.model.parties[gone].embed(rows[gone][rows[gone][:, -1] == 1])
            assert stand_in is not None and torch.allclose(absent, stand_in.expand_as(absent), atol=1e-6)


@pytest.mark.parametrize("algorithm", [Vafl(in_flight=2), Vafl(max_delay=2), Cascaded(), Dpzv()], ids=str)
def test_what_was_dropped_is_dropped_again_after_a_resume(algorithm: Any, tmp_path: Path) -> None:
    """Also in uploads that were under way, which are computed again."""
    plan = TinyFederation(lacking(tiny_data(label_party_columns=True)), algorithm)
    whole = plan.run(tmp_path / "whole")
    for events in (15, 40):
        out = tmp_path / str(events)
        assert not plan.run(out, stop_requested=StopAfter(events)).finished
        assert_same_bits(weights(plan.run(out, resume=True).models), weights(whole.models))
    kept = TinyFederation(lacking(tiny_data(label_party_columns=True), drop_share=0.0), algorithm)
    without = weights(kept.run(tmp_path / "kept").models)
    assert any(not torch.equal(tensor, without[name]) for name, tensor in weights(whole.models).items())


def test_rows_that_are_absent_are_counted_and_hidden_like_all_others(tmp_path: Path) -> None:
    """Absence is a value that a row's columns can have: the same releases, the same ε; noise makes them differ."""
    noised = PerturbationSettings(clip=1.0, noise=2.0)
    plans = [
        TinyFederation(held, Vafl(), privacy=noised, bottom=BottomSettings("linear", embedding=4))
        for held in (tiny_data(), lacking(tiny_data()))
    ]
    whole, some = (plan.run(tmp_path / str(place)) for place, plan in enumerate(plans))
    assert some.summary["privacy"] == whole.summary["privacy"]
    assert not any("all alike" in one["sentence"] for one in some.summary["learnt"])
    frames = [one.fields[-1] for one in read_trace(tmp_path / "1" / "trace" / "party1.trace") if one.type == "Send"]
    messages = [decode(bytearray(frame)) for frame in frames]
    uploads = [message for message in messages if isinstance(message, EmbeddingUpload)]
    sent = np.concatenate([upload.embedding for upload in uploads])
    assert len(np.unique(sent, axis=0)) == len(sent) > 24
