"""Claims of speed, each a ratio measured side by side in one run. `colonnade bench` runs them.

A benchmark gives ratios under fixed keys, and the target of each: at least (">=") or at most ("<=") a number.
"""

import os
import platform
import time
from typing import Any

import torch

from colonnade.benchmarks.benchmark import Benchmark, Watch
from colonnade.errors import unknown_name


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark, by name."""
    from colonnade.benchmarks import defaults, hostile, linear, loading, privacy, runtimes, split, zeroth_order

    known = (defaults, split, zeroth_order, linear, runtimes, privacy, hostile, loading)
    return {module.BENCHMARK.name: module.BENCHMARK for module in known}


def measure(name: str, watch: Watch = lambda line: None) -> dict[str, Any]:
    """Run one benchmark: {name, machine, ratios, targets, seconds}."""
    known = benchmarks()
    if name not in known:
        raise unknown_name("benchmark", name, known)
    began = time.perf_counter()
    ratios = known[name].run(watch)
    return {
        "name": name,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, 1 thread",
        "ratios": ratios,
        "targets": known[name].targets,
        "seconds": round(time.perf_counter() - began, 1),
    }
