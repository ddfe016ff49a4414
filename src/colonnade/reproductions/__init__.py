"""The papers' tables and figures, run here and printed beside the published numbers. `colonnade reproduce` runs them.

A reproduction gives rows: what, published, ours, deviation over seeds, and a note where the two differ for a reason.
"""

from dataclasses import asdict
from typing import Any

from colonnade.errors import unknown_name
from colonnade.reproductions.reproduction import Reproduction, Watch


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
