"""A party's memory grows with the values its rows hold and the number of rows, not with rows × columns."""

import subprocess
import sys

# 250,000 rows × 1,000 columns as doubles are 2,000 MB; 10 values per row are 30 MB with their indices.
ROWS = 250_000
MOST_MEGABYTES = 200
ALGORITHMS = ("afsaga", "asysqn-svrg")

SCRIPT = """
import os, resource, sys
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

def run(name, given):
    settings = ALGORITHMS[name].settings()
    train(given, settings, training=Training(epochs=1.2, batch_size=len(given.labels.train) // 10, l2=1e-4))

small, large = data(20_000), data(int(sys.argv[1]))
for name in sys.argv[2:]:
    run(name, small)  # compiles, and imports what is imported late
for name in sys.argv[2:]:
    if os.fork() == 0:  # a process of its own begins with the memory of now, and not with the peak so far
        before = peak_mb()
        run(name, large)
        print(name, peak_mb() - before, flush=True)
        os._exit(0)
    os.wait()
"""


def test_many_sparse_rows_of_a_thousand_columns() -> None:
    command = [sys.executable, "-c", SCRIPT, str(ROWS), *ALGORITHMS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert grown.keys() == {*ALGORITHMS}, done.stderr[-2000:]
    for name, megabytes in grown.items():
        assert 0 < float(megabytes) < MOST_MEGABYTES, f"{name}: {megabytes} MB"
