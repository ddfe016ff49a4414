"""The ledger holds every release, by the row, across a resume; and never a row's number or a value on paper."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import RunError
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger, check_journal


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


# --- events that are spent again ----------------------------------------------------------------------------------


def killed(ledger: Ledger) -> None:
    """The process ends without a word."""
    assert ledger._file is not None
    ledger._file.close()


def most(path: Path) -> dict[str, Any]:
    return lines(path.with_suffix(".reserved"))[-1]


@pytest.mark.parametrize("other", [{"noise": 0.5}, {"sensitivity": 1.0}, {"viewers": ()}])
def test_an_event_that_meets_another_line_stops_the_party(tmp_path: Path, other: dict[str, Any]) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for row in range(3):
        ledger.spend("bank", release(row))
    killed(ledger)
    before = path.read_bytes(), path.with_suffix(".reserved").read_bytes()
    with closing(Ledger(path)) as again:
        again.spend("bank", release(0))
        with pytest.raises(RunError, match=r"its release 2 otherwise than .*ledger\.jsonl does"):
            again.spend("bank", release(1, **other))
    assert (path.read_bytes(), path.with_suffix(".reserved").read_bytes()) == before


def test_lines_whose_events_nobody_remembers_are_passed_over_in_every_later_life(tmp_path: Path) -> None:
    """Killed between a line and its journal: the next life does something else at that place, and so does the third."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.spend("bank", release(0))
    ledger.spend("bank", release(1, 2, 3))  # not in the journal
    killed(ledger)
    second = Ledger(path)
    second.spend("bank", release(0))
    second.settle()
    second.spend("bank", release(4, 5))
    killed(second)
    with closing(Ledger(path)) as third:
        third.spend("bank", release(0))
        third.spend("bank", release(4, 5))
        third.settle()
        third.spend("bank", release(6))
        assert third.summary()[0]["releases"] == 3
    assert [line["rows"] for line in lines(path)] == [1, 3, 2, 1]


def test_what_is_given_back_leaves_as_much_as_the_file_has_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with closing(Ledger(path)) as ledger:
        ledger.spend("bank", release(0))
        saved = ledger.state()
        for row in range(4):
            ledger.spend("bank", release(row))
    assert most(path)["releases"] == 5
    with closing(Ledger(path, saved.values["position"])) as again:
        again.restore(saved)
        again.spend("bank", release(0))  # of the journal nothing else is left
        again.settle()
        saved = again.state()
    assert (most(path)["releases"], most(path)["remembered"]) == (5, 2)
    with closing(Ledger(path, saved.values["position"])) as third:
        third.restore(saved)
        third.settle()
        third.spend("bank", release(0))
        assert most(path)["releases"] > 5  # a new block: two of the five were remembered, and that was the third
    assert most(path)["releases"] == 6


def test_a_ledger_without_a_journal_is_no_ledger_to_go_on_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    check_journal(path, False, "bank")
    with closing(Ledger(path)) as ledger:
        check_journal(path, False, "bank")  # nothing was released yet
        ledger.spend("bank", release(0))
    check_journal(path, True, "bank")
    with pytest.raises(RunError, match=r"bank has a ledger of what it has released .* but no journal"):
        check_journal(path, False, "bank")


def test_a_line_that_the_disk_takes_half_of_is_taken_back(tmp_path: Path) -> None:
    """The value does not leave, and the next line stands by itself."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    assert ledger.spend("bank", release(0))
    whole = path.read_bytes()
    real = ledger._file
    assert real is not None

    class HalfADisk:
        """Takes half of what it is given."""

        def write(self, line: bytes) -> int:
            return real.write(line[: len(line) // 2])

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    ledger._file = HalfADisk()  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space left"):
        ledger.spend("bank", release(0))
    assert path.read_bytes() == whole
    ledger._file = real
    assert ledger.spend("bank", release(0))
    assert path.read_bytes() == whole * 2
    ledger.close()


def test_a_simulation_may_release_in_another_order_when_it_is_resumed(tmp_path: Path) -> None:
    """With measured times it does; nothing leaves it, so the lines need only be as many."""
    path = tmp_path / "ledger.jsonl"
    with closing(Ledger(path)) as ledger:
        for party in ("bank", "shop", "shop"):
            ledger.spend(party, release(0))
    with closing(Ledger(path, 0, repeats=False)) as again:
        for party in ("shop", "bank", "shop"):
            again.spend(party, release(0))
    assert len(path.read_bytes().splitlines()) == 3
    with closing(Ledger(path, 0)) as strict, pytest.raises(RunError, match="otherwise than"):
        strict.spend("shop", release(0))
        strict.spend("bank", release(0))
