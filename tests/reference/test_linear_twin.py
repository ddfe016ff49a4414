"""Every linear algorithm against its slow twin: all sums, residuals and final weights of recorded runs, to 1e-9."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from linear_federation import CLOSE, Floats, Objective, Twin, Worker, dense
from recorded_runs import read_run
from scipy.sparse import csr_array

from colonnade import Simulate, SimulatedParty, Training, from_arrays
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear, QuasiNewton
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.runtimes.checkpoint import read_latest
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data
from colonnade.testing.tiny_federation import lacking
from colonnade.testing.tiny_federation import weights as weights_of

NAMES = [f"{family}{rule}" for family in ("af", "f", "asysqn-", "synsqn-") for rule in ("sgd", "svrg", "saga")]
ASYNCHRONOUS = [name for name in NAMES if issubclass(ALGORITHMS[name].settings, AsynchronousLinear)]
FIRST_ORDER = [name for name in NAMES if not issubclass(ALGORITHMS[name].settings, QuasiNewton)]
TRAINING = Training(
    epochs=6, batch_size=7, learning_rate=0.05, l2=0.02, evaluate_every_epochs=3, end_when_diverged=False
)
UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    label_compute_seconds={"distribution": "exponential", "mean": 0.003},
    latency_seconds={"distribution": "exponential", "mean": 0.004},
    parties={"party2": SimulatedParty(slowdown=3.0)},
)


def settings_of(name: str, **changes: Any) -> Any:
    kind = ALGORITHMS[name].settings
    if issubclass(kind, QuasiNewton):
        changes = {"memory": 3, **changes}
    return kind(**{"step": "fixed", "precondition": "none", **changes})


def final_weights(plan: TinyFederation, out: Path) -> dict[str, Floats]:
    """In float64, as the run saved them at its end; the intercept as a last row."""
    found = {}
    for name, saved in read_latest(out / "checkpoints", plan.names)[1].items():
        tensors = saved.tensors
        weights = tensors["member.block.weights"].numpy().T
        found[name] = np.vstack([weights, tensors["member.block.intercept"].numpy()[None]])
    return found


def assert_twin_agrees(plan: TinyFederation, out: Path) -> Twin:
    plan.run(out)
    twin = Twin(plan, read_run(out))
    twin.play()
    for name, weights in final_weights(plan, out).items():
        worker = twin.workers[name]
        ours = worker.w if worker.intercept else np.vstack([worker.w, np.zeros((1, worker.w.shape[1]))])
        assert np.abs(weights - ours).max() <= CLOSE, name
        assert worker.steps > 0 or not worker.X.size
    assert twin.checked > 200
    assert max(np.abs(worker.w).max(initial=0.0) for worker in twin.workers.values()) > 0.05
    return twin


@pytest.mark.parametrize("labels", ["one", "everywhere"])
@pytest.mark.parametrize("name", NAMES)
def test_logistic_regression(name: str, labels: str, tmp_path: Path) -> None:
    assert_twin_agrees(
        TinyFederation(tiny_data(), settings_of(name, labels=labels), TRAINING, simulate=UNEVEN), tmp_path / "run"
    )


@pytest.mark.parametrize("name", ["afsaga", "fsvrg"])
def test_rows_that_some_lack(name: str, tmp_path: Path) -> None:
    """A party's product for them is a constant of its own, the weight of the column that tells."""
    plan = TinyFederation(lacking(tiny_data(), drop_share=0.0), settings_of(name), TRAINING, simulate=UNEVEN)
    twin = assert_twin_agrees(plan, tmp_path / "run")
    for party, held in plan.data.columns.items():
        constant = float(twin.workers[party].w[held.shape[0] - 1, 0])
        absent = held.train[held.train[:, -1] == 1].double().numpy()
        assert len(absent) == 8
        assert absent @ twin.workers[party].w[: held.shape[0], 0] == pytest.approx(constant)
        assert abs(constant) > 1e-4


def test_rows_that_are_dropped_are_as_if_they_had_never_been_there(tmp_path: Path) -> None:
    asked = TinyFederation(lacking(tiny_data(), drop_share=0.3), settings_of("afsaga"), TRAINING, simulate=UNEVEN)
    columns = {}
    for party, held in asked.data.columns.items():
        chance = torch.rand(asked.data.rows, generator=generator_for(asked.seed, party, "absence"))
        train = held.train.clone()
        train[chance < 0.3] = torch.tensor([0.0] * (held.shape[0] - 1) + [1.0])
        assert int(train[:, -1].sum()) > int(held.train[:, -1].sum())
        columns[party] = replace(held, train=train, drop_share=0.0)
    by_hand = replace(asked, data=replace(asked.data, columns=columns))
    one, other = asked.run(tmp_path / "asked"), by_hand.run(tmp_path / "by hand")
    assert_same_bits(weights_of(one.models), weights_of(other.models))


@pytest.mark.parametrize("labels", ["one", "everywhere"])
@pytest.mark.parametrize("name", [name for name in ASYNCHRONOUS if name in FIRST_ORDER])
def test_four_batches_a_request(name: str, labels: str, tmp_path: Path) -> None:
    algorithm = settings_of(name, labels=labels, batches_per_request=4, intercept=False)
    assert_twin_agrees(TinyFederation(tiny_data(), algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")


@pytest.mark.parametrize("labels", ["one", "everywhere"])
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_one_sum_teaches_everybody(name: str, labels: str, tmp_path: Path) -> None:
    """Three sums under way, windows of two mini-batches where that may be, and a slow party that leaves some out."""
    own = {"batches_per_request": 2} if name in FIRST_ORDER else {}
    algorithm = settings_of(name, labels=labels, updates="everybody", in_flight=3, **own)
    data = tiny_data("multiclass" if name == "afsaga" else "binary", label_party_columns=labels == "everywhere")
    slow = replace(UNEVEN, parties={"party2": SimulatedParty(slowdown=5.0)})
    twin = assert_twin_agrees(TinyFederation(data, algorithm, TRAINING, simulate=slow), tmp_path / "run")
    assert twin.workers["party2"].steps < 0.8 * twin.workers["party1"].steps


@pytest.mark.parametrize(
    ("name", "task", "changes"),
    [
        ("afsaga", "binary", {"labels": "one"}),
        ("afsvrg", "multiclass", {"labels": "everywhere"}),
        ("afsgd", "regression", {"updates": "everybody", "in_flight": 3}),
        ("fsaga", "multiclass", {"labels": "everywhere"}),
        ("fsgd", "binary", {"labels": "one"}),
        ("asysqn-svrg", "binary", {"updates": "everybody", "in_flight": 3}),
        ("asysqn-sgd", "binary", {"labels": "everywhere"}),
        ("synsqn-saga", "regression", {"labels": "one"}),
    ],
)
def test_joint_searches(name: str, task: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Points, what is told of them, and that nothing between them is better than what was found."""
    data = tiny_data(task, label_party_columns=name == "asysqn-svrg")
    algorithm = settings_of(name, search_every_epochs=0.5, **changes)
    twin = assert_twin_agrees(TinyFederation(data, algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")
    assert len(twin.searched) >= 3


@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("name", NAMES)
def test_softmax_and_ridge_regression(name: str, task: str, tmp_path: Path) -> None:
    """The label party has columns of its own, and so the intercept."""
    data = tiny_data(task, label_party_columns=True)
    assert_twin_agrees(TinyFederation(data, settings_of(name, arity=1), TRAINING, simulate=UNEVEN), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "task", "changes"),
    [
        ("afsgd", "binary", {"labels": "one"}),
        ("afsgd", "regression", {"labels": "everywhere", "precondition": "columns"}),
        ("fsvrg", "multiclass", {"labels": "one"}),
        ("afsvrg", "binary", {"labels": "everywhere", "batches_per_request": 4}),
        ("afsaga", "multiclass", {"labels": "one", "precondition": "curvature"}),
        ("fsaga", "regression", {"labels": "everywhere"}),
        ("asysqn-saga", "binary", {"labels": "one"}),
        ("synsqn-sgd", "multiclass", {"labels": "everywhere"}),
    ],
)
def test_rows_that_weigh_more_or_less(name: str, task: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Weights from 0 to 2, known where the labels are."""
    data = tiny_data(task, label_party_columns=True)
    own = torch.from_numpy(np.random.default_rng(1).uniform(0, 2, data.rows))
    own[3] = 0.0
    data = replace(data, labels=replace(data.labels, weights=own))
    training = replace(TRAINING, learning_rate=0.02 if task == "regression" else 0.05)
    plan = TinyFederation(data, settings_of(name, **changes), training, simulate=UNEVEN)
    assert_twin_agrees(plan, tmp_path / "run")


@pytest.mark.parametrize("precondition", ["columns", "block"])
@pytest.mark.parametrize("name", NAMES)
def test_every_party_scales_its_own_steps(name: str, precondition: str, tmp_path: Path) -> None:
    """Columns far from their mean, of very different sizes: what centring and scaling are for."""
    data = uneven_data("regression" if name.endswith("svrg") else "binary")
    algorithm = settings_of(name, precondition=precondition, labels="everywhere" if "s" in name[:2] else "one")
    twin = assert_twin_agrees(TinyFederation(data, algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")
    assert not np.allclose(twin.workers["party1"].root, np.eye(3), atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_no_batch_can_bear_count_more(name: str, tmp_path: Path) -> None:
    """One long row in the tiny data: party1's metric takes it several times, party2's scales, party3 needs none."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 6))
    X[:24] = (X[:24] - X[:24].mean(0)) / X[:24].std(0)
    X[3, :2] *= 30
    X[:, 2:4] = 100 * X[:, 2:4] + 30
    y = X @ np.array([1.0, -1.0, 0.005, 0.015, -0.5, 1.0])
    data = from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=3, task="regression", standardise=False)
    training = replace(TRAINING, batch_size=2, learning_rate=0.01)
    plan = TinyFederation(data, settings_of(name, precondition="auto"), training, simulate=UNEVEN)
    one, two, three = list(assert_twin_agrees(plan, tmp_path / "run").workers.values())[-3:]
    assert one.guard.max() > 1.5 and (two.guard == 1).all()
    assert np.diag(two.root[0])[:2].max() < 0.02 and (np.diag(three.root[0]) == 1).all()


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("sgd")])
def test_steps_follow_the_curvature_that_rows_have(name: str, task: str, tmp_path: Path) -> None:
    own = {"snapshot_every_epochs": 1.0} if name.endswith("svrg") else {}
    algorithm = settings_of(name, precondition="curvature", labels="everywhere" if "s" in name[:2] else "one", **own)
    twin = assert_twin_agrees(TinyFederation(uneven_data(task), algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")
    worker = twin.workers["party1"]
    assert worker.measure_at >= 2 * worker.per_epoch  # measured more than once
    if task == "multiclass":
        assert not np.allclose(worker.root[0], worker.root[1], rtol=0.01)


@pytest.mark.parametrize("name", ["afsaga", "fsgd", "asysqn-svrg"])
def test_scaled_steps_of_a_softmax_without_an_intercept(name: str, tmp_path: Path) -> None:
    algorithm = settings_of(name, precondition="block", intercept=False)
    twin = assert_twin_agrees(
        TinyFederation(uneven_data("multiclass"), algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run"
    )
    assert np.abs(twin.workers["party2"].X.mean(0)).max() > 1  # nothing is centred where no intercept makes up for it


def uneven_data(task: str) -> Any:
    """The tiny data with party1's columns (1, 2) moved by 3 and four times as large, party2's (3, 4) moved by −2."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 6))
    score = X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0])
    y = {"binary": (score > 0).astype(int), "multiclass": np.digitize(score, [-1.0, 1.0]), "regression": score}[task]
    X = X * np.array([4, 4, 1, 1, 1, 1]) + np.array([3, 3, -2, -2, 0, 0])
    shared: dict[str, Any] = {"parties": 3, "task": task, "standardise": False}
    return from_arrays(X[:24], y[:24], X_test=X[24:], y_test=y[24:], **shared)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIRST_ORDER])
def test_curvature_from_the_same_rows(name: str, tmp_path: Path) -> None:
    algorithm = settings_of(name, curvature_rows="same")
    assert_twin_agrees(TinyFederation(tiny_data(), algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIRST_ORDER])
def test_curvature_from_fresh_rows(name: str, tmp_path: Path) -> None:
    """Noise that is, and with little curvature assumed it diverges, where no two programs agree for long."""
    algorithm = settings_of(name, curvature_rows="fresh", labels="everywhere", least_curvature=1.0)
    assert_twin_agrees(TinyFederation(tiny_data(), algorithm, TRAINING, simulate=UNEVEN), tmp_path / "run")


# --- limits -----------------------------------------------------------------------------------------------------


def joined(plan: TinyFederation, objective: Objective) -> Worker:
    """One worker with everybody's columns, and the intercept last."""
    worker = Worker(plan, "party1", objective)
    worker.X = np.hstack([*(dense(own.train) for own in plan.data.columns.values()), np.ones((plan.data.rows, 1))])
    worker.w = np.zeros((worker.X.shape[1], objective.classes))
    worker.penalty = np.full(worker.w.shape, plan.training.l2)
    worker.penalty[-1] = 0.0
    worker.root = np.tile(np.eye(len(worker.w)), (worker.objective.classes, 1, 1))
    return worker


def batches_named(out: Path) -> list[Any]:
    """The shared batches in order, from the label party's trace."""
    seen: dict[int, Any] = {}
    for item in read_run(out)["label"]:
        if item.type == "Send" and type(item.message).__name__ == "SharedStep":
            seen[item.message.step] = item.message.next_rows  # type: ignore[union-attr]
    return [rows for rows in seen.values() if rows.size]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("name", ["fsgd", "fsvrg", "fsaga"])
def test_without_delay_it_is_the_textbooks_algorithm_on_the_joined_columns(
    name: str, task: str, tmp_path: Path
) -> None:
    data = tiny_data(task)
    plan = TinyFederation(data, settings_of(name), TRAINING)
    plan.run(tmp_path / "run")
    objective = Twin(plan, {}).objective
    alone = joined(plan, objective)
    for rows in batches_named(tmp_path / "run"):
        alone.step(rows, np.zeros((len(rows), objective.classes)), None)
    apart = final_weights(plan, tmp_path / "run")
    together = np.vstack([apart[party][:-1] for party in data.columns])
    assert np.abs(together - alone.w[:-1]).max() <= CLOSE
    assert np.abs(apart["party1"][-1] - alone.w[-1]).max() <= CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_one_feature_party_alone(name: str, tmp_path: Path) -> None:
    data = tiny_data(parties=1)
    assert_twin_agrees(TinyFederation(data, settings_of(name), TRAINING), tmp_path / "run")


@pytest.mark.parametrize("precondition", ["none", "columns", "block"])
def test_sparse_columns_give_the_weights_of_dense_ones(precondition: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    X = generator.normal(size=(40, 9)) * (generator.random((40, 9)) < 0.3)
    X = X.astype(np.float32)
    y = (X @ np.linspace(-1, 1, 9) > 0).astype(int)
    shared: dict[str, Any] = {"parties": 3, "task": "binary", "standardise": False}
    for name in NAMES:
        found = []
        for kind, table in (("dense", X), ("sparse", csr_array(X))):
            data = from_arrays(table[:30], y[:30], X_test=table[30:], y_test=y[30:], **shared)
            assert data.columns["party1"].sparse == (kind == "sparse")
            plan = TinyFederation(data, settings_of(name, precondition=precondition), TRAINING, simulate=UNEVEN)
            outcome = plan.training_with(epochs=3).run(tmp_path / f"{name} {kind}")
            found.append(outcome.outputs({party: own.test for party, own in data.columns.items()}).double())
        assert torch.allclose(*found, atol=2e-6, rtol=1e-5), name
