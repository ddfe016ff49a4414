"""Masked sums in a whole federation: the same training up to rounding, nothing of a party's products on the wire."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_federation import dense
from numpy.typing import NDArray
from recorded_runs import Item, read_run, sends

from colonnade import RunError, SettingsError, Simulate, Training, dataset, train
from colonnade.algorithms import ALGORITHMS
from colonnade.messages import (
    EvaluationMaskedSum,
    EvaluationProductSum,
    Introduction,
    MaskedSum,
    ProductRequest,
    ProductSum,
)
from colonnade.runtimes.replay import replay
from colonnade.testing import TinyFederation, tiny_data

NAMES = [name for name, row in ALGORITHMS.items() if row.linear_party is not None]
TRAINING = Training(epochs=3, batch_size=8, learning_rate=0.05, l2=0.02)
SHORT = replace(TRAINING, learning_rate=0.005)
UNEVEN = Simulate(latency_seconds={"distribution": "exponential", "mean": 0.004})
PARTIES = 4  # three with columns, and the label party


def plan(name: str, sums: str, **changes: Any) -> TinyFederation:
    """With the delays that do not depend on the bytes, so that all schemes see the same schedule."""
    kind = ALGORITHMS[name].settings
    step = {"step": "fixed"} if "step" in kind.__dataclass_fields__ else {}
    return TinyFederation(tiny_data(), kind(sums=sums, **{**step, **changes}), TRAINING)


def float64_weights(given: TinyFederation, out: Path) -> dict[str, NDArray[np.float64]]:
    found = {}
    for name, party in given.parties().items():
        replay(party, out / "trace" / f"{name}.trace")
        found[name] = party.state().tensors["member.block.weights"].numpy()
    return found


# The two-tree scheme has other trees, hence other delays: only synchronous schedules can be compared with it.
COMPARABLE = [
    *((name, "pairwise") for name in ("afsgd", "afsvrg", "afsaga", "fsgd", "fsvrg", "fsaga")),
    *((name, "two-tree") for name in ("fsgd", "fsvrg", "fsaga")),
]


@pytest.mark.parametrize(("name", "sums"), COMPARABLE)
def test_masks_change_nothing_but_the_last_bits(name: str, sums: str, tmp_path: Path) -> None:
    """A sum of q products errs by q·2^−(f+1). Each of at most k steps adds lr·|x|·(error of ϑ), ϑ being 1/4-Lipschitz
    in the sum; what is wrong already grows by no more than 1 + lr·|x|²/4 a step, twice that with reduced variance.
    """
    plain, masked = (replace(plan(name, scheme), training=SHORT) for scheme in ("plain", sums))
    plain.run(tmp_path / "plain")
    masked.run(tmp_path / "masked")
    exact, rounded = float64_weights(plain, tmp_path / "plain"), float64_weights(masked, tmp_path / "masked")
    rows = np.hstack([dense(own.train) for own in plain.data.columns.values()])
    largest = np.sqrt(np.square(rows).sum(1).max() + 1)  # with the intercept's constant
    error, steps, rate = PARTIES * 2.0**-33, 3 * 3 * 3 + 9, SHORT.learning_rate
    bound = 2 * steps * rate * largest * error * (1 + 2 * rate * largest**2 / 4) ** steps
    assert bound < 1e-7
    differences = [np.abs(exact[party] - rounded[party]).max(initial=0.0) for party in exact]
    assert 0 < max(differences) <= bound


@cache
def accuracy(name: str, sums: str) -> float:
    data = dataset("breast_cancer", parties=3)
    algorithm = ALGORITHMS[name].settings(sums=sums)
    return float(train(data, algorithm, training=Training(epochs=4, l2=0.01)).summary["test"]["accuracy"])


@pytest.mark.parametrize("sums", ["two-tree", "pairwise"])
@pytest.mark.parametrize("name", NAMES)
def test_a_masked_run_learns_what_a_plain_one_does(name: str, sums: str) -> None:
    accuracies = [accuracy(name, scheme) for scheme in ("plain", sums)]
    assert min(accuracies) > 0.85 and abs(accuracies[0] - accuracies[1]) < 0.04


def everything_sent(run: dict[str, list[Item]], kinds: Any) -> Iterator[tuple[str, Any]]:
    for name, items in run.items():
        for item in sends(items, kinds):
            yield name, item.message


@pytest.mark.parametrize("labels", ["one", "everywhere"])
@pytest.mark.parametrize("sums", ["two-tree", "pairwise"])
@pytest.mark.parametrize("name", ["afsaga", "fsvrg", "asysqn-sgd"])
def test_nothing_but_masked_sums_crosses_and_no_mask_comes_twice(
    name: str, sums: str, labels: str, tmp_path: Path
) -> None:
    given = replace(plan(name, sums, labels=labels), simulate=replace(UNEVEN, reorder=True))
    given.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert not list(everything_sent(run, (ProductSum, EvaluationProductSum)))
    parts = list(everything_sent(run, (MaskedSum, EvaluationMaskedSum)))
    keys = [(who, type(part).__name__, part.root, part.number, part.tree) for who, part in parts]
    assert len(set(keys)) == len(keys) > 30
    # A repeated mask would show as a repeated word, since many products repeat: at the start they are all zero.
    # (The words of a tree of masks are those of the masked tree while products are zero: each tree for itself.)
    for tree in (1, 2) if sums == "two-tree" else (1,):
        words = np.concatenate([part.total.ravel() for _, part in parts if part.tree == tree])
        assert len(np.unique(words)) == len(words) > 200


def test_a_partys_masked_sum_is_not_its_product(tmp_path: Path) -> None:
    """Before the first step all weights are 0: plainly the product; what crosses is not, until the root adds it up."""
    given = plan("afsgd", "pairwise", labels="everywhere")
    given.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    first = {
        who: part.total for who, part in everything_sent(run, MaskedSum) if (part.root, part.number) == ("label", 1)
    }
    if not first:
        first = {
            who: part.total
            for who, part in everything_sent(run, MaskedSum)
            if (part.root, part.number) == ("party1", 1)
        }
    assert len(first) == PARTIES - 1
    for total in first.values():
        assert np.unique(total).size == total.size and (np.abs(total.view(np.int64)) > 2**32).all()


@pytest.mark.parametrize("sums", ["plain", "two-tree", "pairwise"])
def test_keys_are_told_only_where_masks_come_of_them(sums: str, tmp_path: Path) -> None:
    plan("afsgd", sums).run(tmp_path / "run")
    keys = [part.public_key for _, part in everything_sent(read_run(tmp_path / "run"), Introduction)]
    assert len({key.tobytes() for key in keys}) == (PARTIES if sums == "pairwise" else 1)


def test_a_sum_costs_q_minus_one_messages_each_way_and_masks_a_second_way_up(tmp_path: Path) -> None:
    for sums, ways_up in (("plain", 1), ("pairwise", 1), ("two-tree", 2)):
        plan("afsgd", sums, labels="everywhere").run(tmp_path / sums)
        run = read_run(tmp_path / sums)
        requests: dict[tuple[str, int], int] = {}
        answers: dict[tuple[str, int], int] = {}
        for counted, kinds in ((requests, ProductRequest), (answers, (ProductSum, MaskedSum))):
            for _, part in everything_sent(run, kinds):
                counted[part.root, part.number] = counted.get((part.root, part.number), 0) + 1
        whole = [key for key in requests if answers.get(key) == ways_up * (PARTIES - 1)]
        assert all(requests[key] == PARTIES - 1 for key in whole)
        assert len(whole) > len(requests) - 4  # the last ones are cut off by the end


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_two_parties_are_refused_unless_the_user_knows(name: str) -> None:
    data, kind = tiny_data(parties=2), ALGORITHMS[name].settings
    training = Training(epochs=1, batch_size=8)
    with pytest.raises(SettingsError, match=r"hide nothing.*allow_two_parties"):
        train(data, kind(sums="pairwise"), training=training)
    with pytest.raises(SettingsError, match=r"two-tree.*at least 3 parties"):
        train(data, kind(sums="two-tree", allow_two_parties=True), training=training)
    assert train(data, kind(sums="pairwise", allow_two_parties=True), training=training).finished


@pytest.mark.parametrize("bits", [7, 53, -1])
def test_fraction_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(SettingsError, match=f"fraction_bits is {bits}"):
        ALGORITHMS["afsgd"].settings(sums="pairwise", fraction_bits=bits)


@pytest.mark.parametrize("sums", ["two-tree", "pairwise"])
def test_products_too_large_for_fixed_point_end_the_run_with_a_sentence(sums: str) -> None:
    """52 bits leave |product| < 2^11 / 4; columns of a thousand with a step that is far too long pass that at once."""
    data = tiny_data("regression")
    algorithm = ALGORITHMS["afsgd"].settings(sums=sums, fraction_bits=52, step="fixed", decay=0.0)
    with pytest.raises(RunError, match=r"below 512 in magnitude.*fraction_bits"):
        train(data, algorithm, training=Training(epochs=50, batch_size=8, learning_rate=3.0))


def test_a_tolerance_fits_into_any_fixed_point() -> None:
    algorithm = ALGORITHMS["afsvrg"].settings(sums="pairwise", fraction_bits=52, tolerance=1e-9)
    assert train(tiny_data(), algorithm, training=Training(epochs=2, batch_size=8, l2=0.1)).finished
