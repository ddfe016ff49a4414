"""Arithmetic takes one thread unless asked otherwise, in every library, and as many as before afterwards."""

import os
import subprocess
import sys

import torch
from threadpoolctl import threadpool_info

from colonnade.threads import BLAS_THREADS, computing_with


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_as_many_as_asked_for_and_then_as_before() -> None:
    torchs, blas, environment = torch.get_num_threads(), blas_threads(), dict(os.environ)
    with computing_with(2):
        assert torch.get_num_threads() == 2 and blas_threads() == {2}
        with computing_with(1):
            assert torch.get_num_threads() == 1 and blas_threads() == {1}
        assert torch.get_num_threads() == 2 and blas_threads() == {2}
    assert (torch.get_num_threads(), blas_threads()) == (torchs, blas)
    assert dict(os.environ) == environment


PROGRAM = """
from threadpoolctl import threadpool_info
import numpy
from colonnade.threads import compute_with, computing_with
told = lambda: sorted({one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"})
with computing_with(1):
    import scipy.linalg
    print(told())
print(told())
compute_with(1)
print(told())
"""


def test_a_library_that_is_loaded_meanwhile() -> None:
    """SciPy's comes with the first linear model. It takes one thread, too, and has two afterwards, as NumPy's."""
    before = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}
    given = {**before, "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=given)
    assert (done.returncode, done.stdout) == (0, "[1]\n[2]\n[1]\n"), done
