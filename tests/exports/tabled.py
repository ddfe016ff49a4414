"""Three parties with tables of every kind of column, trained linearly, for tests of exports and explanations."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

import colonnade
from colonnade.data.settings import ColumnSettings
from colonnade.launch.outcome import Outcome

ROWS = 160


def frames(regression: bool = False) -> dict[str, pd.DataFrame]:
    """A label party with the label and a column; a bank with numbers, gaps and a date; a shop with words."""
    draws = np.random.default_rng(7)
    ids = [f"{number:04d}" for number in range(ROWS)]
    age = draws.integers(18, 80, ROWS).astype(float)
    city, size = draws.choice(["Lima", "Oslo", "Rome"], ROWS), draws.choice(["small", "large"], ROWS)
    spent = draws.lognormal(2, 1, ROWS)
    score = 0.1 * (age - 50) + 1.5 * (city == "Oslo") + np.log1p(spent) - 2 + draws.logistic(size=ROWS)
    age[::9] = np.nan
    joined = pd.Timestamp("2020-01-01") + pd.to_timedelta(draws.integers(0, 900, ROWS), unit="D")
    label = 100 + 30 * score if regression else np.where(score > 0, "yes", "no")
    return {
        "label": pd.DataFrame({"id": ids, "bought": label, "visits": draws.poisson(3, ROWS)}),
        "bank": pd.DataFrame({"id": ids, "age": age, "spent": spent, "joined": joined.date, "always": 1.0}),
        "shop": pd.DataFrame({"id": ids, "city": city, "size": size}),
    }


PREPARE = {
    "bank": {"spent": ColumnSettings(log=True)},
    "shop": {"size": ColumnSettings(kind="ordinal", categories=("small", "large"))},
}


@dataclass(frozen=True)
class Tabled:
    """The tables, the data made of them, and what was trained."""

    frames: dict[str, pd.DataFrame]
    data: colonnade.FederatedData
    outcome: Outcome


def trained(algorithm: str = "fcg", regression: bool = False, **more: object) -> Tabled:
    held = frames(regression)
    data = colonnade.from_frames(held, label_party="label", label="bought", prepare=PREPARE)
    training = colonnade.Training(epochs=6, batch_size=32)
    return Tabled(held, data, colonnade.train(data, algorithm, training=training, **more))  # type: ignore[arg-type]
