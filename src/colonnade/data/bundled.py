"""Data sets that come with scikit-learn, read from its files; it is loaded only where the files are not what they were.

To load it takes a second, longer than most trainings on these sets, and nothing of it is needed for a table of numbers.
"""

import gzip
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from colonnade.data.ids import Array

Table = tuple[Array, Array, tuple[str, ...]]
"""Columns, label, and the columns' names."""

_MEASURES = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness"),
    *("concavity", "concave points", "symmetry", "fractal dimension"),
)
_FILES = {
    "iris": ("iris.csv", ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")),
    "wine": (
        "wine_data.csv",
        (
            *("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids"),
            *("nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines"),
            "proline",
        ),
    ),
    "breast_cancer": (
        "breast_cancer.csv",
        (
            *(f"mean {measure}" for measure in _MEASURES),
            *(f"{measure} error" for measure in _MEASURES),
            *(f"worst {measure}" for measure in _MEASURES),
        ),
    ),
    "digits": ("digits.csv.gz", tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))),
}


def read_bundled(name: str) -> Table:
    """A set's rows in the order of its file."""
    path = _file_of(name)
    if path is None:
        bunch = getattr(import_module("sklearn.datasets"), f"load_{name}")()
        return bunch.data, bunch.target, tuple(str(column) for column in bunch.feature_names)
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = np.loadtxt(lines, delimiter=",")
    else:
        rows = np.loadtxt(path, delimiter=",", skiprows=1, encoding="utf-8")  # the first line tells sizes and classes
    return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(int), _FILES[name][1]


def _file_of(name: str) -> Path | None:
    """Where the set lies, if it lies where it has always been."""
    spec = find_spec("sklearn")  # does not load it
    if name not in _FILES or spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "datasets" / "data" / _FILES[name][0]
    return path if path.is_file() else None
