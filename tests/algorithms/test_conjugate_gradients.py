"""`fcg`: conjugate gradients over everybody's blocks reach scikit-learn's optimum in a few steps, masked or not."""

import numpy as np
import pytest
import torch
from scipy import sparse

from colonnade import dataset, train
from colonnade.algorithms.linear_models.fcg import Fcg, Search
from colonnade.algorithms.training import DecidedTraining
from colonnade.data import synthetic_sparse
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.models.linear import LinearBlock
from colonnade.models.linear_loss import LinearLoss
from colonnade.reproductions.objective import gaps, joined, optimum

L2 = 1e-2


def gap_after(data: FederatedData, steps: int, **settings: object) -> float:
    points, _ = gaps(
        data, Fcg(**settings), optimum(data, L2), training=DecidedTraining(epochs=steps, l2=L2, batch_size=8)
    )
    return points[-1].gap


@pytest.mark.parametrize(
    "data",
    [
        dataset("breast_cancer", parties=4),
        dataset("diabetes", parties=3),
        dataset("iris", parties=2),
        synthetic_sparse(800, 60, 6, parties=3),
    ],
    ids=["binary", "regression", "multiclass", "sparse"],
)
def test_it_reaches_the_optimum_of_the_joined_columns(data: FederatedData) -> None:
    assert gap_after(data, 2) > 1e-4
    assert abs(gap_after(data, 60)) < 1e-7


def test_masks_and_who_has_the_labels_change_nothing() -> None:
    data = dataset("breast_cancer", parties=4)
    weights = []
    for settings in (Fcg(), Fcg(sums="pairwise"), Fcg(sums="two-tree"), Fcg(labels="everywhere")):
        outcome = train(data, settings, training=DecidedTraining(epochs=12, l2=L2))
        weights.append(torch.cat([outcome.models[name]["bottom"].weight.ravel() for name in data.feature_parties]))
    for other in weights[1:]:
        assert torch.allclose(weights[0], other, atol=1e-5)


def test_one_party_alone_is_newton_s_method() -> None:
    """With every column in one block the preconditioner is the whole curvature: ridge regression in one step."""
    data = dataset("diabetes", parties=1)
    assert abs(gap_after(data, 1)) < 1e-6


def test_a_block_too_wide_for_its_curvature_goes_by_the_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.algorithms.linear_models.parts.block_curvature._MOST_COLUMNS", 0)
    data = synthetic_sparse(800, 60, 6, parties=3)
    assert abs(gap_after(data, 80)) < 1e-6


@pytest.mark.parametrize("changes", [{"step": "fixed"}, {"max_product_age_epochs": 1.0}])
def test_settings_that_it_would_not_use_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="fcg"):
        Fcg(**changes)


def test_the_search_finds_the_lowest_point_of_the_plane() -> None:
    """Along two directions of a ridge regression, against the solution of the two normal equations."""
    targets = np.array([1.0, -2.0, 0.5, 3.0, -1.0, 2.0])
    search = Search(LinearLoss("regression"), targets, l2=0.5)
    generator = np.random.default_rng(0)
    search._along_p = generator.standard_normal((6, 1))
    along_d = generator.standard_normal((6, 1))
    wd, wp, dd, dp, pp = 0.3, -0.2, 2.0, 0.4, 1.5
    told = np.vstack([along_d, np.array([[wd], [wp], [dd], [dp], [pp]])])
    plane = np.hstack([along_d, search._along_p])
    # d/d(t, u) of mean (θ − y)² + λ (t w·d + u w·p + …) = 0
    left = 2 * plane.T @ plane / 6 + 0.5 * np.array([[dd, dp], [dp, pp]])
    right = 2 * plane.T @ targets / 6 - 0.5 * np.array([wd, wp])
    assert search.step(told) == pytest.approx(tuple(np.linalg.solve(left, right)))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_the_curvature_of_a_block(storage: str, intercept: bool) -> None:
    data = synthetic_sparse(200, 12, 3, parties=1)
    x = joined(data)
    rows = next(iter(data.columns.values())).train
    held = rows if storage == "sparse" else torch.from_numpy(rows.toarray())
    block = LinearBlock(held, held[:0], 1, 0.1, intercept)
    weights = np.random.default_rng(1).uniform(0.1, 1.0, block.rows)
    dense = sparse.csr_array(x).toarray()
    wide = np.hstack([dense, np.ones((len(dense), 1))]) if intercept else dense
    assert block.gram(weights) == pytest.approx(wide.T @ (weights[:, None] * wide) / len(wide))
    some = wide[::3]
    assert block.gram(weights, 3) == pytest.approx(some.T @ (weights[::3, None] * some) / len(some))
    assert block.squares(weights) == pytest.approx(np.diag(block.gram(weights)))
    vector = np.random.default_rng(2).standard_normal((block.columns, 1))
    assert block.all_times(vector, np.ones(1)) == pytest.approx(dense @ vector + intercept)
