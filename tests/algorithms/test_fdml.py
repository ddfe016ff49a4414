"""FDML: with one party it is softmax regression; with several, each weighs as much as its share of the columns."""

from pathlib import Path

import pytest
import torch
from recorded_runs import read_run, sends

from colonnade import Training, from_arrays, train
from colonnade.algorithms.split_models.fdml import CombinedPrediction, Fdml, WeightedPrediction
from colonnade.messages import EmbeddingUpload
from colonnade.testing import TinyFederation, tiny_data


@pytest.mark.parametrize("task", ["multiclass", "binary", "regression"])
def test_with_one_party_it_is_plain_regression(task: str, tmp_path: Path) -> None:
    data = tiny_data(task, parties=1)
    training = Training(epochs=2, batch_size=8, learning_rate=0.1)
    plan = TinyFederation(data, Fdml(), training)
    start = plan.parties()["party1"].model()["bottom"].linear
    W = start.weight.detach().double().clone().requires_grad_()
    b = start.bias.detach().double().clone().requires_grad_()
    X, y = data.columns["party1"].train.double(), data.labels.train
    losses = {
        "multiclass": lambda out, y: torch.nn.functional.cross_entropy(out, y.long()),
        "binary": lambda out, y: torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y.double()),
        "regression": lambda out, y: ((out[:, 0] - y.double()) ** 2).mean(),
    }
    outcome = plan.run(tmp_path / "run")
    uploads = sends(read_run(tmp_path / "run")["party1"], EmbeddingUpload)
    for item in uploads[: outcome.summary["exchanges"]]:
        rows = torch.from_numpy(item.message.rows.astype("int64"))  # type: ignore[union-attr]
        loss = losses[task](X[rows] @ W.T + b, y[rows])
        dW, db = torch.autograd.grad(loss, (W, b))
        with torch.no_grad():
            W -= 0.1 * dW
            b -= 0.1 * db
    trained = outcome.models["party1"]["bottom"].linear
    assert torch.allclose(trained.weight.double(), W, atol=1e-5)
    assert torch.allclose(trained.bias.double(), b, atol=1e-5)


def test_a_party_weighs_as_much_as_its_share_of_the_columns() -> None:
    """Of 6 columns party1 has 1, party2 two and party3 three: a = 1/6, 2/6, 3/6."""
    data = tiny_data("binary")
    X, X_test = (
        torch.cat([getattr(own, part) for own in data.columns.values()], 1).numpy() for part in ("train", "test")
    )
    columns = {"party1": ["x0"], "party2": ["x1", "x2"], "party3": ["x3", "x4", "x5"]}
    uneven = from_arrays(
        X,
        data.labels.train.numpy(),
        X_test=X_test,
        y_test=data.labels.test.numpy(),
        names=[f"x{place}" for place in range(6)],
        split="named-columns",
        columns=columns,
        standardise=False,
    )
    outcome = train(uneven, Fdml(), training=Training(epochs=1, batch_size=8))
    shares = {name: outcome.models[name]["bottom"].share for name in columns}
    assert shares == {"party1": pytest.approx(1 / 6), "party2": pytest.approx(2 / 6), "party3": pytest.approx(3 / 6)}


def test_the_combination_by_hand() -> None:
    """Two parties of equal width with p = 0.8 and 0.4: 0.6, whose logit is ln 1.5."""
    top = CombinedPrediction(2, "binary", 1)
    assert top(torch.tensor([[0.5 * 0.8, 0.5 * 0.4]])).item() == pytest.approx(0.405465, abs=1e-6)
    bottom = WeightedPrediction((3,), 0.25, "multiclass", 4)
    assert torch.allclose(
        bottom(torch.randn(5, 3, generator=torch.Generator().manual_seed(0))).sum(1), torch.tensor(0.25)
    )


def test_the_more_parties_the_less_it_can_say() -> None:
    """y is the sign of a score over all columns: separate predictions lose what a joint score has."""
    losses = []
    for parties in (1, 3):
        outcome = train(
            tiny_data(parties=parties),
            Fdml(),
            training=Training(epochs=40, batch_size=8, learning_rate=1.0, evaluate_every_epochs=0),
        )
        losses.append(outcome.summary["train_loss"])
    assert losses[0] < 0.5 * losses[1]
