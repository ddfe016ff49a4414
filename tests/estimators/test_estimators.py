"""The estimators keep scikit-learn's rules, give every party the columns it was promised and nothing else, and predict
with the very model that `colonnade.train` trained.
"""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import colonnade
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.errors import ColonnadeError, DataError, SettingsError
from colonnade.estimators import ROWS_A_BLOCK, OneClassError, VerticalClassifier, VerticalRegressor

LINEAR = {"bottom": colonnade.BottomSettings("linear"), "top": colonnade.TopSettings("sum")}
TINY = {"bottom": colonnade.BottomSettings(hidden=(4,), embedding=2), "top": colonnade.TopSettings(hidden=(4,))}


def rows(count: int = 24, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, columns))


STOCHASTIC = "batches are drawn from the rows as they are, so a row of weight 2 and that row twice train differently"


@parametrize_with_checks(
    [VerticalClassifier(), VerticalRegressor()],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": STOCHASTIC},
)
def test_scikit_learn_finds_no_fault_with_the_defaults(estimator, check, monkeypatch):
    """All epochs where a check looks at what was learnt, fewer when it does so again on other memory, else two."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it one check is left out
    if not check.func.__name__.endswith("_train"):
        estimator = clone(estimator).set_params(epochs=2)
    elif check.keywords:
        estimator = clone(estimator).set_params(epochs=8)
    check(estimator)


# --- who holds what ---------------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(1, 9))
@settings(max_examples=12, deadline=None)
def test_a_number_of_parties_shares_all_columns_out_once(columns, parties):
    X = rows(columns=columns)
    fitted = VerticalRegressor(parties, epochs=1, random_state=0, **TINY).fit(X, X[:, 0])
    assert len(fitted.parties_) == min(parties, columns)
    assert np.concatenate(list(fitted.parties_.values())).tolist() == list(range(columns))
    widths = {party: share.size for party, share in fitted.parties_.items()}
    assert {party: fitted.models_[party]["bottom"][0].in_features for party in widths} == widths
    assert max(widths.values()) - min(widths.values()) <= 1


def test_columns_may_be_named_and_the_names_reach_the_federation():
    frame = pd.DataFrame(rows(), columns=["income", "debt", "orders"])
    named = VerticalRegressor({"shop": ["orders"], "bank": ["debt", "income"]}, random_state=0).fit(frame, frame.debt)
    assert {party: share.tolist() for party, share in named.parties_.items()} == {"shop": [2], "bank": [1, 0]}
    assert named.feature_names_in_.tolist() == ["income", "debt", "orders"]
    positions = VerticalRegressor({"shop": [2], "bank": np.array([1, 0])}, random_state=0)
    positions.fit(frame.to_numpy(), frame.debt)
    assert np.array_equal(named.predict(frame), positions.predict(frame.to_numpy()))


def test_a_column_that_nobody_is_given_changes_nothing():
    X = rows()
    fitted = VerticalRegressor({"a": [0], "b": [2]}, epochs=2, random_state=0).fit(X, X[:, 0])
    elsewhere = X.copy()
    elsewhere[:, 1] = 1e9
    assert np.array_equal(fitted.predict(X), fitted.predict(elsewhere))
    elsewhere[:, 2] = 1e9
    assert not np.array_equal(fitted.predict(X), fitted.predict(elsewhere))


@pytest.mark.parametrize(
    ("parties", "words"),
    [
        (0, "parties is 0"),
        (2.0, "parties is of type float"),
        (True, "parties is of type bool"),
        ({}, "no party besides 'label'"),
        ({"label": [0]}, "no party besides 'label'"),
        ({"a": [0], "b": [0]}, "both 'a' and 'b'"),
        ({"a": [1, 1]}, "'a' twice"),
        ({"a": []}, "'a' is given no column"),
        ({"a": [3]}, "position 3; X has 3 columns"),
        ({"a": [-1]}, "position -1"),
        ({"a": [True]}, "of type bool"),
        ({"a": "income"}, "a list of names or positions"),
        ({"a": ["incme"]}, "Did you mean 'income'?"),
        ({1: [0]}, "name parties by text"),
        ({"a b": [0]}, "The party name 'a b' will not do"),
    ],
)
def test_a_wrong_share_is_refused_with_the_party_and_the_remedy(parties, words):
    frame = pd.DataFrame(rows(), columns=["income", "debt", "orders"])
    with pytest.raises((SettingsError, DataError), match=re.escape(words)):
        VerticalRegressor(parties).fit(frame, frame.debt)


def test_names_need_a_frame():
    with pytest.raises(SettingsError, match="X has no column names"):
        VerticalRegressor({"a": ["income"]}).fit(rows(), np.arange(24))


# --- the model is the one that was trained ----------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["vafl", "split", "centralised", colonnade.Vafl(wait_for=2, warm_up=True)])
def test_predictions_are_those_of_the_trained_federation(algorithm):
    X = rows(20, 4)
    y = np.arange(20) % 3
    # Standardised beforehand, and by nobody else.
    classifier = VerticalClassifier(
        {"label": [3], "a": [0], "b": [1, 2]},
        algorithm=algorithm,
        epochs=3,
        batch_size=5,
        learning_rate=0.01,
        l2=0.1,
        standardise=False,
        random_state=7,
        **TINY,
    ).fit(X, y)

    def held(*columns: int) -> PartyColumns:
        own = torch.tensor(X[:, list(columns)], dtype=torch.float32)
        return PartyColumns(own, own[:0], tuple(map(str, columns)))

    labels = Labels(torch.tensor(y), torch.tensor(y[:0]), "multiclass", (0, 1, 2))
    columns = {"a": held(0), "b": held(1, 2), "label": held(3)}
    training = colonnade.Training(epochs=3, batch_size=5, learning_rate=0.01, optimiser="adam", l2=0.1)
    data = FederatedData("twin", "label", labels, columns, "")
    twin = colonnade.train(data, algorithm, training=training, seed=7, **TINY)
    expected = twin.outputs({party: own.train for party, own in columns.items()}).numpy()
    np.testing.assert_allclose(classifier.decision_function(X), expected, rtol=1e-4, atol=1e-5)
    assert classifier.summary_["exchanges"] == twin.summary["exchanges"]


def test_linear_bottoms_and_a_sum_find_the_line():
    X = rows(40, 2)
    y = 2 * X[:, 0] - 3 * X[:, 1] + 100
    line = VerticalRegressor(2, optimiser="sgd", learning_rate=0.1, epochs=60, random_state=0, **LINEAR).fit(X, y)
    np.testing.assert_allclose(line.predict([[0, 0], [1, 0], [0, 1]]), [100, 102, 97], atol=1e-3)


def test_a_module_of_the_users_own_is_used_and_left_alone():
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(1, 2)
            self.dropout = nn.Dropout(0.1)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.dropout(self.linear(inputs)) * torch.tensor([2.0, 2.0])

    X = rows(40, 2)
    module = Doubled()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    given = VerticalRegressor({"a": [0], "b": [1]}, bottom={"a": module}, learning_rate=0.01, random_state=0)
    fitted = clone(given).fit(X, X[:, 0])
    assert isinstance(fitted.models_["a"]["bottom"], Doubled)
    assert isinstance(fitted.models_["b"]["bottom"], nn.Sequential)
    assert fitted.score(X, X[:, 0]) > 0.9
    assert np.array_equal(fitted.predict(X), fitted.predict(X))  # dropout is off
    assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in before.items())
    given.fit(X, X[:, 0])
    assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in before.items())


def test_rows_are_predicted_alike_in_any_number():
    X = rows(ROWS_A_BLOCK + 2, 2)
    fitted = VerticalRegressor(2, epochs=1, random_state=0, **TINY).fit(X[:50], X[:50, 0])
    together = fitted.predict(X)
    assert together.shape == (ROWS_A_BLOCK + 2,)
    np.testing.assert_allclose(together[-2:], fitted.predict(X[-2:]), rtol=1e-12)


# --- noise and clip ---------------------------------------------------------------------------------------------


def test_predictions_obey_the_clip_of_what_feature_parties_send():
    X = rows(30, 3)
    y = X.sum(1)
    far = X * 1e6
    parties = {"a": [0], "b": [1], "label": [2]}
    clipped = VerticalRegressor(parties, clip=0.5, epochs=2, random_state=0, **LINEAR).fit(X, y)
    at = (far[:, 2] - clipped.mean_[2]) / clipped.deviation_[2]
    linear = clipped.models_["label"]["bottom"][0]
    own = at * linear.weight.item() + linear.bias.item()
    bias = clipped.models_["label"]["top"][1].bias.item()
    sent = (clipped.predict(far) - clipped.target_mean_) / clipped.target_deviation_ - own - bias
    # Two embeddings of one number, each −0.5 or 0.5 so far out.
    np.testing.assert_allclose(np.abs(np.abs(sent) - 0.5), 0.5, atol=1e-4)
    clipped.set_params(clip=0.0)  # of the next fit, not of this one
    np.testing.assert_array_equal(
        (clipped.predict(far) - clipped.target_mean_) / clipped.target_deviation_ - own - bias, sent
    )


def test_nothing_is_clipped_where_nothing_was_sent():
    X = rows(30, 2)
    alone = VerticalRegressor(2, algorithm="centralised", clip=0.5, epochs=2, random_state=0, **LINEAR).fit(X, X[:, 0])
    assert np.abs(alone.predict(X * 1e6)).max() > 1e3


def test_noise_is_accounted_for_in_training_and_absent_from_predictions():
    X = rows(30, 2)
    noised = VerticalRegressor(2, noise=1.0, clip=1.0, epochs=2, random_state=0).fit(X, X[:, 0])
    assert noised.summary_["privacy"]["events"]
    assert np.array_equal(noised.predict(X), noised.predict(X))
    plain = VerticalRegressor(2, clip=1.0, epochs=2, random_state=0).fit(X, X[:, 0])
    assert not plain.summary_["privacy"]["events"]
    assert not np.array_equal(noised.predict(X), plain.predict(X))


# --- scales -----------------------------------------------------------------------------------------------------


@given(st.integers(-30, 30), st.integers(-30, 30))
@settings(max_examples=10, deadline=None)
def test_powers_of_two_in_units_change_no_digit(column_power, target_power):
    X = rows(20, 2)
    y = X[:, 0] - X[:, 1]
    plain = VerticalRegressor(2, epochs=1, random_state=0, **TINY).fit(X, y)
    unit = np.array([2.0**column_power, 1.0])
    scaled = VerticalRegressor(2, epochs=1, random_state=0, **TINY).fit(X * unit, y * 2.0**target_power)
    assert np.array_equal(scaled.predict(X * unit), plain.predict(X) * 2.0**target_power)


def test_standardising_uses_the_rows_of_fit_alone():
    X = np.array([[1.0], [3.0]] * 10)
    fitted = VerticalRegressor(epochs=1, random_state=0).fit(X, X[:, 0])
    assert (fitted.mean_.tolist(), fitted.deviation_.tolist()) == ([2.0], [1.0])
    assert fitted.predict([[3.0]])[0] == fitted.predict(X)[1]  # and not its own mean, which would make it a 2


def test_a_constant_column_stays_without_effect():
    X = rows(20, 2)
    X[:, 1] = 0.1
    fitted = VerticalRegressor(2, epochs=2, random_state=0).fit(X, X[:, 0])
    elsewhere = X.copy()
    elsewhere[:, 1] = 1e9
    assert np.array_equal(fitted.predict(elsewhere), fitted.predict(X))


def test_a_constant_target_is_predicted_exactly():
    X = rows()
    assert VerticalRegressor(epochs=1).fit(X, np.full(24, 0.1)).predict(X).tolist() == [0.1] * 24


def test_values_too_large_are_refused_without_being_shown():
    X, y = rows(), np.arange(24.0)
    for standardise, largest in ((True, 1e300), (False, 1e39)):
        X[0, 1] = largest
        with pytest.raises(DataError) as refused:
            VerticalRegressor(standardise=standardise).fit(X, y)
        assert "e+" not in str(refused.value)
    X[0, 1], y[0] = 0, 1e300
    with pytest.raises(DataError, match="Values in y"):
        VerticalRegressor().fit(X, y)


# --- scikit-learn's company -------------------------------------------------------------------------------------


def test_class_names_may_be_text_and_binary_scores_are_one_number_a_row():
    X = rows(60, 2)
    y = np.where(X[:, 0] > 0, "pays", "defaults")
    classifier = VerticalClassifier(2, learning_rate=0.01, random_state=0).fit(X, y)
    assert classifier.classes_.tolist() == ["defaults", "pays"]
    assert classifier.score(X, y) > 0.9
    logits, probabilities = classifier.decision_function(X), classifier.predict_proba(X)
    assert logits.shape == (60,) and probabilities.shape == (60, 2)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-logits)))
    assert np.array_equal(classifier.predict(X), np.where(logits > 0, "pays", "defaults"))


def test_one_class_is_refused_as_both_families_of_errors_would():
    with pytest.raises(OneClassError, match="all of one class") as refused:
        VerticalClassifier().fit(rows(), ["secret"] * 24)
    assert isinstance(refused.value, ValueError) and isinstance(refused.value, ColonnadeError)
    assert "secret" not in str(refused.value)


def test_the_random_state_decides_everything():
    X, y = rows(), np.arange(24) % 2

    def predicted(random_state):
        classifier = VerticalClassifier(2, epochs=1, random_state=random_state).fit(X, y)
        return classifier.summary_["seed"], classifier.predict_proba(X).tolist()

    assert predicted(3) == predicted(np.int64(3))
    assert predicted(3)[0] == 3
    assert predicted(3)[1] != predicted(4)[1]
    assert predicted(np.random.RandomState(5)) == predicted(np.random.RandomState(5))
    shared = np.random.RandomState(5)
    assert predicted(shared)[0] != predicted(shared)[0]
    assert predicted(None)[0] != predicted(None)[0]


def test_it_takes_part_in_pipelines_searches_and_cross_validation():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(PCA(3), VerticalClassifier(epochs=10, random_state=0))
    grid = {
        "verticalclassifier__parties": [1, 3],
        "verticalclassifier__learning_rate": np.array([1e-6, 1e-2]),
        "verticalclassifier__algorithm": ["vafl", colonnade.Vafl(wait_for=1, warm_up=True)],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_["verticalclassifier__learning_rate"] == 1e-2
    assert search.best_score_ > 0.9
    assert cross_val_score(VerticalClassifier(random_state=0), X, y, cv=2, error_score="raise").min() > 0.85


@pytest.mark.parametrize(
    ("load", "ours", "linear", "behind"),
    [
        (load_iris, VerticalClassifier, LogisticRegression(max_iter=1000), 0.03),
        (load_breast_cancer, VerticalClassifier, LogisticRegression(max_iter=1000), 0.02),
        (load_diabetes, VerticalRegressor, Ridge(), 0.15),
    ],
)
def test_the_defaults_learn_small_tables(load, ours, linear, behind):
    X, y = load(return_X_y=True)
    reference = cross_val_score(make_pipeline(StandardScaler(), linear), X, y, cv=3).mean()
    assert cross_val_score(ours(random_state=0), X, y, cv=3).mean() > reference - behind


def test_the_run_is_kept_and_can_be_watched(capsys):
    X = rows(30, 2)
    fitted = VerticalRegressor(2, epochs=3, batch_size=10, random_state=0, verbose=1).fit(X, X[:, 0])
    assert fitted.summary_["exchanges"] == 3 * 3 * 2  # epochs × batches × parties
    losses = [line["loss"] for line in fitted.history_ if line["loss"] is not None]
    assert len(losses) == 3
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"epoch {1 + i}: training loss {loss:.4g}" for i, loss in enumerate(losses)]
    fitted.set_params(verbose=0).fit(X, X[:, 0])
    assert capsys.readouterr().out == ""


def test_a_slow_party_costs_virtual_time():
    X = rows(30, 2)
    slow = colonnade.Simulate(parties={"party2": colonnade.SimulatedParty(slowdown=10.0)})
    seconds = [
        VerticalRegressor(2, algorithm="split", epochs=1, simulate=world, random_state=0)
        .fit(X, X[:, 0])
        .summary_["virtual_seconds"]
        for world in (None, slow)
    ]
    assert seconds[1] > 5 * seconds[0]


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("algorithm", "valf", "Did you mean 'vafl'?"),
        ("optimiser", "adm", "Did you mean 'adam'?"),
        ("epochs", "many", "epochs is of type str"),
        ("epochs", 0, "training.epochs is 0"),
        ("batch_size", 2.5, "batch_size is of type float"),
        ("batch_size", 0, "training.batch_size is 0"),
        ("learning_rate", True, "learning_rate is of type bool"),
        ("clip", -1, "'clip' is -1"),
        ("bottom", "linear", "bottom is of type str; give a BottomSettings or a torch.nn.Module"),
        ("bottom", {"party1": None}, "bottom of 'party1' is of type NoneType"),
        ("bottom", {"party9": colonnade.BottomSettings()}, "There is no party with columns 'party9'"),
        ("top", "sum", "top is of type str"),
        ("simulate", {"loss": 0.1}, "simulate is of type dict; give a Simulate."),
    ],
)
def test_a_wrong_parameter_is_named(parameter, value, words):
    estimator = VerticalRegressor(**{parameter: value})  # stored as given; judged by fit
    assert estimator.get_params()[parameter] is value
    with pytest.raises(SettingsError, match=re.escape(words)):
        estimator.fit(rows(), np.arange(24.0))


def test_what_cannot_be_done_is_said_in_scikit_learns_words():
    with pytest.raises(TypeError, match="Sparse data"):
        VerticalRegressor().fit(csr_matrix(rows()), np.arange(24.0))
    with pytest.raises(NotFittedError):
        VerticalRegressor().predict(rows())
    with pytest.raises(ValueError, match="NaN"):
        VerticalRegressor().fit(np.full((24, 2), np.nan), np.arange(24.0))


# --- every algorithm, with the defaults --------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", colonnade.algorithms.ALGORITHMS)
def test_every_algorithm_learns_with_defaults(algorithm: str) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[50:], y[50:]  # two flowers that are nearly alike
    classifier = VerticalClassifier(2, algorithm=algorithm, epochs=10, random_state=0).fit(X, y)
    assert classifier.score(X, y) > 0.85


def test_a_search_over_algorithms() -> None:
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        VerticalClassifier(2, epochs=3, random_state=0), {"algorithm": ["vafl", "afsaga", "dpzv"]}, cv=2
    )
    assert search.fit(X, y).best_score_ > 0.6


# --- weights and the threshold ----------------------------------------------------------------------------------


def test_weights_change_what_is_learnt_as_they_do_elsewhere():
    """Twins that hold every label once: where only one of them weighs something, its label is predicted."""
    X = np.repeat(rows(40), 2, axis=0)
    y = np.array(["left", "right"] * 40)
    quick = VerticalClassifier(2, algorithm="fcg", epochs=5, random_state=0)
    for chosen in ("left", "right"):
        by_row = clone(quick).fit(X, y, sample_weight=np.where(y == chosen, 3.0, 0.5))
        by_class = clone(quick).set_params(class_weight={"left": 0.5, "right": 0.5, chosen: 3.0}).fit(X, y)
        assert set(by_row.predict(X)) == set(by_class.predict(X)) == {chosen}
        np.testing.assert_array_equal(by_row.decision_function(X), by_class.decision_function(X))
    alike = clone(quick).fit(X, y, sample_weight=np.full(80, 7.0))
    np.testing.assert_array_equal(alike.decision_function(X), clone(quick).fit(X, y).decision_function(X))
    low, high = (clone(quick).set_params(threshold=at).fit(X, y) for at in (0.01, 0.99))
    assert set(low.predict(X)) == {"right"} and set(high.predict(X)) == {"left"}
    y[1::2] = "left"
    y[:20] = "right"
    found = clone(quick).set_params(threshold="auto", class_weight={"right": 20.0}).fit(X, y)
    assert found.threshold_ > 0.6
    assert found.score(X, y) >= max(np.mean(y == "left"), clone(found).set_params(threshold=0.5).fit(X, y).score(X, y))


def test_a_regressor_takes_weights_of_rows_and_none_of_classes():
    X = np.repeat(rows(30), 2, axis=0)
    y = np.tile([1.0, 5.0], 30)
    fitted = VerticalRegressor(2, algorithm="fcg", epochs=5, l2=1e-6, random_state=0).fit(
        X, y, sample_weight=np.tile([3.0, 1.0], 30)
    )
    np.testing.assert_allclose(fitted.predict(X), 2.0, atol=1e-3)
    with pytest.raises(SettingsError, match="a regression has none"):
        VerticalRegressor(2, class_weight="balanced", random_state=0).fit(X, y)
    with pytest.raises(DataError, match="sample_weight is negative in 30 of the 60"):
        fitted.fit(X, y, sample_weight=np.tile([3.0, -1.0], 30))


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VerticalClassifier, VerticalRegressor])
def test_what_was_fitted_is_saved_and_loaded(kind, tmp_path):
    X = pd.DataFrame(rows(), columns=["a", "b", "c"])
    y = np.where(X["a"] > 0, "yes", "no") if kind is VerticalClassifier else X["a"] * 7 + 3
    fitted = kind({"shop": ["a"], "label": ["b"]}, epochs=2, random_state=0, **TINY).fit(X, y)
    again = kind.load(fitted.save(tmp_path / "kept"))
    assert np.array_equal(again.predict(X), fitted.predict(X)) and again.score(X, y) == fitted.score(X, y)
    assert again.get_params()["epochs"] == 2 and again.summary_ == fitted.summary_
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"a": "z"}))
    other = VerticalRegressor if kind is VerticalClassifier else VerticalClassifier
    with pytest.raises(DataError, match=f"cannot be a {other.__name__}"):
        other.load(tmp_path / "kept")


def test_a_folder_that_holds_no_estimator_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        VerticalClassifier().save(tmp_path)
    with pytest.raises(DataError, match="holds no estimator"):
        VerticalClassifier.load(tmp_path)
    (tmp_path / "estimator.json").write_text('{"estimator": "VerticalClassifier", "fitted": 3}', encoding="utf-8")
    with pytest.raises(DataError, match="is damaged"):
        VerticalClassifier.load(tmp_path)
