"""Claims of speed, each a ratio measured side by side in one run. `colonnade bench` runs them.

A benchmark gives ratios under fixed keys, and the target of each: at least (">=") or at most ("<=") a number.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from colonnade.errors import unknown_name

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Benchmark:
    name: str
    summary: str
    run: Callable[[Watch], dict[str, float]]
    targets: dict[str, str]  # key → such as ">= 0.9"


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark, by name."""
    from colonnade.benchmarks import linear, privacy, runtimes, split, zeroth_order

    known = (split.BENCHMARK, zeroth_order.BENCHMARK, linear.BENCHMARK, runtimes.BENCHMARK, privacy.BENCHMARK)
    return {benchmark.name: benchmark for benchmark in known}


def one_thread(run: Callable[[Watch], dict[str, float]]) -> Callable[[Watch], dict[str, float]]:
    """A benchmark that both sides run on one PyTorch thread."""

    @wraps(run)
    def alone(watch: Watch) -> dict[str, float]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run(watch)
        finally:
            torch.set_num_threads(before)

    return alone


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


def meets(value: float, target: str) -> bool:
    """Whether a ratio keeps its target."""
    relation, _, number = target.partition(" ")
    return value >= float(number) if relation == ">=" else value <= float(number)
