"""Tables drawn from a seed, so that anybody can try the defaults on data that nobody tuned for.

A few hidden numbers describe each row. Columns are noisy views of them: plain, skewed, in strange units, rare flags,
categories as one-hot groups, constant ones; or counts of words, which are sparse. The label is a curved function of the
same hidden numbers: two classes, of which one may be rare, several classes, or a number in a unit of any size.
"""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from colonnade.data.federated import FederatedData
from colonnade.data.loading import from_arrays

Floats = npt.NDArray[np.float64]
PARTIES = (2, 3, 4, 6, 8, 12, 16)
TASKS = ("binary", "multiclass", "regression")
SHARE_OF_SPARSE = 0.2
NOISE = 0.5  # of a column beside what it shows, and of a label beside what can be known


def unseen(seed: int) -> FederatedData:
    """The table of that seed: 600 to 8,000 rows, 2 to 16 parties."""
    chance = np.random.default_rng([seed, 20])
    rows = int(10 ** chance.uniform(np.log10(600), np.log10(8_000)))
    parties = int(chance.choice(PARTIES))
    hidden = chance.normal(size=(rows, int(chance.integers(4, 13))))
    task = str(chance.choice(TASKS))
    labels = _labels(task, hidden, chance)
    if chance.random() < SHARE_OF_SPARSE:
        return from_arrays(_words(hidden, chance), labels, parties=min(parties, 4), task=task)
    groups = [_numbers(hidden, int(chance.integers(2, 9)), chance) for _ in range(parties)]
    kinds = (_skewed, _in_units, _flags, _categories, _constant)
    groups += [kind(hidden, chance) for kind in kinds if chance.random() < 0.5]
    columns = np.concatenate(groups, 1)
    return from_arrays(columns[:, chance.permutation(columns.shape[1])], labels, parties=parties, task=task)


# --- columns ----------------------------------------------------------------------------------------------------


def _numbers(hidden: Floats, count: int, chance: np.random.Generator) -> Floats:
    """Each shows a mixture of the hidden numbers, of length 1, and noise."""
    mixture = chance.normal(size=(hidden.shape[1], count))
    shown: Floats = hidden @ (mixture / np.linalg.norm(mixture, axis=0))
    return shown + NOISE * chance.normal(size=shown.shape)


def _skewed(hidden: Floats, chance: np.random.Generator) -> Floats:
    count = int(chance.integers(2, 9))
    skewed: Floats = np.exp(_numbers(hidden, count, chance) * chance.uniform(0.3, 1.5, count))
    return skewed


def _in_units(hidden: Floats, chance: np.random.Generator) -> Floats:
    """From a millionth to a million, and far from zero."""
    count = int(chance.integers(2, 9))
    away: Floats = _numbers(hidden, count, chance) + chance.normal(scale=5, size=count)
    return away * 10.0 ** chance.uniform(-6, 6, count)


def _flags(hidden: Floats, chance: np.random.Generator) -> Floats:
    """Set in a few rows of a hundred."""
    shown = _numbers(hidden, int(chance.integers(2, 9)), chance)
    flags: Floats = (shown > np.quantile(shown, chance.uniform(0.9, 0.99), axis=0)).astype(float)
    return flags


def _categories(hidden: Floats, chance: np.random.Generator) -> Floats:
    """One-hot groups; some categories are rare."""
    groups = []
    for _ in range(int(chance.integers(1, 5))):
        count = int(chance.integers(3, 41))
        affinity = _numbers(hidden, count, chance) + chance.gumbel(size=(len(hidden), count))
        groups.append(np.eye(count)[np.argmax(affinity - np.log(np.arange(count) + 1.5), 1)])
    return np.concatenate(groups, 1)


def _constant(hidden: Floats, chance: np.random.Generator) -> Floats:
    return np.tile(chance.normal(size=int(chance.integers(1, 9))), (len(hidden), 1))


def _words(hidden: Floats, chance: np.random.Generator) -> sparse.csr_array:
    """Counts; how often a word occurs in a row depends on what the row is about."""
    words = int(chance.integers(300, 2_000))
    affinity = hidden @ chance.normal(scale=0.7, size=(hidden.shape[1], words))
    shares = np.exp(affinity - affinity.max(1, keepdims=True)) / (np.arange(words) + 5.0)
    counts = chance.poisson(chance.uniform(20, 60) * shares / shares.sum(1, keepdims=True))
    return sparse.csr_array(counts.astype(np.float32))


# --- labels -----------------------------------------------------------------------------------------------------


def _curved(hidden: Floats, outputs: int, chance: np.random.Generator) -> Floats:
    """A random function of the hidden numbers for each output: a plane and some waves; of variance 1."""
    width = hidden.shape[1]
    waves = np.tanh(hidden @ chance.normal(size=(width, 8)) + chance.normal(size=8))
    values = hidden @ chance.normal(size=(width, outputs)) / np.sqrt(width)
    values = values + waves @ chance.normal(size=(8, outputs)) / np.sqrt(8)
    scaled: Floats = (values - values.mean(0)) / values.std(0)
    return scaled


def _labels(task: str, hidden: Floats, chance: np.random.Generator) -> npt.NDArray[np.generic]:
    rows = len(hidden)
    if task == "multiclass":
        odds = 3 * _curved(hidden, int(chance.integers(3, 11)), chance)
        chosen: npt.NDArray[np.int64] = np.argmax(odds + NOISE * chance.gumbel(size=odds.shape), 1)
        return chosen
    values = _curved(hidden, 1, chance)[:, 0] + 0.5 * NOISE * chance.normal(size=rows)
    if task == "regression":
        if chance.random() < 0.3:
            values = np.exp(values)
        amounts: Floats = (values + chance.normal()) * 10.0 ** chance.uniform(-4, 6)
        return amounts
    share = 10 ** chance.uniform(np.log10(0.02), np.log10(0.5))
    above: npt.NDArray[np.int64] = (values > np.quantile(values, 1 - share)).astype(np.int64)
    return above
