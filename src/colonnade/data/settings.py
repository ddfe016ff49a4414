"""What a configuration says about data: its `[data]` section and one `[parties.NAME]` section a party.

Values that are wrong on their own are refused here, when the object is made; what can only be judged beside
the data (a column's name, a number of parties) is refused where the data are read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from colonnade.errors import SettingsError, unknown_name

SPLITS = ("equal-columns", "named-columns", "row-strips", "patches")
TASKS = ("binary", "multiclass", "regression")
MISSING = ("refuse", "mean", "median")
ROWS = ("same", "intersection")
DEFAULT_TEST_FRACTION = 0.25


@dataclass(frozen=True)
class DataSettings:
    """Which data, who gets which columns, and how they are prepared: the `[data]` section."""

    set: str = ""  # a data set by its name; "" when every party names its own file
    split: str = "equal-columns"  # how a data set's columns are shared out, one of SPLITS
    parties: int = 0  # how many feature parties share a data set; 0 = as many as have a [parties.NAME] section
    label_party_columns: bool = False  # equal-columns only: the label party gets one share too, the last
    id: str = "id"  # the column that tells which rows belong together
    label: str = ""  # the label party's column to predict
    weight: str = ""  # the label party's column of what each row weighs in the loss; "" = all alike
    task: str = ""  # one of TASKS; "" = inferred from the labels
    test_fraction: float | None = None  # None = the data set's own test part, or a quarter of the rows
    validation: float = 0.0  # share of the rows to train on that is kept apart: evaluations score it; 0 = none
    standardise: bool = (
        True  # columns (and a regression's label) by their train mean and deviation; sparse columns and images by size
    )
    missing: str = ""  # "refuse" | "mean" | "median" (of the train rows); "" = the data set's own default, or refuse
    rows: str = "same"  # "same" = all parties must hold the same ids | "intersection" = use those all hold
    max_rows: int = 0  # 0 = all; else the first ones after the shuffle (of each part, if there is a test part)
    seed: int = 0  # of the shuffle that orders rows and separates train from test

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown_name("split", self.split, SPLITS)
        if self.task and self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        if self.missing and self.missing not in MISSING:
            raise unknown_name("way to treat missing values (data.missing)", self.missing, MISSING)
        if self.rows not in ROWS:
            raise unknown_name("way to match rows (data.rows)", self.rows, ROWS)
        for name in ("parties", "max_rows", "seed"):
            if getattr(self, name) < 0:
                raise SettingsError(f"data.{name} is {getattr(self, name)}; it must be 0 or more.")
        fraction = self.test_fraction
        if fraction is not None and not (math.isfinite(fraction) and 0 <= fraction < 1):
            raise SettingsError(
                f"data.test_fraction is {fraction}; it must be at least 0 and less than 1, so that some rows "
                "are left to train on."
            )
        if not (math.isfinite(self.validation) and 0 <= self.validation < 1):
            raise SettingsError(
                f"data.validation is {self.validation}; it must be at least 0 and less than 1, so that some rows are "
                "left to train on."
            )
        if self.label_party_columns and self.split != "equal-columns":
            raise SettingsError(
                f"data.label_party_columns works with split = 'equal-columns', not with {self.split!r}: "
                "leave it out, or name the label party's columns with split = 'named-columns'."
            )


@dataclass(frozen=True)
class PartyData:
    """Where one party's data are: part of its `[parties.NAME]` section."""

    file: str = ""  # relative to the configuration's folder; CSV, Parquet, .npz, .npy or LIBSVM text
    columns: tuple[str, ...] = ()  # () = all but the id and the label
    id: str = ""  # "" = as in data.id
    weight: str = ""  # the label party's alone: its column of what each row weighs; "" = as in data.weight


def data_settings(values: Mapping[str, Any]) -> DataSettings:
    """Settings from keyword arguments; a misspelt name is an error that offers the nearest one."""
    known = [field.name for field in fields(DataSettings)]
    for name in values:
        if name not in known:
            raise unknown_name("data setting", name, known)
    return DataSettings(**values)
