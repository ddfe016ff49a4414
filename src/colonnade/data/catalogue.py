"""Which data sets go by a name, and what each is; datasets.py reads them.

Nothing heavy is imported here: `colonnade data list`, and a shell that completes a name, want to know no more.
"""

from typing import NamedTuple

FOLDER_VARIABLE = "COLONNADE_DATA"
MOST_WORDS = 30_000
"""How many columns `newsgroups20` has: the words that occur most often in its train part."""

TOKENS = 64
"""How many columns a set of texts has: so many tokens of each text are kept."""
MOST_TOKENS = 512
"""Of one text: the pre-trained transformer knows so many positions."""


class DatasetFacts(NamedTuple):
    """One line of a list of data sets. `rows` counts the set's own test part too."""

    name: str
    rows: int
    columns: int
    task: str
    source: str


def names() -> list[DatasetFacts]:
    """Every data set that can be asked for by name, without reading any of them."""
    return list(_SETS)


_SETS = (
    DatasetFacts("synthetic", 2_000, 20, "binary", "generated"),
    DatasetFacts("synthetic_sparse", 20_000, 2_000, "binary", "generated"),
    DatasetFacts("synthetic_regression", 20_000, 100, "regression", "generated"),
    DatasetFacts("iris", 150, 4, "multiclass", "scikit-learn"),
    DatasetFacts("wine", 178, 13, "multiclass", "scikit-learn"),
    DatasetFacts("breast_cancer", 569, 30, "binary", "scikit-learn"),
    DatasetFacts("diabetes", 442, 10, "regression", "scikit-learn"),
    DatasetFacts("digits", 1_797, 64, "multiclass", "scikit-learn"),
    DatasetFacts("parkinson_speech", 756, 753, "binary", FOLDER_VARIABLE),
    DatasetFacts("credit_default_uci", 30_000, 23, "binary", FOLDER_VARIABLE),
    DatasetFacts("givemesomecredit", 150_000, 10, "binary", FOLDER_VARIABLE),
    DatasetFacts("a9a", 48_842, 123, "binary", FOLDER_VARIABLE),
    DatasetFacts("rcv1_sample", 1_500, 47_236, "binary", FOLDER_VARIABLE),
    DatasetFacts("newsgroups20", 18_846, MOST_WORDS, "multiclass", FOLDER_VARIABLE),
    DatasetFacts("mnist", 70_000, 784, "multiclass", FOLDER_VARIABLE),
    DatasetFacts("mnist_odd_even", 70_000, 784, "binary", FOLDER_VARIABLE),
    DatasetFacts("fashion_mnist", 70_000, 784, "multiclass", FOLDER_VARIABLE),
    DatasetFacts("cifar10", 20_000, 3_072, "multiclass", FOLDER_VARIABLE),
    DatasetFacts("modelnet10_voxel", 4_899, 12_288, "multiclass", FOLDER_VARIABLE),
    DatasetFacts("physionet2012_icu", 8_000, 81, "binary", FOLDER_VARIABLE),
    DatasetFacts("imdb", 50_000, TOKENS, "binary", FOLDER_VARIABLE),
    DatasetFacts("amazon_multidomain", 8_000, TOKENS, "binary", FOLDER_VARIABLE),
)
