"""What is private never leaves: no column, label, weight, direction or seed is among the bytes that a party writes.

Every byte that is given to a carrier is written down before the link encrypts it; envelopes between feature parties are
sealed by then, so the linear federations are looked at over Unix sockets too, where nothing is. The private values are
markers: numbers that occur nowhere else, looked for as float32 and float64 in both byte orders.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from parties import TABLE_ROWS, Town, shared, weights, with_tables

from colonnade.algorithms.parts.randomness import generator_for

PLANS: dict[str, dict[str, Any]] = {
    "vafl": shared("vafl", {}, 1, 64, training={"learning_rate": 0.001}),
    "split": shared("split", {}, 1, 64, training={"learning_rate": 0.001}),
    "cascaded": shared("cascaded", {}, 1, 64, training={"learning_rate": 0.001}),
    "dpzv": shared("dpzv", {}, 1, 64, training={"learning_rate": 0.001}),
    "czofo": shared("czofo", {}, 1, 64, training={"learning_rate": 0.001}),
    "afsaga": shared("afsaga", {}, 1, 64, training={"l2": 0.01}),
    "afsaga, pairwise": shared({"name": "afsaga", "sums": "pairwise"}, {}, 1, 64, training={"l2": 0.01}),
}
SECRETS = ("cascaded", "dpzv", "czofo")  # those that draw directions


class Recording:
    """All that anybody wrote: every four and every eight bytes of it, wherever they begin."""

    def __init__(self, everything: bytes) -> None:
        assert len(everything) > 10_000, "nothing was recorded"
        self.everything = everything
        self._words = {size: self._all(size) for size in (4, 8)}

    def _all(self, size: int) -> NDArray[Any]:
        starts = (
            self.everything[start : start + (len(self.everything) - start) // size * size] for start in range(size)
        )
        return np.sort(np.concatenate([np.frombuffer(part, f"<u{size}") for part in starts]))

    def has(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these numbers are there, as the bytes that they are."""
        size = values.dtype.itemsize
        wanted, words = np.frombuffer(values.tobytes(), f"<u{size}"), self._words[size]
        found: NDArray[np.bool_] = words[np.searchsorted(words, wanted).clip(max=len(words) - 1)] == wanted
        return found

    def assert_without(self, values: Sequence[float], what: str) -> None:
        """None of these numbers, in this order, was written, as float32 or float64 in either byte order.

        Four bytes occur by chance among millions, and a float64 that was a float32 has hardly more of its own: a number
        counts with its neighbour, or if many of them are found.
        """
        assert len(values) > 1
        for kind in ("<f4", ">f4", "<f8", ">f8"):
            numbers = np.array(values, kind)
            found = self.has(numbers)
            assert found.sum() <= 1 + len(values) // 10, what
            for place in np.flatnonzero(found[:-1] & found[1:]):
                assert numbers[place : place + 2].tobytes() not in self.everything, what


def mark(town: Town) -> tuple[dict[str, list[float]], list[float]]:
    """Put numbers that occur nowhere else into the first rows of every table; give them, and the labels' two values."""
    generator = np.random.default_rng(5)
    markers: dict[str, list[float]] = {}
    for one in town.feature_parties:
        path = one.folder / "table.csv"
        table = pd.read_csv(path)
        marked = np.float32(generator.uniform(1.0, 2.0, (TABLE_ROWS, 2)))
        for place, column in enumerate(table.columns.drop("id")):
            table[column] = marked[:, place].astype(np.float64)
        table.to_csv(path, index=False)
        markers[one.name] = [float(value) for value in marked[:: TABLE_ROWS // 40].ravel()]
    labels = [float(value) for value in np.float32(generator.uniform(3.0, 4.0, TABLE_ROWS))]
    table = pd.read_csv(town.label.folder / "table.csv")
    table["label"] = labels
    table.to_csv(town.label.folder / "table.csv", index=False)
    return markers, labels[:: TABLE_ROWS // 80]


def recorded(town: Town, folder: Path) -> Recording:
    """Train over the network; all that anybody wrote."""
    for one in town.parties.values():
        one.options["record"] = str(folder / f"{one.name}.bytes")
    town.start()
    town.end()
    return Recording(b"".join((folder / f"{name}.bytes").read_bytes() for name in town.parties))


@pytest.mark.parametrize("name", PLANS)
def test_over_the_network(name: str, town: Callable[..., Town], tmp_path: Path) -> None:
    one = with_tables(town, PLANS[name], parties=3)
    one.shared["data"] = {**one.shared["data"], "task": "regression"}
    markers, labels = mark(one)
    for party in one.parties.values():
        party.write_files()
    everything = recorded(one, tmp_path)
    for party, values in markers.items():
        everything.assert_without(values, f"columns of {party}")
    everything.assert_without(labels, "labels")
    data = one.data()  # labels as they are trained on: less their mean, by their deviation
    everything.assert_without(data.labels.train[:80].double().tolist(), "prepared labels")
    first, last = weights({key: party.model() for key, party in one.built().items()}), weights(one.models())
    for state in (first, last):
        for key, tensor in state.items():
            distinctive = tensor[(tensor.abs() > 1e-6) & (tensor.abs() != 1)].double()
            if tensor.ndim == 2 and distinctive.numel() > 1:  # linear federations begin with zeros
                everything.assert_without(distinctive.flatten()[:256].tolist(), key)
    if name in SECRETS:
        assert_no_direction(one, everything, name)
    for party in one.parties.values():
        for secret in ("token", "sealing.key", "entropy"):
            content = (party.out / secret).read_bytes()
            assert content not in everything.everything, secret


def assert_no_direction(town: Town, everything: Recording, name: str) -> None:
    """Directions are drawn again from the parties' secret, which here is the shared seed."""
    seed = town.federation().seed
    for party in (one.name for one in town.feature_parties):
        again = generator_for(seed, party, "directions")
        if name == "dpzv":
            seeds = [int(torch.randint(2**62, (), generator=again)) for _ in range(32)]
            for number in seeds:
                for order in ("little", "big"):
                    assert number.to_bytes(8, order) not in everything.everything  # type: ignore[arg-type]
            drawn = [torch.randn(64, generator=torch.Generator().manual_seed(number)) for number in seeds]
        else:
            drawn = [torch.randn(64, generator=again) for _ in range(4)]
        for direction in drawn:
            everything.assert_without(direction.double().tolist(), f"directions of {party}")


def test_markers_are_found_where_they_are_sent(town: Callable[..., Town], tmp_path: Path) -> None:
    """The search itself: what every party sends openly, an embedding, is found among the recorded bytes."""
    one = with_tables(town, PLANS["vafl"], parties=2)
    everything = recorded(one, tmp_path)
    party = one.built()["party1"]
    rows = party._batches.next()  # type: ignore[attr-defined]
    _, embedding = party._bottom.embed(rows)  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="an embedding"):
        everything.assert_without(embedding[embedding != 0].astype(float).tolist()[:4], "an embedding")


@pytest.mark.parametrize("name", ["afsaga", "afsaga, pairwise"])
def test_over_unix_sockets(name: str, town: Callable[..., Town], tmp_path: Path) -> None:
    """Without envelopes: what a linear federation's parties tell one another is there to be looked at."""
    one = with_tables(town, PLANS[name], parties=3)
    one.shared["data"] = {**one.shared["data"], "task": "regression"}
    markers, labels = mark(one)
    one.processed({"record": str(tmp_path / "record")}, out=tmp_path / "run")
    everything = Recording((tmp_path / "record").read_bytes())
    for party, values in markers.items():
        everything.assert_without(values, f"columns of {party}")
    everything.assert_without(labels, "labels")
    # Plain sums are open by design: what a leaf of the tree sends is its product.
    masked, plain = (word in everything.everything for word in (b"\xa9MaskedSum", b"\xaaProductSum"))
    assert (masked, plain) == ((False, True) if name == "afsaga" else (True, False))
