"""What a configuration says about data: its `[data]` section and one `[parties.NAME]` section per party.

Values that are wrong on their own are refused here, when the object is made; what can only be judged beside
the data (a column's name, a number of parties) is refused where the data are read.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from colonnade.data.catalogue import MOST_TOKENS
from colonnade.errors import SettingsError, unknown_name
from colonnade.mapped import check_share

SPLITS = ("equal-columns", "named-columns", "row-strips", "patches", "channels")
TASKS = ("binary", "multiclass", "regression")
MISSING = ("refuse", "mean", "median")
COLUMN_MISSING = (*MISSING, "indicator")
KINDS = ("number", "one-hot", "ordinal", "hashed", "date", "text", "tokens", "image", "leave-out")
LONGEST_SIDE_PIXELS = 1024
DATE_PARTS = ("days", "month", "day", "weekday", "hour")
ROWS = ("same", "intersection", "any", "aligned")
DEFAULT_TEST_FRACTION = 0.25
DEFAULT_ABSENCE = 0.1


@dataclass(frozen=True)
class DataSettings:
    """Which data, who gets which columns, and how they are prepared: the `[data]` section."""

    set: str = ""
    """a data set by its name (`colonnade data list`); `""` when every party names its own file"""
    split: str = "equal-columns"
    """how a data set's columns are shared out: `equal-columns` (contiguous blocks), `named-columns` (as
    `[parties.NAME]` says), `row-strips`, `patches` or `channels` (of images; channels may be views of one object)"""
    parties: int = 0
    """how many feature parties share a data set, called party1, party2, …; 0: as many as have a `[parties.NAME]`
    section. `dataset` and `from_arrays` default to 4."""
    label_party_columns: bool = False
    """with `equal-columns`, the label party gets one share too, the last"""
    id: str = "id"
    """the column that tells which rows belong together"""
    label: str = ""
    """the label party's column to predict; data sets bring their own"""
    weight: str = ""
    """the label party's column of what each row weighs in the loss, 0 or more; it is no feature. `""`: all alike. In
    `from_arrays`, `sample_weight` is an array of them. [Explained](how-to/weigh-rows.md)"""
    task: str = ""
    """`binary`, `multiclass` or `regression`; `""`: inferred from the labels"""
    test_fraction: float | None = None
    """share of rows to test on, 0 to below 1; none: the data set's own test part, or a quarter"""
    validation: float = 0.0
    """share of the rows to train on that is kept apart, 0 to below 1: evaluations score these [validation
    rows](how-to/validation.md), and test rows once, at the end. All parties find the same ones without a word: the last
    in the order that `seed` draws; rows of one group stay together"""
    standardise: bool = True
    """each party's columns by their own train mean and deviation (of series over all times), images by their largest
    absolute value, a regression's label by its train mean and deviation. Sparse columns are divided by their largest
    absolute value in the train rows and not centred, which would fill their zeros in. Losses are then those of the
    standardised label; `rmse` is in the label's own unit."""
    missing: str = ""
    """`refuse` gaps, or fill them with the `mean` or the `median` of the train rows; `""`: the data set's own choice,
    else refuse; in parties' own tables the median, and one more column that tells where gaps were. Gaps of sparse
    columns are always refused."""
    rows: str = "same"
    """`same`: all parties must hold the same ids; `intersection`: use the rows that all hold, `any`: all rows of the
    label party, [whoever else lacks them](how-to/missing-rows.md), for which two all ids must lie in one place;
    `aligned`: those that [`colonnade align`](how-to/align.md) found"""
    absence: float = DEFAULT_ABSENCE
    """where parties may lack rows: the share of the training rows in which each party is absent, at least; one that
    lacks fewer drops others at random. 0 to below 1; 0: none is dropped"""
    max_rows: int = 0
    """use only so many rows, the first after the shuffle (of each part, if the set has a test part); 0: all"""
    mapped_share: float = 0.25
    """of the machine's memory: a party's prepared columns that take more lie in a file without a name, memory-mapped
    ([many rows](how-to/many-rows.md)). Each party may have its own"""
    seed: int = 0
    """of the shuffle that orders rows and separates train from test"""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown_name("split", self.split, SPLITS)
        if self.task and self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        if self.missing and self.missing not in MISSING:
            raise unknown_name("way to treat missing values (data.missing)", self.missing, MISSING)
        if self.rows not in ROWS:
            raise unknown_name("way to match rows (data.rows)", self.rows, ROWS)
        if not (math.isfinite(self.absence) and 0 <= self.absence < 1):
            raise SettingsError(
                f"data.absence is {self.absence}; it must be at least 0 and less than 1: the share of the training "
                "rows in which a party is taken as absent."
            )
        if self.absence != DEFAULT_ABSENCE and self.rows in ("same", "intersection"):
            raise SettingsError(
                f"data.absence is for rows that parties may lack, and data.rows = {self.rows!r} keeps none of those: "
                "set data.rows = 'any', or leave data.absence out."
            )
        for name in ("parties", "max_rows", "seed"):
            if getattr(self, name) < 0:
                raise SettingsError(f"data.{name} is {getattr(self, name)}; it must be 0 or more.")
        check_share(self.mapped_share, "data.mapped_share")
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
class ColumnSettings:
    """How one column of a party's own table is prepared: `[parties.NAME.prepare.COLUMN]`."""

    kind: str = ""
    """`number`, `one-hot`, `ordinal`, `hashed`, `date`, `text`, `tokens`, `image`, `leave-out`, or a class of your own
    as `module:Class`; `""`: found"""
    missing: str = ""
    """of gaps: `refuse`, `mean`, `median`, or `indicator` (the median, and one more column that tells); `""`: as
    `data.missing`, else `indicator`"""
    standardise: bool | None = None
    """of numbers and images; none: as `data.standardise`"""
    clip: tuple[float, ...] = ()
    """of numbers: two quantiles of the train rows, such as `[0.01, 0.99]`, beyond which values are cut"""
    log: bool = False
    """of numbers: sign(x) · log(1 + abs(x)), before they are standardised"""
    categories: tuple[str, ...] = ()
    """of `one-hot` and `ordinal`: these, in this order; empty: those of the train rows"""
    rare: int = 5
    """of `one-hot`: categories of fewer train rows count as unseen (never more than one row in a hundred)"""
    buckets: int = 0
    """of `hashed` and `text`: how many columns; 0: 64 and 256"""
    parts: tuple[str, ...] = ()
    """of dates: `days`, `month`, `day`, `weekday`, `hour`; empty: days and those that vary"""
    format: str = ""
    """of dates in text, as Python's `strptime` has it; `""`: 2024-12-31, perhaps with a time, or 31.12.2024"""
    size: tuple[int, ...] = ()
    """of `image`: height and width in pixels, to which each is brought"""
    channels: int = 3
    """of `image`: 3 for colours, 1 for grey"""
    tokens: int = 64
    """of `tokens`: how many of a text's are kept, for the bottom model `transformer`"""

    def __post_init__(self) -> None:
        if self.kind and self.kind not in KINDS and ":" not in self.kind:
            raise unknown_name("kind of column", self.kind, (*KINDS, "module:Class"))
        if self.missing and self.missing not in COLUMN_MISSING:
            raise unknown_name("way to treat missing values of a column", self.missing, COLUMN_MISSING)
        if self.clip and not (len(self.clip) == 2 and 0 <= self.clip[0] < self.clip[1] <= 1):
            raise SettingsError("A column's `clip` must be two quantiles that rise from 0 to 1, such as [0.01, 0.99].")
        for part in self.parts:
            if part not in DATE_PARTS:
                raise unknown_name("part of a date", part, DATE_PARTS)
        for name in ("rare", "buckets"):
            if not 0 <= getattr(self, name) <= 2**20:
                raise SettingsError(f"A column's `{name}` is {getattr(self, name)}; it must be 0 to {2**20}.")
        self._check_image()
        if not 2 <= self.tokens <= MOST_TOKENS:
            raise SettingsError(f"A column's `tokens` is {self.tokens}; it must be 2 to {MOST_TOKENS}.")
        if len(set(self.categories)) < len(self.categories):
            raise SettingsError("A column's `categories` name one twice: name each once.")

    def _check_image(self) -> None:
        sides = len(self.size) == 2 and all(1 <= side <= LONGEST_SIDE_PIXELS for side in self.size)
        if (self.kind == "image" or self.size) and not sides:
            raise SettingsError(
                f"A column's `size` is {list(self.size)}; for kind = 'image' it must be height and width in pixels, 1 "
                f"to {LONGEST_SIDE_PIXELS} each, such as [32, 32]."
            )
        if self.size and self.kind != "image":
            raise SettingsError("A column's `size` is for kind = 'image': leave it out, or say that kind.")
        if self.channels not in (1, 3):
            raise SettingsError(f"A column's `channels` is {self.channels}; it must be 3 (colours) or 1 (grey).")


@dataclass(frozen=True)
class PartyData:
    """Where one party's data are, and how its columns are prepared: `[parties.NAME]`, or `[data]` of its party.toml."""

    file: str = ""
    """this party's file, relative to the folder of `federation.toml`; its ending tells the kind ([own
    data](how-to/own-data.md))"""
    columns: tuple[str, ...] = ()
    """its columns by name; empty: all but the id and the label"""
    id: str = ""
    """its id column, if it is called differently; `""`: as `data.id`"""
    weight: str = ""
    """the label party's alone: its weight column; `""`: as `data.weight`"""
    sql: str = ""
    """a query in the place of a file: of `database`, or of files in place through DuckDB"""
    database: str = ""
    """an SQLAlchemy address; `${NAME}` stands for an environment variable. An address that holds a password is
    refused."""
    password_file: str = ""
    """a file that holds the database's password and nothing else"""
    folder: str = ""
    """what its paths are relative to; `""`: the folder of `federation.toml`"""
    where: str = ""
    """which of its rows, as an SQL condition over its columns; `""`: all"""
    separator: str = ""
    """of CSV, one character between cells; `""`: found"""
    quote: str = ""
    """of CSV, one character around cells; `""`: the double quote"""
    encoding: str = ""
    """of CSV; `""`: found (UTF-8, UTF-16 by its mark, else Windows-1252)"""
    decimal: str = ""
    """of CSV: `.` or `,`; `""`: found"""
    missing_values: tuple[str, ...] = ()
    """cells of text that are gaps, besides empty ones, `?`, `NA`, `N/A`, `NaN`, `null`, `None` and dashes"""
    prepare: Mapping[str, ColumnSettings] = field(default_factory=dict)
    """by column, how it is prepared: a table for each, `[parties.NAME.prepare.COLUMN]`"""
    id_columns: tuple[str, ...] = ()
    """what it calls `alignment.columns`, in that order; empty: the same"""
    aligned: str = ""
    """with `data.rows = "aligned"`: the folder that `colonnade align` wrote for it"""

    def __post_init__(self) -> None:
        if self.file and self.sql:
            raise SettingsError("Both `file` and `sql` are given for one party: leave one of them out.")
        if self.database and not self.sql:
            raise SettingsError("A party names a `database` and no `sql`: give the query that makes its table.")
        if _holds_password(self.database):
            raise SettingsError(
                "A party's `database` holds a password: take it out and name it as ${VARIABLE} of the environment, or "
                "give `password_file`."
            )
        for name in ("separator", "quote"):
            if len(getattr(self, name)) > 1:
                raise SettingsError(f"A party's `{name}` must be one character.")
        if self.decimal not in ("", ".", ","):
            raise SettingsError("A party's `decimal` must be '.' or ','.")

    @property
    def has_table(self) -> bool:
        """Whether it names a table of its own."""
        return bool(self.file or self.sql)


def _holds_password(address: str) -> bool:
    """Whether a database's address spells a password out, which would be written into every copy of the settings."""
    found = re.search(r"://[^/@:]*:([^@]*)@", address) or re.search(r"[?&]\w*(?:password|pwd)=([^&]*)", address)
    return bool(found and not re.fullmatch(r"(\$\{\w+\})?", found[1]))


def data_settings(values: Mapping[str, Any]) -> DataSettings:
    """Settings from keyword arguments; a misspelt name is an error that offers the nearest one."""
    known = [field.name for field in fields(DataSettings)]
    for name in values:
        if name not in known:
            raise unknown_name("data setting", name, known)
    return DataSettings(**values)
