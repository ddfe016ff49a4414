"""The label party's embedding table: for every feature party and row, the last embedding and when it was written.

Staleness τ(i, m) is the number of exchanges since party m's embedding of row i was written; rows that a party has
never sent are zeros written at exchange 0. Reading and writing cost what the batch costs, not what the table holds.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.bounds import largest
from colonnade.algorithms.parts.staleness import StalenessCount
from colonnade.errors import ProtocolError
from colonnade.mapped import zeros
from colonnade.state import ChangedRows, Remembering, array, large_arrays

LARGE_BYTES = 64 << 20
"""From this size on, a checkpoint has only the rows that have changed since the one before it."""
_LARGEST_HALF = 65504.0  # beyond it a float16 is infinite


class EmbeddingTable(Remembering):
    """Rows × (all feature parties' widths side by side), so that a batch of the top model's input is one gather."""

    MEMORY = (
        large_arrays("rows", "_values", "_written", changes="_changed"),
        array("staleness", saved=StalenessCount.counts, restored=StalenessCount),
    )
    DERIVED = ("_buffers",)  # memory that is used again, not what is in it

    def __init__(
        self,
        rows: int,
        parties: Sequence[str],
        widths: Mapping[str, int],
        kept_as: str = "float32",
        mapped_share: float = inf,
    ) -> None:
        self.rows = rows
        self.parties = tuple(parties)
        self._column = {name: place for place, name in enumerate(self.parties)}
        self.slices: dict[str, slice] = {}
        start = 0
        for name in self.parties:
            self.slices[name] = slice(start, start + widths[name])
            start += widths[name]
        # As float16 it takes half of the memory; what is read of it is float32 all the same.
        self._values: NDArray[Any] = zeros((rows, start), kept_as, mapped_share, "The table of embeddings")
        # A write and a staleness look-up touch one line of memory a row, so parties are the inner dimension.
        self._written: NDArray[Any] = zeros((rows, len(self.parties)), np.int64, mapped_share / 4, "The table's ages")
        row_bytes = 4 * start + 8 * len(self.parties)
        self._changed = ChangedRows(rows, row_bytes) if rows * row_bytes >= LARGE_BYTES else None
        self.staleness = StalenessCount()
        self._buffers: dict[tuple[str, int], NDArray[np.float32]] = {}

    def check(self, party: str, rows: NDArray[np.uint32], embedding: NDArray[np.float32]) -> None:
        """Refuse rows and widths that this federation does not have, before anything is written."""
        if party not in self._column:
            raise ProtocolError(f"{party!r} is not a feature party of this federation.")
        if rows.size and int(rows.max()) >= self.rows:
            raise ProtocolError(f"{party} sent row {int(rows.max())}; there are {self.rows}.")
        part = self.slices[party]
        if embedding.shape[1] != part.stop - part.start:
            wanted = part.stop - part.start
            raise ProtocolError(f"{party} sent embeddings of width {embedding.shape[1]}; {wanted} was agreed on.")

    def magnitudes(self) -> str:
        """Whose last known embeddings are how large, the largest first: for who looks for a reason."""
        found = {party: largest(self._values[:, part]) for party, part in self.slices.items()}
        ordered = sorted(found.items(), key=lambda one: -one[1])
        shown = ", ".join(f"{party} {size:.2g}" for party, size in ordered)
        return f"The largest numbers in what the parties sent last: {shown}."

    def write(self, party: str, rows: NDArray[np.uint32], embedding: NDArray[np.float32], exchange: int) -> None:
        if self._values.dtype == np.float16:
            embedding = np.clip(embedding, -_LARGEST_HALF, _LARGEST_HALF)
        self._values[rows, self.slices[party]] = embedding
        self._written[rows, self._column[party]] = exchange
        if self._changed is not None:
            self._changed.note(rows)

    def clear(self) -> None:
        """Forget everybody's embeddings: they are of models that are gone."""
        self._values[:] = 0
        if self._changed is not None:
            self._changed.note_all()

    def read(self, rows: NDArray[np.uint32], slot: int = 0) -> torch.Tensor:
        """The rows' embeddings of all parties, [rows, all widths]: a copy, good until the next read into this slot.

        The memory is used again: at 64 rows of 512 numbers, asking the system for it costs more than the copying.
        """
        buffer = self._buffer(("read", slot), (rows.size, self._values.shape[1]))
        if self._values.dtype == np.float16:
            buffer[:] = self._values.take(rows, 0)
            return torch.from_numpy(buffer)
        # mode="clip" lets numpy write straight into `out`; `check` has seen that no row is out of range.
        return torch.from_numpy(np.take(self._values, rows, 0, out=buffer, mode="clip"))

    def known(self) -> torch.Tensor:
        """Of every row, as it is kept, to be read alone: it is the table itself."""
        return torch.from_numpy(self._values)

    def means(self) -> dict[str, torch.Tensor]:
        """Every party's mean embedding of the rows that it has sent: what stands in for one that is away."""
        found = {}
        for name, part in self.slices.items():
            sent = self._written[:, self._column[name]] > 0
            found[name] = torch.from_numpy(self._values[sent, part].sum(0, np.float32) / max(1, int(sent.sum())))
        return found

    def with_party(self, party: str, embeddings: torch.Tensor, others: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        """The rows' embeddings with each of several others in a party's place, below each other: [points · rows, all
        widths]. Good until the next call."""
        part = self.slices[party]
        plain = embeddings.numpy()
        rows, wanted = plain.shape[0], (plain.shape[0], part.stop - part.start)
        buffer = self._buffer(("with", 0), (len(others) * rows, plain.shape[1]))
        for point, other in enumerate(others):
            if other.shape != wanted:
                raise ProtocolError(f"{party} sent perturbed embeddings of shape {other.shape}; its own have another.")
            block = buffer[point * rows : (point + 1) * rows]
            block[:] = plain
            block[:, part] = other
        return torch.from_numpy(buffer)

    def _buffer(self, purpose: tuple[str, int], shape: tuple[int, int]) -> NDArray[np.float32]:
        kept = self._buffers.get(purpose)
        if kept is None or len(kept) < shape[0]:
            kept = self._buffers[purpose] = np.empty(shape, np.float32)
        return kept[: shape[0]]

    def ages(self, rows: NDArray[np.uint32], exchange: int) -> NDArray[np.int64]:
        """τ of these rows for every party, as of an exchange: [rows, parties]."""
        ages: NDArray[np.int64] = exchange - self._written.take(rows, 0)
        return ages

    def count_staleness(self, rows: NDArray[np.uint32], exchange: int) -> None:
        """Count what an exchange used of the parties other than its own."""
        # Its own column was written a moment ago. Taking those zeros back out is cheaper than leaving them out.
        self.staleness.add(self.ages(rows, exchange), fresh=rows.size)

    def older_than(self, party: str, rows: NDArray[np.uint32], exchange: int, bound: int) -> NDArray[np.uint32]:
        """Those of the rows whose embedding of `party` is staler than the bound."""
        old: NDArray[np.uint32] = rows[exchange - self._written[rows, self._column[party]] > bound]
        return old
