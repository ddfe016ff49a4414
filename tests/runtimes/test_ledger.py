"""The ledger holds every release, by the row, across a resume; and never a row's number or a value on paper."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger


def release(
    *rows: int, noise: float = 4.0, sensitivity: float = 2.0, viewers: tuple[str, ...] = ("label",)
) -> PrivacyEvent:
    ids = np.array(rows, np.uint32)
    return PrivacyEvent("gaussian", sensitivity, noise, len(rows), row_ids=ids, protects="one row", viewers=viewers)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_releases_are_counted_by_the_row() -> None:
    ledger = Ledger()
    for event in (release(0, 1), release(1, 9), release(1)):
        assert ledger.spend("bank", event) is True
    assert ledger.summary() == [
        {
            "party": "bank",
            "mechanism": "gaussian",
            "sensitivity": 2.0,
            "noise": 4.0,
            "releases": 3,
            "rows": 3,  # rows 0, 1 and 9
            "max_releases_per_row": 3,  # row 1
            "protects": "one row",
            "viewers": ["label"],
        }
    ]


def test_a_row_that_is_twice_in_one_release_counts_twice() -> None:
    ledger = Ledger()
    ledger.spend("bank", release(4, 4))
    assert ledger.summary()[0]["max_releases_per_row"] == 2


def test_what_differs_is_counted_apart() -> None:
    ledger = Ledger()
    ledger.spend("bank", release(0))
    ledger.spend("shop", release(0))
    ledger.spend("bank", release(0, noise=8.0))
    ledger.spend("bank", release(0, sensitivity=1.0))
    ledger.spend("bank", release(0, viewers=("label", "shop")))
    ledger.spend("bank", release(0))
    assert [kind["releases"] for kind in ledger.summary()] == [2, 1, 1, 1, 1]


def test_rows_that_are_not_listed_are_releases_all_the_same() -> None:
    ledger = Ledger()
    ledger.spend("bank", PrivacyEvent("gaussian", 2.0, 4.0, 64, protects="one row", viewers=()))
    (kind,) = ledger.summary()
    assert (kind["releases"], kind["rows"], kind["max_releases_per_row"]) == (1, 0, 0)


def test_one_line_a_release_at_once_and_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with closing(Ledger(path)) as ledger:
        ledger.spend("bank", release(424242, 424243))
        ledger.spend("bank", release(1, sensitivity=float("inf")))
        first, second = lines(path)  # before close
    assert first == {
        "party": "bank",
        "mechanism": "gaussian",
        "sensitivity": 2.0,
        "noise": 4.0,
        "rows": 2,
        "protects": "one row",
        "viewers": ["label"],
    }
    assert second["sensitivity"] is None  # JSON has no infinity
    assert "4242" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("sensitivity", [2.0, float("inf")])
def test_a_rebuilt_party_spends_the_same_again_and_is_counted_once(tmp_path: Path, sensitivity: float) -> None:
    path = tmp_path / "ledger.jsonl"
    with closing(Ledger(path)) as ledger:
        ledger.spend("bänk", release(0, 5, sensitivity=sensitivity))
        saved = ledger.state()
        ledger.spend("bänk", release(0, sensitivity=sensitivity))
        ledger.spend("bänk", release(0, sensitivity=sensitivity))
    with path.open("ab") as file:
        file.write(b'{"party": "b')  # torn: its value was not sent

    with closing(Ledger(path, resume_at=saved.values["position"])) as resumed:
        resumed.restore(saved)
        assert len(lines(path)) == 3  # never fewer than what left, not even now
        resumed.spend("bänk", release(0, sensitivity=sensitivity))
        assert len(lines(path)) == 3
        resumed.settle()  # the third line's event was not in the journal: nothing followed it
        resumed.spend("bänk", release(5, 7, sensitivity=sensitivity))
        (kind,) = resumed.summary()
        assert (kind["releases"], kind["rows"], kind["max_releases_per_row"]) == (3, 3, 2)
        position = resumed.state().values["position"]
    assert [line["rows"] for line in lines(path)] == [2, 1, 1, 2]
    assert position == path.stat().st_size


def test_a_release_of_no_rows_is_written_down_too() -> None:
    ledger = Ledger()
    ledger.spend("bank", release())
    assert (ledger.summary()[0]["releases"], ledger.summary()[0]["rows"]) == (1, 0)
