"""The papers' tables and figures, run here and printed beside the published numbers. `colonnade reproduce` runs them.

A reproduction gives rows: what, published, ours, deviation over seeds, and a note where the two differ for a reason.
"""

from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from colonnade.errors import unknown_name
from colonnade.reproductions.recorded import circumstances, recorded_result
from colonnade.reproductions.reproduction import Reproduction, Scope, Watch


def reproductions() -> dict[str, Reproduction]:
    """Every reproduction, by name."""
    from colonnade.reproductions import cascaded, linear, privacy

    return {one.name: one for one in (*cascaded.REPRODUCTIONS, *linear.REPRODUCTIONS, *privacy.REPRODUCTIONS)}


def listed() -> list[dict[str, Any]]:
    """Every reproduction as plain values; minutes are those of the recorded runs, None where there is none."""
    found = []
    for one in reproductions().values():
        quick, full = recorded_result(one.name, quick=True), recorded_result(one.name, quick=False)
        found.append(
            {
                "name": one.name,
                "paper": one.paper,
                "item": one.item,
                "data": list(one.data),
                "quick_minutes": None if quick is None else quick["seconds"] / 60,
                "full_minutes": None if full is None else full["seconds"] / 60,
                "recorded": [kind for kind, result in (("quick", quick), ("full", full)) if result is not None],
            }
        )
    return found


def reproduce(
    name: str,
    quick: bool,
    seeds: int | None = None,
    watch: Watch = lambda line: None,
    folder: Path = Path("runs/reproductions"),
) -> dict[str, Any]:
    """Run one with seeds from 0 on: {name, quick, seeds, rows: [{label, published, ours, deviation, note, source}], …}.

    Cells that have finished are kept in `folder`: a reproduction that was stopped goes on after them.
    """
    known = reproductions()
    if name not in known:
        raise unknown_name("reproduction", name, known)
    one = known[name]
    chosen = range(one.seeds if seeds is None else seeds)
    began = perf_counter()
    rows = one.run(Scope(quick, chosen, watch, folder / (f"{name}-quick" if quick else name)))
    return {
        "name": name,
        "quick": quick,
        "seeds": list(chosen),
        "rows": [asdict(row) for row in rows],
        "paper": one.paper,
        "item": one.item,
        "seconds": perf_counter() - began,
        **circumstances(),
    }
