"""A party's memory grows with the values its rows hold and the number of rows, not with rows × columns."""

import subprocess
import sys

import pytest

# 1,000,000 rows × 1,000 columns as doubles are 8,000 MB; 10 values per row are 120 MB with their indices.
SCRIPT = """
import resource, sys
import numpy as np
from scipy.sparse import csr_array
from colonnade import Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def data(rows):
    generator = np.random.default_rng(0)
    columns = generator.integers(0, 1000, (rows, 10))
    columns.sort(axis=1)
    table = csr_array((np.ones(rows * 10, np.float32), columns.ravel(), np.arange(0, 10 * rows + 1, 10)), (rows, 1000))
    table.sum_duplicates()
    y = (columns[:, 0] % 2).astype(int)
    return from_arrays(table, y, X_test=table[:100], y_test=y[:100], parties=2, task="binary", standardise=False)

def run(given):
    settings = ALGORITHMS[sys.argv[1]].settings()
    train(given, settings, training=Training(epochs=1.2, batch_size=len(given.labels.train) // 10, l2=1e-4))

run(data(20_000))  # compiles, and imports what is imported late
large = data(1_000_000)
before = peak_mb()
run(large)
print(peak_mb() - before)
"""


@pytest.mark.parametrize("name", ["afsaga", "asysqn-svrg"])
def test_a_million_sparse_rows_of_a_thousand_columns(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 800, f"{float(done.stdout):.0f} MB"
