"""What each training row weighs in the loss: the label party's own numbers, times what its class weighs.

Weights are divided by their mean over the training rows, so that learning rates and regularisers keep their meaning.
Where answers are noised to hide labels they are taken as they are: a mean, and "balanced", depend on every label, and
the guarantee is that one label moves one row's part of an answer alone.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from colonnade.data.federated import Labels
from colonnade.errors import DataError, SettingsError, unknown_name

NONE, BALANCED = "none", "balanced"


def check_class_weight(class_weight: str | Mapping[Any, Any]) -> None:
    """Refuse what no classes could be weighed by, whatever their names are."""
    if not isinstance(class_weight, Mapping):
        if class_weight not in (NONE, BALANCED):
            raise unknown_name("value of training.class_weight", str(class_weight), (NONE, BALANCED))
        return
    for name, weight in class_weight.items():
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
            raise SettingsError(
                f"training.class_weight of the class {str(name)!r} is {weight}; it must be a number of 0 or more."
            )


def checked_weights(values: Any, rows: int, what: str) -> torch.Tensor:
    """One weight per row in float64; `what` they are begins the sentence that refuses them."""
    try:
        if hasattr(values, "to_numpy"):  # of pandas, whose gaps are no numbers
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        weights = np.array(values, dtype=np.float64)  # a copy, as pandas hands out arrays that may not be written to
    except (TypeError, ValueError):
        raise DataError(f"{what} is not numeric: give a number of 0 or more for each row.") from None
    if weights.shape != (rows,):
        raise DataError(f"{what} has shape {list(weights.shape)}, but there are {rows} rows: give one number per row.")
    for problem, bad in (("missing", np.isnan(weights)), ("infinite", np.isinf(weights)), ("negative", weights < 0)):
        if bad.any():
            raise DataError(
                f"{what} is {problem} in {int(bad.sum())} of the {rows} training rows: give a number of 0 or more for "
                "each."
            )
    if not weights.any():
        raise DataError(f"{what} is 0 in all {rows} training rows, so there is nothing to learn: weigh some above 0.")
    return torch.from_numpy(weights)


def weighted(labels: Labels, class_weight: str | Mapping[Any, float], private: bool = False) -> Labels:
    """The labels with what each training row weighs in the loss; None if all weigh 1.

    >>> labels = Labels(torch.tensor([0, 0, 0, 1]), torch.zeros(0), "binary", ("no", "yes"))
    >>> weighted(labels, "balanced").weights.tolist()  # 4 rows / (2 classes · 3 rows of the class), and / (2 · 1)
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    total = labels.weights
    by_class = _by_class(labels, class_weight, private)
    if by_class is not None:
        own = by_class[labels.train]
        total = own if total is None else total * own
    if total is None:
        return labels
    if not bool(total.any()):
        raise DataError(
            "Every training row weighs 0, by training.class_weight and the weight column together: nothing is left to "
            "learn from. Weigh some rows above 0."
        )
    if not private:
        total = total / total.max()  # first, so that the mean of huge weights is a number
        total = total / total.mean()
    # Equal ones come to 1 but for rounding, and must change nothing.
    alike = bool(total.min() == total.max()) and (not private or float(total[0]) == 1.0)
    return replace(labels, weights=None if alike else total)


def largest_weight(labels: Labels) -> float:
    """Of labels that `weighted` gave."""
    return 1.0 if labels.weights is None else float(labels.weights.max())


def _by_class(labels: Labels, class_weight: str | Mapping[Any, float], private: bool) -> torch.Tensor | None:
    """What a row of each class weighs; None: all the same."""
    if class_weight == NONE:
        return None
    if labels.task == "regression":
        raise SettingsError("training.class_weight weighs classes, and a regression has none. Leave it out.")
    if not isinstance(class_weight, Mapping):
        if private:
            raise SettingsError(
                'training.class_weight = "balanced" follows from all labels at once, which the noise on answers does '
                "not hide. Give a weight for each class instead, as [training.class_weight]."
            )
        # As scikit-learn counts: a row of weight 2 is two rows.
        counts = torch.bincount(labels.train, labels.weights, len(labels.classes)).double()
        return torch.where(counts > 0, counts.sum() / (len(labels.classes) * counts), 0.0)
    weights = torch.ones(len(labels.classes), dtype=torch.float64)
    places = {name: place for place, one in enumerate(labels.classes) for name in _names(one)}
    for name, weight in class_weight.items():
        if str(name) not in places:
            raise SettingsError(
                f"training.class_weight names a class {str(name)!r}, which none of the {len(labels.classes)} classes "
                "of the labels is called. Mend its name."
            )
        weights[places[str(name)]] = float(weight)
    return weights


def _names(one: str | int | float) -> tuple[str, ...]:
    """What a class may be called in TOML, where a key is text: 1.0 is "1", too, and 1 is "1.0"."""
    is_whole = isinstance(one, int | float) and float(one).is_integer()
    return (str(one), str(int(one)), str(float(one))) if is_whole else (str(one),)
