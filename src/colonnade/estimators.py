"""`VerticalClassifier` and `VerticalRegressor`: a federation in one process behind scikit-learn's interface.

`fit` shares the columns of X out to parties and trains with `colonnade.train`; `predict` runs the joint model in this
process. Predictions take part in the clipping, which belongs to the model, but not in the noise, which protects what
is sent: nothing is sent here. The same `random_state` gives the same predictions.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.losses import best_threshold, log_odds
from colonnade.algorithms.training import AUTO, Training
from colonnade.data.alignment import row_digest
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.data.partition import equal_columns
from colonnade.data.sources import nearest
from colonnade.data.weights import NONE, checked_weights
from colonnade.errors import DataError, SettingsError
from colonnade.federation.plan import Bottoms
from colonnade.files import json_of, json_text, read_private, write_atomically
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.dense import is_dense
from colonnade.models.network import network_for
from colonnade.models.top import TopSettings
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import SavedModel
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.runtimes.simulate.settings import Simulate

LABEL_PARTY = "label"
"""Who holds y, and columns too if `parties` gives it some."""

FITTED = "estimator.json"
FORMAT = 1
"""Of that file. A reader refuses a higher one."""
_FITTED = (
    *("parties_", "mean_", "deviation_", "n_features_in_", "feature_names_in_", "summary_", "history_", "_clip"),
    *("classes_", "threshold_", "target_mean_", "target_deviation_"),
)

ROWS_A_BLOCK = 4096
"""How many rows are predicted at a time: bounds the memory of the hidden layers."""

Array = NDArray[Any]


class OneClassError(DataError, ValueError):
    """All labels are of one class; scikit-learn asks that this be a ValueError."""


class _VerticalEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share.

    Inherited, and not composed, because scikit-learn reads an estimator's parameters off its constructor.
    """

    def __init__(
        self,
        parties: int | Mapping[str, Iterable[str | int]] = 4,
        *,
        algorithm: Any = algorithms.DEFAULT,
        epochs: float = Training.epochs,
        batch_size: int | str = AUTO,
        learning_rate: float | str = AUTO,
        optimiser: str = AUTO,
        l2: float | str = AUTO,
        l1: float = 0.0,
        class_weight: str | Mapping[Any, float] | None = None,
        threshold: float | str = Training.threshold,
        bottom: Bottoms | None = None,
        top: TopSettings | nn.Module | None = None,
        noise: float = 0.0,
        clip: float = 0.0,
        simulate: Simulate | None = None,
        standardise: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        precision: str = Training.precision,
        device: str | Mapping[str, str] = "cpu",
    ) -> None:
        self.parties = parties
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.l2 = l2
        self.l1 = l1
        self.class_weight = class_weight
        self.threshold = threshold
        self.bottom = bottom
        self.top = top
        self.noise = noise
        self.clip = clip
        self.simulate = simulate
        self.standardise = standardise
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose
        self.precision = precision
        self.device = device

    def _train(self, X: Array, labels: Labels) -> None:
        """Share the columns out, train, and keep what came out."""
        rows, features = X.shape
        training = Training(
            epochs=_number("epochs", self.epochs),
            batch_size=AUTO if self.batch_size == AUTO else min(_whole("batch_size", self.batch_size), rows),
            learning_rate=AUTO if self.learning_rate == AUTO else _number("learning_rate", self.learning_rate),
            optimiser=self.optimiser,
            precision=self.precision,
            l2=AUTO if self.l2 == AUTO else _number("l2", self.l2),
            l1=_number("l1", self.l1),
            class_weight=_class_weight(self.class_weight),
            threshold=AUTO if self.threshold == AUTO else _number("threshold", self.threshold),
            # There are no test rows: scikit-learn's own tools hold them.
            evaluate_every_epochs=1 if self.early_stopping else 0,
            early_stopping=_whole("n_iter_no_change", self.n_iter_no_change) if self.early_stopping else 0,
            observe_every_epochs=1,
        )
        privacy = PerturbationSettings(noise=_number("noise", self.noise), clip=_number("clip", self.clip))
        self._check_objects()
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        self.parties_ = _shares(self.parties, features, names)
        self.mean_, self.deviation_ = np.zeros(features), np.ones(features)
        if self.standardise:
            self.mean_, self.deviation_ = _mean_and_deviation(X, "X")
        data = FederatedData(
            name=type(self).__name__,
            label_party=LABEL_PARTY,
            labels=labels,
            columns={
                party: _party_columns(party, values, self.parties_[party], names)
                for party, values in self._shared_out(X)
            },
            row_digest=row_digest(np.arange(rows), np.arange(0)),
        )
        seed = _seed(self.random_state)
        if self.early_stopping:
            data = data.with_validation(_number("validation_fraction", self.validation_fraction), seed)
        outcome = train(
            data,
            self.algorithm,
            training=training,
            bottom=self.bottom,
            top=self.top,
            privacy=privacy,
            simulate=self.simulate,
            seed=seed,
            watch=_print_line if self.verbose else None,
            device=self.device,
        )
        self._clip = privacy.clip
        self.models_ = outcome.models
        self.summary_ = outcome.summary
        self.history_ = outcome.metrics
        self._descriptions = {name: saved.description for name, saved in outcome.model.parties.items()}

    def save(self, folder: str | Path) -> Path:
        """Write what was fitted, and every party's model as a folder of its own; for `load`. Nothing is pickled."""
        check_is_fitted(self, "models_")
        parties = {
            name: SavedModel(description, self.models_[name]) for name, description in self._descriptions.items()
        }
        place = JointModel(parties, LABEL_PARTY).save(folder)
        fitted = {name: _written(value) for name, value in vars(self).items() if name in _FITTED}
        kept = {"estimator": type(self).__name__, "format": FORMAT, "fitted": fitted, "told": self._told()}
        write_atomically(place / FITTED, json_text(kept))
        return place

    @classmethod
    def load(cls, folder: str | Path, modules: Mapping[str, Mapping[str, nn.Module]] | None = None) -> Self:
        """What `save` wrote, ready to predict. `modules`: those of your own, as `colonnade.load_model` takes them.

        Parameters that are plain values are those of before; others, such as settings of a model, are only in what was
        fitted, and have their defaults if it is fitted anew.
        """
        path = Path(folder) / FITTED
        try:
            kept = json_of(read_private(path))
            whose, told = str(kept["estimator"]), dict(kept["told"])
            fitted = {name: _read(value) for name, value in kept["fitted"].items() if name in _FITTED}
            is_known = int(kept["format"]) <= FORMAT and {"parties_", "n_features_in_"} <= {*fitted}
        except FileNotFoundError:
            raise DataError(f"{folder} holds no estimator: there is no {FITTED} in it.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise DataError(f"{path} is damaged: it is not what was written. Save the estimator again.") from None
        if whose != cls.__name__ or not is_known:
            raise DataError(f"{path} is of a {whose} or of a later version, and cannot be a {cls.__name__}.")
        model = load_model(folder, modules)
        if not isinstance(model, JointModel):
            raise DataError(f"{folder} holds the model of one party alone: an estimator needs those of all.")
        made = cls(**{name: value for name, value in told.items() if name in cls._get_param_names()})
        for name, value in fitted.items():
            setattr(made, name, value)
        made.models_ = {name: saved.modules for name, saved in model.parties.items()}
        made._descriptions = {name: saved.description for name, saved in model.parties.items()}
        return made

    def _told(self) -> dict[str, Any]:
        """Its parameters, as far as they are plain values."""
        parties = {"parties": {name: share.tolist() for name, share in self.parties_.items()}}
        return {name: value for name, value in {**vars(self), **parties}.items() if name in self._plain_parameters()}

    def _plain_parameters(self) -> list[str]:
        plain = [name for name in self._get_param_names() if type(getattr(self, name)) in (int, float, str, bool)]
        return [*plain, "parties"]

    def _check_objects(self) -> None:
        bottoms = self.bottom if isinstance(self.bottom, Mapping) else {} if self.bottom is None else {"": self.bottom}
        for party, bottom in bottoms.items():
            _check_type(f"bottom of {party!r}" if party else "bottom", bottom, BottomSettings, nn.Module)
        if self.top is not None:
            _check_type("top", self.top, TopSettings, nn.Module)
        if self.simulate is not None:
            _check_type("simulate", self.simulate, Simulate)

    def _shared_out(self, X: Array) -> Iterator[tuple[str, Array]]:
        """Each party's own columns, standardised."""
        for party, share in self.parties_.items():
            deviation = self.deviation_[share]
            # A constant column carries nothing to learn from and becomes 0, also where it is not constant any more.
            yield party, (X[:, share] - self.mean_[share]) / np.where(deviation == 0, np.inf, deviation)

    def _outputs(self, X: ArrayLike) -> Array:
        """The joint model's outputs in float64, [rows, outputs]."""
        check_is_fitted(self, "models_")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        own = self.models_[LABEL_PARTY]
        embeddings = []
        for party, values in self._shared_out(rows):
            alone = own.get(f"bottom of {party}")  # the algorithm trained in one place
            bottom = self.models_[party]["bottom"] if alone is None else alone
            # What was not sent was not clipped either.
            sent = alone is None and party != LABEL_PARTY
            embeddings.append(_run(bottom, values, self._clip if sent else 0.0))
        return _run(own["top"], np.concatenate(embeddings, axis=1))


class VerticalClassifier(ClassifierMixin, _VerticalEstimator):  # type: ignore[misc]
    """A classifier whose columns lie with several parties.

    Parameters
    ----------
    parties : how many feature parties share the columns, contiguous and equally many (never more than there are
        columns); or for each party by name the names or positions of its columns. The party "label" holds y, and
        columns of its own if some are given to it. A column that nobody is given is not used.
    algorithm : an algorithm's name, or its settings such as `colonnade.Vafl(wait_for=2)`.
    epochs, batch_size, learning_rate, optimiser : how the models are trained. What is "auto", the algorithm chooses, as
        everywhere in Colonnade; "adam", "momentum" or "sgd" otherwise. A batch is never larger than the table.
    l2, l1 : regularisers of the feature parties' models.
    class_weight : what a row of each class weighs in the loss: None, "balanced", or a weight for each class (1 for one
        that is left out). With `sample_weight` of `fit`, the two are multiplied.
    threshold : of two classes, `predict` gives the second above this probability; "auto": above the one with which most
        rows of `fit` are predicted right.
    bottom, top : settings or torch modules; `bottom` also one for each party by name. With
        `BottomSettings("linear")` and `TopSettings("sum")` this is logistic regression.
    noise, clip : deviation of the Gaussian noise on what feature parties send while training, and norm bound of each
        row of it; 0 switches them off. What that guarantees, if anything, `summary_["privacy"]` says.
    simulate : the simulated world (delays, stragglers, crashes); None takes the defaults of `colonnade.Simulate`.
    standardise : whether every column is brought to mean 0 and deviation 1 of the rows of `fit`.
    early_stopping, validation_fraction, n_iter_no_change : with `early_stopping`, such a share of the rows is not
        trained on but scored once an epoch; the training ends when so many epochs in a row have brought nothing
        better, and the model that scored best is used.
    random_state : None, a seed (then also the federation's seed), or a numpy RandomState.
    verbose : above 0, the training loss is printed once an epoch.
    precision : how embeddings and gradients are sent: "float32" (as they are), "bfloat16", "float16" or "int8".
    device : where models compute: "cpu", "cuda", "mps" or "auto", of all parties or by party.

    Attributes
    ----------
    classes_ : the classes, in the order of `predict_proba`'s columns.
    threshold_ : the probability above which the second of two classes is predicted.
    n_features_in_, feature_names_in_ : what `fit` was given.
    parties_ : for each party the positions of its columns.
    mean_, deviation_ : what the columns were standardised with; a column of deviation 0 is taken as 0 throughout.
    models_ : for each party its trained torch modules, by name.
    summary_, history_ : the run's summary and its training loss by epoch, as in summary.json and metrics.jsonl.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = VerticalClassifier(parties=2, random_state=0).fit(X, y)
    >>> bool(classifier.score(X, y) > 0.9), classifier.summary_["exchanges"]
    (True, 400)
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise OneClassError(
                f"The labels of the {len(index)} rows in y are all of one class, so there is nothing to learn: "
                "give rows of at least two classes."
            )
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        targets = torch.from_numpy(index.astype(np.int64))
        weights = _sample_weight(sample_weight, rows)
        self._train(rows, Labels(targets, targets[:0], task, tuple(self.classes_.tolist()), weights=weights))
        if self.threshold == AUTO:
            self.threshold_ = best_threshold(torch.from_numpy(self._outputs(X)), targets) if task == "binary" else 0.5
        else:
            self.threshold_ = float(self.threshold)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """The logits: one a class, [rows, classes]; of two classes that of the second one alone, [rows]."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probability of each class, [rows, classes]."""
        logits = torch.from_numpy(self._outputs(X))
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], 1)  # σ(z) is the softmax of (0, z)
        probabilities: Array = torch.softmax(logits, 1).numpy()
        return probabilities

    def predict(self, X: ArrayLike) -> Array:
        """The most probable class of each row; of two classes the second if it is above `threshold`."""
        logits = self.decision_function(X)
        index = (logits > log_odds(self.threshold_)).astype(np.intp) if logits.ndim == 1 else logits.argmax(axis=1)
        predicted: Array = self.classes_[index]
        return predicted


class VerticalRegressor(RegressorMixin, _VerticalEstimator):  # type: ignore[misc]
    """A regressor whose columns lie with several parties; it minimises the squared error.

    Parameters and attributes are those of `VerticalClassifier`, but for those of classes: `class_weight`,
    `threshold`, `threshold_` and `classes_`. The target is standardised while
    training, whatever `standardise` says, and losses in `summary_` and `history_` are in that unit: 1 is what the mean
    of y would give. Predictions are in the unit of y. With `BottomSettings("linear")`, `TopSettings("sum")` and `l2`
    this is ridge regression.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = VerticalRegressor(parties={"clinic": [0, 1, 2, 3], "laboratory": range(4, 10)}, random_state=0)
    >>> bool(regressor.fit(X, y).score(X, y) > 0.4)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        rows, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        targets = np.asarray(values, dtype=np.float64)
        mean, deviation = _mean_and_deviation(targets[:, None], "y")
        self.target_mean_, self.target_deviation_ = float(mean[0]), float(deviation[0])
        standardised = (targets - self.target_mean_) / (self.target_deviation_ or 1.0)
        own = torch.from_numpy(standardised.astype(np.float32))
        self._train(rows, Labels(own, own[:0], "regression", (), weights=_sample_weight(sample_weight, rows)))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The predicted value of each row."""
        return self._outputs(X)[:, 0] * self.target_deviation_ + self.target_mean_


# --- who holds which columns ------------------------------------------------------------------------------------


def _shares(parties: Any, features: int, names: list[str]) -> dict[str, Array]:
    """The positions of each party's columns; the label party last, as the top model takes its embedding last."""
    if not isinstance(parties, Mapping):
        count = _whole("parties", parties)
        if count < 1:
            raise SettingsError(f"parties is {count}; give at least 1, or each party's columns by its name.")
        blocks = equal_columns(features, min(count, features))
        return {f"party{1 + i}": np.arange(features)[block] for i, block in enumerate(blocks)}
    held = {party: _positions(party, asked, features, names) for party, asked in parties.items()}
    owner: dict[int, str] = {}
    for party, share in held.items():
        for i in share.tolist():
            if i in owner:
                column = repr(names[i]) if names else f"at position {i}"
                whose = f"both {owner[i]!r} and {party!r}" if owner[i] != party else f"{party!r} twice"
                raise SettingsError(f"The column {column} is given to {whose}: leave it with one party in `parties`.")
            owner[i] = party
    own = {party: share for party, share in held.items() if party == LABEL_PARTY}
    others = {party: share for party, share in held.items() if party != LABEL_PARTY}
    if not others:
        raise SettingsError(f"parties names no party besides {LABEL_PARTY!r}: give at least one feature party columns.")
    return {**others, **own}


def _positions(party: Any, asked: Any, features: int, names: list[str]) -> Array:
    if not isinstance(party, str):
        raise SettingsError(f"parties has a name of type {type(party).__name__}; name parties by text.")
    if isinstance(asked, str | bytes) or not isinstance(asked, Iterable):
        raise SettingsError(f"Party {party!r}: give its columns as a list of names or positions.")
    found = []
    for column in asked:
        if isinstance(column, str):
            if not names:
                raise SettingsError(
                    f"Party {party!r} asks for the column {column!r} by name, but X has no column names: give X as a "
                    "DataFrame, or positions."
                )
            if column not in names:
                raise DataError(
                    f"Party {party!r} asks for the column {column!r}, which X does not have.{nearest(column, names)} "
                    "Mend `parties`."
                )
            found.append(names.index(column))
            continue
        position = _whole(f"Party {party!r}: a column", column)
        if not 0 <= position < features:
            raise DataError(
                f"Party {party!r} asks for the column at position {position}; X has {features} columns, so positions "
                f"go from 0 to {features - 1}."
            )
        found.append(position)
    if not found:
        raise SettingsError(f"Party {party!r} is given no column: give it one, or leave the party out.")
    return np.array(found, dtype=np.intp)


# --- what was fitted, in a file ---------------------------------------------------------------------------------


def _written(value: Any) -> Any:
    """A fitted attribute as JSON has it; of an array also its type."""
    if isinstance(value, np.ndarray):
        return {"type": str(value.dtype), "values": value.tolist()}
    if isinstance(value, Mapping) and any(isinstance(one, np.ndarray) for one in value.values()):
        return {"arrays": {name: _written(one) for name, one in value.items()}}
    return {"value": value}


def _read(value: Mapping[str, Any]) -> Any:
    if "type" in value:
        return np.array(value["values"], dtype=np.dtype(value["type"]))
    if "arrays" in value:
        return {name: _read(one) for name, one in value["arrays"].items()}
    return value["value"]


# --- numbers ----------------------------------------------------------------------------------------------------


def _mean_and_deviation(columns: Array, what: str) -> tuple[Array, Array]:
    """Of each column; exactly the value itself and 0 for a constant one."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = columns.mean(axis=0), columns.std(axis=0)
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise DataError(f"Values in {what} are so large that their mean or deviation is infinite: rescale {what}.")
    # Judged by range: rounding gives a constant 0.1 a tiny deviation, which would blow up other rows.
    constant = columns.max(axis=0) == columns.min(axis=0)
    return np.where(constant, columns[0], mean), np.where(constant, 0.0, deviation)


def _party_columns(party: str, values: Array, share: Array, names: list[str]) -> PartyColumns:
    if (np.abs(values) > np.finfo(np.float32).max).any():
        raise DataError(
            f"Party {party!r}: among its {len(share)} columns are values too large for a 32-bit float: rescale the "
            "columns of X, or set standardise=True."
        )
    held = tuple(names[i] if names else f"x{1 + i}" for i in share.tolist())
    own = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return PartyColumns(own, own[:0], held)


def _run(module: nn.Module, values: Array, clip: float = 0.0) -> Array:
    """A trained module's outputs, in float64.

    Dense models also compute in float64: in float32 a row's outputs would depend on the rows beside it, in the last
    digits. A user's own module may hold float32 constants, and is run as it was trained.
    """
    exact = is_dense(module)
    network = network_for(deepcopy(module).double() if exact else module)
    perturbation = LayerNoise(PerturbationSettings(clip=clip), torch.Generator()) if clip else None
    inputs = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64 if exact else np.float32))
    blocks = [network.embed(block, perturbation) for block in torch.split(inputs, ROWS_A_BLOCK)]
    outputs: Array = torch.cat(blocks).double().numpy()
    return outputs


def _class_weight(given: Any) -> Any:
    """As `Training` takes it, whose classes are named by text."""
    if isinstance(given, Mapping):
        return {str(name): _number(f"class_weight of {name!r}", weight) for name, weight in given.items()}
    return NONE if given is None else given


def _sample_weight(given: ArrayLike | None, X: Array) -> torch.Tensor | None:
    if given is None:
        return None
    # What scikit-learn refuses, it refuses here as elsewhere.
    return checked_weights(_check_sample_weight(given, X, dtype=np.float64), len(X), "sample_weight")


def _seed(random_state: Any) -> int:
    generator = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def _number(name: str, value: Any) -> float:
    """A parameter that is a number; numpy's are welcome, since searches draw them."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingsError(f"{name} is of type {type(value).__name__}; give a number.")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SettingsError(f"{name} is of type {type(value).__name__}; give a whole number.")
    return int(value)


def _check_type(name: str, value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds):
        wanted = " or a ".join(kind.__qualname__ if kind is not nn.Module else "torch.nn.Module" for kind in kinds)
        raise SettingsError(f"{name} is of type {type(value).__name__}; give a {wanted}.")


def _print_line(line: dict[str, Any]) -> None:
    if line["loss"] is not None:
        print(f"epoch {line['epoch']:g}: training loss {line['loss']:.4g}")
