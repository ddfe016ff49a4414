"""A linear model as an object of scikit-learn, over the prepared columns; kept as JSON, never as a pickle.

Of one party it gives that party's part of the output: add up what `predict` (or `decision_function`) of all parties'
objects gives for the same rows. Where all models are in one place, it is the whole model.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import DataError
from colonnade.exports.coefficients import check_ending, column_names, holder_of, linear_parts, write_export
from colonnade.files import json_of, read_whole
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.saved_model import SavedModel

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge

CLASSES = ("LogisticRegression", "Ridge")


def to_sklearn(model: JointModel | SavedModel) -> "LogisticRegression | Ridge":
    """A fitted LogisticRegression where classes are known, at the label party; else a Ridge."""
    return from_values(sklearn_values(model))


def sklearn_values(model: JointModel | SavedModel) -> dict[str, Any]:
    """The same as plain values."""
    parts = linear_parts(model)
    label = (model.parties[model.label_party] if isinstance(model, JointModel) else model).description
    weights = np.concatenate([part.weights for part in parts]).T
    constant = np.sum([part.constant for part in parts], axis=0)
    columns = [name for part in parts for name in column_names(holder_of(model, part.party), len(part.weights))]
    values: dict[str, Any] = {"class": "Ridge", "columns": columns}
    if label.label is not None and label.task != "regression":
        values |= {"class": "LogisticRegression", "classes_": list(label.label.classes)}
    elif isinstance(model, JointModel):
        weights, constant = weights * model.unit.deviation, constant * model.unit.deviation + model.unit.mean
    return {**values, "coef_": weights.tolist(), "intercept_": constant.tolist()}


def from_values(values: Mapping[str, Any]) -> "LogisticRegression | Ridge":
    """The object that such values describe."""
    from sklearn.linear_model import LogisticRegression, Ridge

    coefficients, intercept = np.array(values["coef_"], dtype=np.float64), np.array(values["intercept_"])
    found: Any
    if values["class"] == "LogisticRegression":
        found = LogisticRegression()
        found.classes_ = np.array(values["classes_"])
        found.n_iter_ = np.zeros(1, dtype=np.int32)
    else:
        found = Ridge()
        if len(intercept) == 1:
            coefficients, intercept = coefficients[0], intercept[0]
    found.coef_, found.intercept_ = coefficients, intercept
    found.n_features_in_ = coefficients.shape[-1]
    return found


def write_sklearn(model: JointModel | SavedModel, path: Path) -> None:
    """Its values as a JSON file."""
    check_ending(path, (".json",))
    write_export(path, json.dumps(sklearn_values(model), indent=1).encode())


def read_sklearn(path: str | Path) -> "LogisticRegression | Ridge":
    """The object from a file that `colonnade export --to sklearn` wrote."""
    try:
        values = json_of(read_whole(Path(path), links=True))
        if values["class"] in CLASSES:
            return from_values(values)
    except FileNotFoundError:
        raise DataError(f"There is no file {str(path)!r}.") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        pass
    raise DataError(f"{str(path)!r} is not what `colonnade export --to sklearn` wrote.")
