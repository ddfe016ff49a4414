"""How old what was used was, counted in bulk: of embeddings in a table, of products in a sum."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BUFFER = 1 << 16


class StalenessCount:
    """How often each staleness occurred. Values are collected and counted in bulk: a few of them cost nothing."""

    def __init__(self, counts: NDArray[np.int64] | None = None) -> None:
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64) if counts is None else counts
        self._buffer = np.empty(_BUFFER, np.int64)
        self._filled = 0
        self._fresh = 0

    def add(self, ages: NDArray[np.int64], fresh: int = 0) -> None:
        """Count these, less `fresh` zeros."""
        flat = ages.ravel()
        self._fresh += fresh
        if flat.size > _BUFFER - self._filled:
            self._merge(self._buffer[: self._filled])
            self._filled = 0
        if flat.size > _BUFFER:
            self._merge(flat)
            return
        self._buffer[self._filled : self._filled + flat.size] = flat
        self._filled += flat.size

    def counts(self) -> NDArray[np.int64]:
        """counts[τ]: how often staleness τ occurred."""
        if self._filled:
            self._merge(self._buffer[: self._filled])
            self._filled = 0
        self._counts[0] -= self._fresh
        self._fresh = 0
        return self._counts

    def _merge(self, ages: NDArray[np.int64]) -> None:
        merged = np.bincount(ages, minlength=self._counts.size)
        merged[: self._counts.size] += self._counts
        self._counts = merged

    def summary(self) -> dict[str, Any]:
        """Mean, 95th percentile, maximum, and a histogram with bins 0, 1, 2–3, 4–7, …"""
        counts = self.counts()
        total = int(counts.sum())
        if total == 0:
            return {"mean": 0.0, "p95": 0, "max": 0, "histogram": {"edges": [0, 1], "counts": [0]}}
        values = np.arange(counts.size)
        edges = [0, 1]
        while edges[-1] < counts.size:
            edges.append(edges[-1] * 2)
        binned = [int(counts[a:b].sum()) for a, b in itertools.pairwise(edges)]
        return {
            "mean": float(counts @ values / total),
            "p95": int(np.searchsorted(np.cumsum(counts), 0.95 * total)),
            "max": int(values[counts > 0].max()),
            "histogram": {"edges": edges, "counts": binned},
        }
