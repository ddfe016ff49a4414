"""The papers' tables and figures, run here and printed beside the published numbers. `colonnade reproduce` runs them.

A reproduction gives rows: what, published, ours, deviation over seeds, and a note where the two differ for a reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from colonnade.errors import unknown_name

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One number of a paper and ours."""

    label: str
    published: float | None
    ours: float
    deviation: float | None = None  # over seeds; None for a single one
    note: str = ""


@dataclass(frozen=True)
class Reproduction:
    name: str
    summary: str
    run: Callable[[bool, Sequence[int], Watch], list[Row]]  # (quick, seeds, watch)
    seeds: int = 1  # how many it takes unless told otherwise
    after_a_stop: str = "Nothing was kept: start again."


def reproductions() -> dict[str, Reproduction]:
    """Every reproduction, by name."""
    from colonnade.reproductions import cascaded, linear, privacy

    return {one.name: one for one in (*cascaded.REPRODUCTIONS, *linear.REPRODUCTIONS, *privacy.REPRODUCTIONS)}


def reproduce(name: str, quick: bool, seeds: int | None = None, watch: Watch = lambda line: None) -> dict[str, Any]:
    """Run one with seeds from 0 on: {name, quick, seeds, rows: [{label, published, ours, deviation, note}]}."""
    known = reproductions()
    if name not in known:
        raise unknown_name("reproduction", name, known)
    chosen = range(known[name].seeds if seeds is None else seeds)
    rows = known[name].run(quick, chosen, watch)
    return {"name": name, "quick": quick, "seeds": list(chosen), "rows": [asdict(row) for row in rows]}
