"""What an exchange of a linear federation costs with 4 to 128 parties: everybody's processor time together, and bytes.

A sum needs every party's products, so bytes grow with the parties; a message's fixed cost is shared by requests that
wait together. Time is that of a longer run less a shorter one, so that introductions do not count.
"""

import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from colonnade.algorithms.linear_models.afsgd import Afsgd
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Watch
from colonnade.data.federated import FederatedData
from colonnade.data.loading import from_arrays
from colonnade.launch.experiment import train

Scheme = Literal["plain", "pairwise"]
SCHEMES: tuple[Scheme, ...] = ("plain", "pairwise")
PARTIES = (4, 16, 64, 128)
ROWS, BATCH = 2_560, 64
EXCHANGES = 1_024  # about so many are measured


def measure(watch: Watch) -> dict[str, float]:
    """Of each number of parties over that of the fewest."""
    found: dict[str, float] = {}
    for scheme in SCHEMES:
        first: tuple[float, float] | None = None
        for parties, seconds, size in _costs(scheme):
            watch(f"{parties} parties, {scheme}: {1e3 * seconds:.2f} ms and {size / 1e3:.1f} KB per exchange")
            if first is None:
                first = seconds, size
                continue
            found[f"exchange_{scheme}_cpu_{parties}_over_{PARTIES[0]}"] = seconds / first[0]
            found[f"exchange_{scheme}_bytes_{parties}_over_{PARTIES[0]}"] = size / first[1]
    return found


def _costs(scheme: Scheme) -> Iterator[tuple[int, float, float]]:
    """Parties, processor seconds and bytes of an exchange."""
    settings = Afsgd(sums=scheme, max_product_age_epochs=0, updates="one")
    _cost(_data(PARTIES[0]), settings, EXCHANGES / 4)  # compiles
    for parties in PARTIES:
        data = _data(parties)
        short, long = (_cost(data, settings, planned) for planned in (EXCHANGES / 4, EXCHANGES * 5 / 4))
        exchanges = long[0] - short[0]
        yield parties, (long[1] - short[1]) / exchanges, (long[2] - short[2]) / exchanges


def _cost(data: FederatedData, settings: Afsgd, exchanges: float) -> tuple[int, float, float]:
    """Exchanges, processor seconds, bytes of a run."""
    epochs = exchanges * BATCH / ROWS / len(data.feature_parties)
    training = Training(epochs=epochs, batch_size=BATCH, evaluate_every_epochs=0)
    began = time.process_time()
    summary = train(data, settings, training=training).summary
    return summary["exchanges"], time.process_time() - began, summary["bytes_up"] + summary["bytes_down"]


def _data(parties: int) -> FederatedData:
    """As many columns per party, however many there are."""
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((ROWS + 8, 4 * parties))
    labels = (columns @ generator.standard_normal(4 * parties) > 0).astype(np.int64)
    return from_arrays(columns[:-8], labels[:-8], X_test=columns[-8:], y_test=labels[-8:], parties=parties)
