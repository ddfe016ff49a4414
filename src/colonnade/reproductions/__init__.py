"""The papers' tables and figures, run here and printed beside the published numbers. `colonnade reproduce` runs them.

A reproduction gives rows (what, published, ours, deviation over seeds), a figure in the paper's axes, and a sentence on
where the two differ and why.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from colonnade.errors import unknown_name
from colonnade.files import SHARED, make_folder, write_atomically
from colonnade.reproductions.recorded import as_values, circumstances, recorded_result
from colonnade.reproductions.reproduction import Reproduction, Scope, Watch
from colonnade.trials.pool import run_each


def reproductions() -> dict[str, Reproduction]:
    """Every reproduction, by name."""
    from colonnade.reproductions import (
        afsgd_vp,
        asysqn,
        cascaded,
        cascaded_curves,
        cascaded_deep,
        cascaded_labels,
        dpzv,
        dpzv_memory,
        privacy,
        vafl,
        vafl_deep,
        which_one,
    )

    parts = (
        vafl,
        vafl_deep,
        cascaded_labels,
        cascaded,
        cascaded_curves,
        cascaded_deep,
        dpzv,
        dpzv_memory,
        privacy,
        afsgd_vp,
        asysqn,
        which_one,
    )
    return {one.name: one for part in parts for one in part.REPRODUCTIONS}


def listed() -> list[dict[str, Any]]:
    """Every reproduction as plain values; minutes are None where no run is recorded."""
    found = []
    for one in reproductions().values():
        quick, full = recorded_result(one.name, quick=True), recorded_result(one.name, quick=False)
        found.append(
            {
                "name": one.name,
                "paper": one.paper,
                "item": one.item,
                "data": list(one.data),
                "quick_minutes": minutes(quick),
                "full_minutes": minutes(full),
                "recorded": [kind for kind, result in (("quick", quick), ("full", full)) if result is not None],
            }
        )
    return found


def minutes(result: dict[str, Any] | None) -> float | None:
    """How long it takes, if nothing else runs on two cores: by the processor time of the recorded run."""
    return None if result is None else result["processor_seconds"] / 2 / 60


def reproduce(
    name: str,
    quick: bool,
    seeds: int | None = None,
    watch: Watch = lambda line: None,
    folder: Path = Path("runs/reproductions"),
    each: Callable[..., list[Any]] = run_each,
) -> dict[str, Any]:
    """Run one with seeds from 0 on: {name, quick, seeds, rows: [{label, published, ours, …}], panels, remark, …}.

    Cells that have finished are kept in `folder`: a reproduction that was stopped goes on after them. `each` runs the
    others: in processes of this machine, unless told otherwise. The figure, if there is one, is drawn beside them.
    """
    known = reproductions()
    if name not in known:
        raise unknown_name("reproduction", name, known)
    one = known[name]
    usual = one.quick_seeds if quick and one.quick_seeds is not None else one.seeds
    chosen = range(usual if seeds is None else seeds)
    began, busy = perf_counter(), process_time()
    scope = Scope(quick, chosen, watch, folder / (f"{name}-quick" if quick else name), each)
    shown = one.run(scope)
    result = {
        "name": name,
        "quick": quick,
        "seeds": list(chosen),
        **as_values(shown),
        "paper": one.paper,
        "item": one.item,
        "seconds": perf_counter() - began,
        "processor_seconds": process_time() - busy + sum(scope.processor_seconds),
        **circumstances(),
    }
    if shown.panels:
        from colonnade.reports.figures import png_bytes
        from colonnade.reproductions.drawing import by_figure, drawing_of

        make_folder(scope.folder)
        for figure, panels in by_figure(result["panels"]).items():
            drawn = scope.folder / f"{'-'.join(filter(None, (name, figure)))}.png"
            write_atomically(drawn, png_bytes(drawing_of(panels)), SHARED)
            watch(f"Figure: {drawn}")
    return result
