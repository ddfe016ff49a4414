"""What the papers print: published.toml, by paper, table, row and column.

No reproduction writes a published number itself, so that each has one place, and says where it was read.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from colonnade.errors import unknown_name
from colonnade.files import toml_of

PAPERS = {
    "vafl": "VAFL",
    "cascaded": "Cascaded",
    "dpzv": "DPZV",
    "afsgd-vp": "AFSGD-VP",
    "asysqn": "AsySQN",
}
_CELL = re.compile(r"(?P<value>\d+(?:\.\d+)?)(?: ± (?P<deviation>\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Published:
    """One printed number. `value` is infinite where a target was never reached."""

    value: float
    deviation: float | None
    source: str  # where it was read, such as "AFSGD-VP, Table II, UCICreditCard, SAGA"


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, cell by cell as it is printed."""

    paper: str
    item: str
    what: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


@cache
def tables() -> dict[tuple[str, str], PublishedTable]:
    """Every table that was read, by paper and item."""
    read = toml_of(files("colonnade.reproductions").joinpath("published.toml").read_bytes())
    found = [
        PublishedTable(
            paper=one["paper"],
            item=one["item"],
            what=one["what"],
            columns=tuple(one["columns"]),
            rows={name: tuple(cells) for name, cells in one["rows"].items()},
        )
        for one in read["table"]
    ]
    return {(one.paper, one.item): one for one in found}


def published(paper: str, item: str, row: str, column: str) -> Published | None:
    """The number in one cell; None where the paper has nothing there.

    >>> published("afsgd-vp", "Table II", "UCICreditCard", "SVRG")
    Published(value=2.49, deviation=None, source='AFSGD-VP, Table II, UCICreditCard, SVRG')
    """
    if (paper, item) not in tables():
        raise unknown_name("published table", f"{paper} {item}", [" ".join(key) for key in tables()])
    table = tables()[paper, item]
    if row not in table.rows:
        raise unknown_name(f"row of {paper} {item}", row, table.rows)
    if column not in table.columns:
        raise unknown_name(f"column of {paper} {item}", column, table.columns)
    return parsed(table.rows[row][table.columns.index(column)], f"{PAPERS[paper]}, {item}, {row}, {column}")


def parsed(cell: str, source: str) -> Published | None:
    """A cell as it is printed: a value, a value ± its deviation, ∞, or – for none."""
    if cell == "–":
        return None
    if cell == "∞":
        return Published(math.inf, None, source)
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError(f"{source}: {cell!r} is no printed number.")
    deviation = found["deviation"]
    return Published(float(found["value"]), None if deviation is None else float(deviation), source)
