"""What a run is held against: intervals by hand, and what the page says of baselines."""

import json
from pathlib import Path

import pytest
from fake_runs import small_run

from colonnade.reports.against import in_one_place, interval, partners
from colonnade.reports.explorer import explorer
from colonnade.reports.rundir import Run, read_run


def held(folder: Path, baselines: object) -> Run:
    run = small_run(folder / "run", [(10, 1.0, 0.8), (20, 2.0, 0.9)], data={"test_rows": 100})
    (run / "baselines.json").write_text(json.dumps(baselines))
    return read_run(run)


def test_an_interval_is_of_shares_alone_and_never_leaves_them() -> None:
    found = interval("accuracy", 0.5, 96)  # of a half, 96 rows leave about a tenth to either side
    assert found is not None and found == pytest.approx((0.402, 0.598), abs=0.001)
    assert interval("accuracy", 1.0, 10) == pytest.approx((0.722, 1.0), abs=0.001)
    assert interval("auc", 0.5, 96) is None and interval("accuracy", None, 96) is None
    assert interval("accuracy", 0.5, None) is None


def test_what_each_party_adds(tmp_path: Path) -> None:
    alone = {"bank": {"accuracy": 0.7}, "shop": {"accuracy": 0.6}, "clinic": {"accuracy": 0.65}}
    without = {"bank": {"accuracy": 0.75}, "shop": {"accuracy": 0.93}, "clinic": {"accuracy": 0.92}}
    run = held(tmp_path, {"everybody": {"accuracy": 0.92}, "alone": alone, "without": without})
    page = "".join(partners(run))
    for shown in ("+17.00 %", "−1.00 %", "+0.00 %"):
        assert shown in page
    assert in_one_place(run) == "All columns in one place would have 92.00 %, the best party alone, bank, 70.00 %."


def test_of_two_parties_the_other_one_is_what_is_left(tmp_path: Path) -> None:
    alone = {"bank": {"accuracy": 0.7}, "shop": {"accuracy": 0.6}}
    page = "".join(partners(held(tmp_path, {"everybody": {"accuracy": 0.9}, "alone": alone, "without": {}})))
    assert "+30.00 %" in page and "+20.00 %" in page


@pytest.mark.parametrize("odd", [[], {"everybody": 3}, {"everybody": {"accuracy": "0.9"}, "alone": [1]}, None])
def test_what_are_no_baselines_is_not_shown(odd: object, tmp_path: Path) -> None:
    run = held(tmp_path, odd)
    assert partners(run) == [] and in_one_place(run) == ""


def test_curves_of_accuracy_have_a_band(tmp_path: Path) -> None:
    page = str(explorer([held(tmp_path, {})]))
    told = json.loads(page.partition("data-curves>")[2].partition("</script>")[0])
    (run,) = told["curves"]
    low, high = interval("accuracy", 0.9, 100) or (0.0, 0.0)
    assert run["low"][-1] == pytest.approx(low, abs=1e-6) and run["high"][-1] == pytest.approx(high, abs=1e-6)
