"""How many threads arithmetic takes: PyTorch's, and those of NumPy's and SciPy's BLAS. One, unless asked otherwise.

Parties compute with small matrices, for which threads wait for one another longer than they compute: a linear training
took three times as long with two. And the order of additions is part of a result, so that it may depend on the number.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read by a library when it is loaded, as SciPy's is when it is first needed."""


@contextmanager
def computing_with(count: int) -> Iterator[None]:
    """So many threads while this holds; then as many as before."""
    torchs, environment = torch.get_num_threads(), {name: os.environ.get(name) for name in BLAS_THREADS}
    here, libraries = _libraries(_has_scipys()), _has_scipys()
    most = max((one["num_threads"] for one in here.info() if one["user_api"] == "blas"), default=count)
    torch.set_num_threads(count)
    os.environ.update(dict.fromkeys(BLAS_THREADS, str(count)))
    try:
        with here.limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(torchs)
        for name, before in environment.items():
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
        if _has_scipys() != libraries:  # it was loaded meanwhile
            _libraries(_has_scipys()).limit(limits=most, user_api="blas")


def compute_with(count: int) -> None:
    """So many threads for the rest of this process."""
    torch.set_num_threads(count)
    os.environ.update(dict.fromkeys(BLAS_THREADS, str(count)))
    _libraries(_has_scipys()).limit(limits=count, user_api="blas")


def _has_scipys() -> bool:
    return "scipy.linalg" in sys.modules


@cache
def _libraries(with_scipys: bool) -> Any:
    """Those that are loaded by now. To look for them takes milliseconds."""
    return ThreadpoolController()
