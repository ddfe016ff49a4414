"""What it costs to load a party's own table, beside reading the same columns with pyarrow and with pandas.

Loading reads the columns, matches ids, divides rows into train and test, standardises, and lays rows out as float32.
CPU time, the least of three turns, taken in turn. Peak memory is that of a process of its own: python -m … FILE.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq

from colonnade.benchmarks.benchmark import Benchmark, Watch
from colonnade.benchmarks.party_memory import forget_peak, resident
from colonnade.data.loading import load_own
from colonnade.data.settings import DataSettings, PartyData

PARQUET_ROWS = 1_000_000
CSV_ROWS = 200_000
COLUMNS = 20
TURNS = 3


def run(watch: Watch) -> dict[str, float]:
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="colonnade-loading-") as folder:
        parquet, csv = Path(folder) / "shop.parquet", Path(folder) / "shop.csv"
        table = _table(PARQUET_ROWS)
        pq.write_table(table, parquet)
        arrow_csv.write_csv(table.slice(0, CSV_ROWS), csv)
        del table
        readers: dict[str, tuple[Path, dict[str, Callable[[Path], Any]]]] = {
            "parquet": (parquet, {"pyarrow": pq.read_table, "pandas": pd.read_parquet}),
            "csv": (csv, {"pyarrow": arrow_csv.read_csv, "pandas": pd.read_csv}),
        }
        for kind, (path, others) in readers.items():
            seconds = _seconds({"colonnade": load, **others}, path)
            watch(f"{kind}: " + ", ".join(f"{name} {spent:.3f} s of CPU" for name, spent in seconds.items()))
            ratios |= {f"{kind}_over_{name}": seconds["colonnade"] / seconds[name] for name in others}
        result = PARQUET_ROWS * COLUMNS * 4
        program = [sys.executable, "-m", __name__, str(parquet)]
        peak = int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
        watch(f"parquet: {peak / 1e6:.0f} MB at the peak, of which the columns are {result / 1e6:.0f} MB")
        ratios["parquet_peak_memory_over_float32"] = peak / result
    return ratios


def load(path: Path) -> Any:
    """As a party of a network run does."""
    return load_own(DataSettings(label="paid"), PartyData(file=str(path)), "shop", ["shop"], "bank", Path("/"))


def _table(rows: int) -> pa.Table:
    draw = np.random.default_rng(0)
    ids = pa.array(draw.permutation(rows)).cast(pa.string())
    columns = {f"x{1 + j}": draw.normal(size=rows) for j in range(COLUMNS)}
    return pa.table({"id": pc.utf8_lpad(ids, 10, "0"), **columns})


def _seconds(ways: dict[str, Callable[[Path], Any]], path: Path) -> dict[str, float]:
    """CPU time of each, the least of some turns; the first, untimed, brings what is loaded once."""
    least = dict.fromkeys(ways, float("inf"))
    for turn in range(1 + TURNS):
        for name, way in ways.items():
            began = time.process_time()
            way(path)
            if turn:
                least[name] = min(least[name], time.process_time() - began)
    return least


BENCHMARK = Benchmark(
    "loading",
    "loading a party's own table, beside reading it with pyarrow and pandas",
    run,
    {
        "parquet_over_pyarrow": "<= 3",
        "parquet_over_pandas": "<= 3",
        "csv_over_pyarrow": "<= 3",
        "csv_over_pandas": "<= 3",
        "parquet_peak_memory_over_float32": "<= 3",
    },
)


def main(path: Path) -> None:
    """Print how many bytes loading takes at its peak, what libraries take left out."""
    with tempfile.TemporaryDirectory(prefix="colonnade-loading-") as folder:
        small = Path(folder) / "small.parquet"
        pq.write_table(_table(1000), small)
        load(small)
    before = resident("VmRSS")
    forget_peak()
    load(path)
    print(resident("VmHWM") - before)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
