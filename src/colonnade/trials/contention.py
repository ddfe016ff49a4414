"""How much slower a core computes while all others of its machine do: they share caches, memory, or more.

Small products of matrices, as parties make them, in a thread for each core: NumPy lets Python's lock go meanwhile. The
processor's clock is read, so that what else a machine does counts for no more than what it shares as well.
"""

import threading
import time
from statistics import median

import numpy as np

_ROWS, _INNER, _OUTER = 64, 512, 256
_PRODUCTS = 60
"""About a millisecond each on one thread, so that threads seldom wait for Python."""
_TURNS = 7


def contention_of(cores: int) -> float:
    """Processor time of the same work with all cores busy, over that of one busy alone; 1 where nothing is shared."""
    if cores < 2:
        return 1.0
    _seconds(1)  # what is loaded and reserved once
    ratios = [median(_seconds(cores)) / median(_seconds(1)) for _ in range(_TURNS)]
    return max(1.0, median(ratios))


def _seconds(count: int) -> list[float]:
    """Of each thread's products, so many threads at once."""
    found: list[float] = []
    together = threading.Barrier(count)

    def multiply() -> None:
        generator = np.random.default_rng(0)
        rows = generator.standard_normal((_ROWS, _INNER), np.float32)
        weights = generator.standard_normal((_INNER, _OUTER), np.float32)
        out = np.empty((_ROWS, _OUTER), np.float32)
        together.wait()
        began = time.thread_time()
        for _ in range(_PRODUCTS):
            np.dot(rows, weights, out=out)
        found.append(time.thread_time() - began)

    threads = [threading.Thread(target=multiply) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found
