"""Claims of speed, each a ratio measured side by side in one run. `colonnade bench` runs them.

A benchmark gives ratios under fixed keys, and the target of each: at least (">=") or at most ("<=") a number.
"""

import os
import platform
import time
from typing import Any

import torch

from colonnade.benchmarks.benchmark import Benchmark, Part, Watch
from colonnade.errors import SettingsError, unknown_name


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark, by name."""
    from colonnade.benchmarks import (
        align,
        defaults,
        first_order,
        hostile,
        large_model,
        linear,
        loading,
        missing_rows,
        parties,
        plan,
        precision,
        privacy,
        quasi_newton,
        rows,
        runtimes,
        serve,
        split,
        tabular,
        watch,
        zeroth_order,
    )

    known = (
        defaults,
        split,
        zeroth_order,
        linear,
        first_order,
        quasi_newton,
        runtimes,
        privacy,
        hostile,
        loading,
        align,
        missing_rows,
        precision,
        serve,
        tabular,
        watch,
        plan,
        rows,
        parties,
        large_model,
    )
    return {module.BENCHMARK.name: module.BENCHMARK for module in known}


def measure(name: str, watch: Watch = lambda line: None, part: Part | None = None) -> dict[str, Any]:
    """Run one benchmark, or a part of it: {name, machine, ratios, targets, seconds}."""
    known = benchmarks()
    if name not in known:
        raise unknown_name("benchmark", name, known)
    run, run_part = known[name].run, known[name].run_part
    if part is not None and run_part is None:
        able = ", ".join(one.name for one in known.values() if one.run_part is not None)
        raise SettingsError(
            f"--keep, --only and --unseen are for benchmarks that take hours: {able}. {name} is not one of them."
        )
    began = time.perf_counter()
    ratios = run(watch) if part is None or run_part is None else run_part(watch, part)
    return {
        "name": name,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, 1 thread",
        "ratios": ratios,
        "targets": known[name].targets,
        "seconds": round(time.perf_counter() - began, 1),
    }
