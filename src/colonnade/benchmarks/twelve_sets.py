"""Twelve data sets of all kinds, bundled with scikit-learn or generated: 569 to 60,000 rows, 2 to 16 parties.

Nobody tuned anything for them but what every party can know beforehand. All are small enough to train on here.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import sparse

from colonnade.data.federated import FederatedData
from colonnade.data.loading import dataset, from_arrays

Floats = npt.NDArray[np.float64]
CATEGORIES = (5, 12, 40, 80, 7, 30)  # how many each one-hot group of columns has
WORDS = 2_000


def _choice(margin: Floats, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """A label for each row by its odds, half of them 1."""
    return (margin + generator.logistic(size=len(margin)) > np.median(margin)).astype(np.int64)


def _skewed() -> FederatedData:
    """Log-normal columns: incomes, amounts, counts."""
    generator = np.random.default_rng(1)
    plain = generator.normal(size=(4_000, 24))
    columns = np.exp(plain * generator.uniform(0.2, 1.5, 24) + 2 * generator.normal(size=24))
    margin = plain[:, :12] @ generator.normal(size=12) + plain[:, 0] * plain[:, 13]
    return from_arrays(columns, _choice(margin, generator), parties=4)


def _one_hot(rows: int, seed: int) -> tuple[Floats, Floats, np.random.Generator]:
    """Categories, of which some are rare, and how much each row's add up to."""
    generator = np.random.default_rng(seed)
    groups, margin = [], np.zeros(rows)
    for count in CATEGORIES:
        shares = 1 / (np.arange(count) + 1.5) ** 1.3
        chosen = generator.choice(count, rows, p=shares / shares.sum())
        margin += generator.normal(size=count)[chosen]
        groups.append(np.eye(count)[chosen])
    return np.concatenate(groups, 1), margin, generator


def _categories() -> FederatedData:
    columns, margin, generator = _one_hot(6_000, 2)
    return from_arrays(columns, _choice(margin, generator), parties=8)


def _prices() -> FederatedData:
    """The same as a regression, in large numbers."""
    columns, margin, generator = _one_hot(8_000, 4)
    return from_arrays(columns, 300 * (margin + generator.normal(size=8_000)) + 5_000, parties=8, task="regression")


def _friedman() -> FederatedData:
    from sklearn.datasets import make_friedman1

    return from_arrays(*make_friedman1(3_000, 12, noise=1.0, random_state=3), parties=4, task="regression")


def _classes(rows: int, columns: int, classes: int, parties: int, seed: int) -> FederatedData:
    """Several clouds per class; a fifth of the columns are sums of others, at other parties too."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        rows,
        columns,
        n_informative=columns // 2,
        n_redundant=columns // 5,
        n_classes=classes,
        n_clusters_per_class=2,
        class_sep=1.2,
        random_state=seed,
    )
    return from_arrays(X, y, parties=parties)


def _units() -> FederatedData:
    """Columns in units from a millionth to a million, far from zero."""
    generator = np.random.default_rng(6)
    plain = generator.normal(size=(3_000, 20))
    units = 10.0 ** generator.uniform(-6, 6, 20)
    margin = plain @ generator.normal(size=20) + 2 * np.sin(2 * plain[:, 0]) * plain[:, 10]
    return from_arrays((plain + generator.normal(scale=5, size=20)) * units, _choice(margin, generator), parties=4)


def _words() -> FederatedData:
    """Sparse counts, as of words in short texts."""
    generator = np.random.default_rng(7)
    shares = 1 / (np.arange(WORDS) + 5.0)
    counts = sparse.csr_array(generator.poisson(30 * shares / shares.sum(), size=(5_000, WORDS)).astype(np.float32))
    margin = counts @ generator.normal(size=WORDS)
    return from_arrays(counts, _choice(margin / margin.std() * 3, generator), parties=2)


def _rare_class() -> FederatedData:
    """One row of twenty is of the class that is looked for."""
    generator = np.random.default_rng(8)
    columns = generator.normal(size=(10_000, 24))
    margin = 1.5 * columns[:, :8].sum(1) + columns[:, 8] * columns[:, 16]
    noisy = margin + generator.logistic(size=10_000)
    return from_arrays(columns, (noisy > np.quantile(noisy, 0.95)).astype(np.int64), parties=8)


TWELVE: dict[str, Callable[[], FederatedData]] = {
    "breast cancer": lambda: dataset("breast_cancer", parties=2),
    "digits": lambda: dataset("digits", parties=4),
    "friedman": _friedman,
    "redundant columns": lambda: _classes(2_000, 20, 2, 4, 5),
    "skewed columns": _skewed,
    "categories": _categories,
    "prices by category": _prices,
    "seven classes": lambda: _classes(9_000, 40, 7, 16, 5),
    "units from 1e-6 to 1e6": _units,
    "sparse words": _words,
    "rare class": _rare_class,
    "60,000 rows": lambda: _classes(60_000, 16, 4, 4, 9),
}
