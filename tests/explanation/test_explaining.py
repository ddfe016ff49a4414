"""Explanations against what is known by construction, and against the joint model with its columns shuffled by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import colonnade
from colonnade.algorithms.parts.losses import Loss
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.data.federated import FederatedData
from colonnade.errors import DataError, SettingsError
from colonnade.explanation.account import ReleaseAccount
from colonnade.explanation.ends import ColumnGroup, ColumnOwner
from colonnade.explanation.explaining import explain_model, owner_in, scorer_in
from colonnade.explanation.gradients import integrated_gradients
from colonnade.explanation.results import Explanation
from colonnade.explanation.settings import ExplainSettings
from colonnade.launch.outcome import Outcome

WEIGHTS = {"large": 3.0, "small": 1.0, "noise": 0.0, "constant": 0.0, "unused": 0.0}
ROWS = 600


@pytest.fixture(scope="module")
def linear() -> FederatedData:
    """y = 3 large + small + a little noise; one party holds nothing of use."""
    draws = np.random.default_rng(2)
    columns = {name: draws.normal(size=ROWS) for name in WEIGHTS}
    columns["constant"] = np.full(ROWS, 0.7)
    y = sum(weight * columns[name] for name, weight in WEIGHTS.items()) + 0.1 * draws.normal(size=ROWS)
    return colonnade.from_arrays(
        np.stack([*columns.values()], axis=1),
        y,
        names=[*columns],
        split="named-columns",
        columns={"one": ["large", "noise"], "two": ["small", "constant"], "three": ["unused"]},
    )


@pytest.fixture(scope="module")
def solved(linear: FederatedData) -> Outcome:
    outcome = colonnade.train(linear, "fcg", training=colonnade.Training(epochs=20, l2=0.0))
    with torch.no_grad():
        outcome.models["three"]["bottom"].weight.zero_()  # type: ignore[operator, union-attr]
    return outcome


@pytest.fixture(scope="module")
def explained(linear: FederatedData, solved: Outcome) -> Explanation:
    return explain_model(solved.model, linear)


def test_the_order_of_known_coefficients(linear: FederatedData, solved: Outcome, explained: Explanation) -> None:
    by_name = {one.column: one for columns in explained.columns.values() for one in columns}
    assert [one.column for one in explained.columns["one"]] == ["large", "noise"]
    assert by_name["large"].shuffled.value > 5 * by_name["small"].shuffled.value > 0
    # Of a squared error, shuffling a column costs 2 w² var(x) in expectation, if columns are independent.
    for party, place, name in (("one", 0, "large"), ("two", 0, "small")):
        weight = float(solved.models[party]["bottom"].weight.detach()[0, place])  # type: ignore[index, union-attr]
        own = linear.columns[party].test[:, place].double()
        expected = 2 * weight**2 * float(own.var(correction=0))
        assert by_name[name].shuffled.value == pytest.approx(expected, rel=0.15)
        # Along a straight way the gradient of a linear model is its weight.
        gradient = abs(weight) * float((own - own.mean()).abs().mean())
        assert by_name[name].gradient == pytest.approx(gradient, rel=1e-4)


def test_a_constant_column_is_worth_exactly_nothing(explained: Explanation) -> None:
    (constant,) = [one for one in explained.columns["two"] if one.column == "constant"]
    assert (constant.shuffled.value, constant.shuffled.standard_error, constant.gradient) == (0.0, 0.0, 0.0)


def test_a_party_that_says_the_same_of_every_row_is_worth_exactly_nothing(explained: Explanation) -> None:
    assert (explained.parties["three"].value, explained.parties["three"].standard_error) == (0.0, 0.0)


def test_a_column_of_noise_is_within_its_error_of_nothing(explained: Explanation) -> None:
    (noise,) = [one for one in explained.columns["one"] if one.column == "noise"]
    assert abs(noise.shuffled.value) <= 2 * noise.shuffled.standard_error


def test_parties_share_out_the_whole_difference(explained: Explanation) -> None:
    total = sum(one.value for one in explained.parties.values())
    assert total == pytest.approx(explained.loss_without - explained.loss, abs=1e-9)
    assert explained.parties["one"].value > explained.parties["two"].value > 0
    assert explained.shuffled["one"].value > explained.shuffled["two"].value > 0
    assert explained.shuffled["three"].value == 0.0


@pytest.fixture(scope="module")
def iris() -> FederatedData:
    return colonnade.dataset("iris", parties=2, label_party_columns=True)


@pytest.fixture(scope="module")
def bent(iris: FederatedData) -> Outcome:
    clip = colonnade.PerturbationSettings(clip=2.0)
    return colonnade.train(iris, "vafl", training=colonnade.Training(epochs=8, batch_size=16), privacy=clip)


def test_shuffling_is_what_it_is_in_the_joint_model(iris: FederatedData, bent: Outcome) -> None:
    found = explain_model(bent.model, iris, ExplainSettings(repeats=2))
    rows = {name: held.test for name, held in iris.columns.items()}
    loss = Loss("multiclass")
    full = loss.per_row(bent.outputs(rows).double(), iris.labels.test).numpy()
    assert found.loss == pytest.approx(float(full.mean()), abs=1e-12)
    for party, held in iris.columns.items():
        for place, name in enumerate(held.names):
            grown = np.zeros(len(full))
            for repeat in range(2):
                order = np.random.default_rng(seed_for(0, party, str(name), str(repeat))).permutation(len(full))
                own = rows[party].clone()
                own[:, place] = rows[party][order, place]
                grown += loss.per_row(bent.outputs({**rows, party: own}).double(), iris.labels.test).numpy() - full
            (one,) = [one for one in found.columns[party] if one.column == str(name)]
            assert one.shuffled.value == pytest.approx(float(grown.mean()) / 2, abs=1e-12)


def test_gradients_account_for_the_whole_way(iris: FederatedData, bent: Outcome) -> None:
    places = np.arange(iris.test_rows)
    owners = {name: owner_in(bent.model, name, iris, places, "test", ReleaseAccount()) for name in bent.order}
    scorer = scorer_in(bent.model, iris, places, "test")
    embeddings = {name: owner.embedding() for name, owner in owners.items()}
    scorer.take(embeddings)
    chosen = scorer.chosen()
    found = integrated_gradients(owners, scorer, 400)
    assert found is not None
    total = sum(by_group.sum(1) for by_group in found.values())
    rows = {name: held.test for name, held in iris.columns.items()}
    middle = {name: own.mean(0, keepdim=True) for name, own in rows.items()}
    here, there = bent.outputs(rows), bent.outputs(middle)
    way = here.gather(1, chosen[:, None])[:, 0] - there[0][chosen]
    assert np.allclose(total, way.numpy(), atol=0.02 * float(way.abs().max()))


def test_a_model_without_gradients_has_importances_all_the_same(iris: FederatedData) -> None:
    stump = colonnade.FlatModel(torch.zeros(2), lambda w, x: (x[:, :1] > w[0]).float().detach())
    training = colonnade.Training(epochs=1, batch_size=16)
    trained = colonnade.train(iris, "zoo", training=training, bottom={"party1": stump})
    found = explain_model(trained.model, iris, ExplainSettings(repeats=1))
    assert {one.gradient for columns in found.columns.values() for one in columns} == {None}


def test_only_so_many_columns_are_shuffled_and_the_rest_is_told(iris: FederatedData, bent: Outcome) -> None:
    found = explain_model(bent.model, iris, ExplainSettings(columns=1, repeats=1, rows=10))
    assert {len(columns) for columns in found.columns.values()} == {1}
    assert found.rows == 10
    assert found.left_out == {name: len(held.names) - 1 for name, held in iris.columns.items()}
    none = explain_model(bent.model, iris, ExplainSettings(columns=0))
    assert not any(none.columns.values()) and none.parties


def test_a_party_sees_its_own_columns_and_totals_of_others(iris: FederatedData, bent: Outcome) -> None:
    found = explain_model(bent.model, iris, ExplainSettings(repeats=1))
    for party in bent.order:
        shown = repr(found.of(party))
        for other, held in iris.columns.items():
            assert all((str(name) in shown) == (other == party) for name in held.names)
        assert set(found.of(party)["parties"]) == set(bent.order)
    whole = repr(found.combined())
    assert all(str(name) in whole for held in iris.columns.values() for name in held.names)
    assert "party2" not in " ".join(found.of("party1")["learnt"])


@pytest.mark.parametrize("algorithm", ["centralised", "afsaga", "dpzv"])
def test_every_family_is_explained(algorithm: str, iris: FederatedData) -> None:
    trained = colonnade.train(iris, algorithm, training=colonnade.Training(epochs=1, batch_size=16))
    found = colonnade.explain(trained, iris, ExplainSettings(repeats=1, steps=2))
    total = sum(one.value for one in found.parties.values())
    assert total == pytest.approx(found.loss_without - found.loss, abs=1e-9)


def test_sparse_rows_and_images(iris: FederatedData) -> None:
    sparse = colonnade.dataset("synthetic_sparse", parties=2, max_rows=120)
    trained = colonnade.train(sparse, "afsaga", training=colonnade.Training(epochs=1))
    found = colonnade.explain(trained, sparse, ExplainSettings(repeats=1, columns=3))
    assert {len(columns) for columns in found.columns.values()} == {3}
    digits = colonnade.dataset("digits", parties=2, split="row-strips", max_rows=120)
    trained = colonnade.train(digits, "vafl", training=colonnade.Training(epochs=1, batch_size=16))
    found = colonnade.explain(trained, digits, ExplainSettings(repeats=1, steps=2))
    assert {len(columns) for columns in found.columns.values()} == {1}  # a piece of an image is one


def test_what_does_not_fit_is_named(iris: FederatedData, linear: FederatedData, bent: Outcome) -> None:
    with pytest.raises(DataError, match=r"no columns of party1"):
        explain_model(bent.model, linear)
    with pytest.raises(DataError, match=r"trained with \(1,\)|trained with \(2,\)"):
        explain_model(bent.model, colonnade.dataset("breast_cancer", parties=2, label_party_columns=True))
    with pytest.raises(DataError, match="There are 0 validation rows"):
        explain_model(bent.model, iris, ExplainSettings(part="validation"))
    with pytest.raises(SettingsError, match="Did you mean 'train'"):
        ExplainSettings(part="trian")
    with pytest.raises(SettingsError, match="give 1 or more"):
        ExplainSettings(repeats=0)
    with pytest.raises(SettingsError, match="Give the data"):
        colonnade.explain(bent)


def test_an_owner_leaves_its_rows_as_they_are() -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    module = nn.Linear(3, 1)
    owner = ColumnOwner("shop", rows, (ColumnGroup("a", (0, 2)),), module, lambda given: given.clone())
    shuffled = owner.shuffled(owner.groups[0], np.random.default_rng(1))
    assert torch.equal(rows, torch.arange(12.0).reshape(4, 3))
    assert torch.equal(shuffled[:, 1], rows[:, 1])
    assert sorted(map(tuple, shuffled[:, [0, 2]].tolist())) == sorted(map(tuple, rows[:, [0, 2]].tolist()))


def test_rows_that_a_party_lacks() -> None:
    """They stay as they are while its column is shuffled; and a learnt stand-in takes the place of the mean."""
    draws = np.random.default_rng(3)
    ids = np.arange(120)
    orders, age = draws.normal(size=120), draws.normal(size=120)
    label = (orders + 0.5 * age > 0).astype(int)
    tables = {
        "bank": pd.DataFrame({"id": ids, "age": age, "paid": label}),
        "shop": pd.DataFrame({"id": ids[:80], "orders": orders[:80]}),
    }
    data = colonnade.from_frames(tables, label_party="bank", label="paid", rows="any")
    trained = colonnade.train(data, "vafl", training=colonnade.Training(epochs=3, batch_size=16))
    places = np.arange(data.test_rows)
    owner = owner_in(trained.model, "shop", data, places, "test", ReleaseAccount())
    assert [group.name for group in owner.groups] == ["orders"]
    lacking = data.columns["shop"].test[:, -1] == 1  # type: ignore[index]
    assert 0 < int(lacking.sum()) < len(lacking)  # type: ignore[union-attr]
    changed = (owner.shuffled(owner.groups[0], np.random.default_rng(0)) != owner.embedding()).any(1)
    assert bool(changed.any()) and not bool(changed[lacking].any())  # type: ignore[index]
    found = explain_model(trained.model, data, ExplainSettings(repeats=1))
    stand_ins = [trained.model.parties[name].stand_in() for name in trained.order]
    joined = torch.cat(stand_ins)[None].expand(data.test_rows, -1)  # type: ignore[arg-type]
    outputs = trained.models["bank"]["top"](joined).detach()
    assert found.loss_without == pytest.approx(
        float(Loss("binary").per_row(outputs, data.labels.test).mean()), rel=1e-5
    )
