"""Time to target, checked by hand on a few evaluations."""

from pathlib import Path

import pytest
from fake_runs import small_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.errors import SettingsError
from colonnade.reports.comparison import comparison_rows, why_no_target
from colonnade.reports.comparison_page import write_comparison
from colonnade.reports.rundir import read_run

FAST = [(10, 1.0, 0.5), (20, 2.0, 0.8), (30, 3.0, 0.9)]
SLOW = [(5, 4.0, 0.6), (10, 8.0, 0.8)]


def test_the_target_is_the_worst_final_metric(tmp_path: Path) -> None:
    runs = [read_run(small_run(tmp_path / "fast", FAST)), read_run(small_run(tmp_path / "slow", SLOW))]
    fast, slow = comparison_rows(runs)
    assert fast["target"] == slow["target"] == 0.8
    assert (fast["seconds_to_target"], slow["seconds_to_target"]) == (2.0, 8.0)
    assert (fast["exchanges_to_target"], slow["exchanges_to_target"]) == (20, 10)
    # 200 bytes up and 100 down for every exchange
    assert (fast["bytes_to_target"], slow["bytes_to_target"]) == (6000, 3000)
    assert (fast["speed_up"], slow["speed_up"]) == (4.0, 1.0)
    assert (fast["name"], fast["algorithm"], fast["final_metric"]) == ("fast", "vafl", 0.9)


def test_a_run_that_has_learnt_nothing_sets_no_target(tmp_path: Path) -> None:
    """Else whoever reaches the majority's accuracy first would be hundreds of times as fast."""
    idle = small_run(tmp_path / "idle", [(5, 0.01, 0.6), (10, 9.0, 0.6)], baseline={"accuracy": 0.62})
    fast = small_run(tmp_path / "fast", FAST, baseline={"accuracy": 0.62})
    first, second = comparison_rows([read_run(idle), read_run(fast)])
    assert first["target"] == second["target"] == 0.9 and first["exchanges_to_target"] is None
    assert second["baseline"] == 0.62 and second["speed_up"] == 1.0
    rows = comparison_rows([read_run(idle), read_run(idle)])
    assert rows[0]["target"] is None and "one prediction for all rows" in why_no_target(rows)
    page = write_comparison([idle, fast], tmp_path / "page.html").read_text()
    assert "idle is no better than one prediction for all rows, whose accuracy is" in page


def test_a_given_target_may_be_out_of_reach(tmp_path: Path) -> None:
    runs = [read_run(small_run(tmp_path / "fast", FAST)), read_run(small_run(tmp_path / "slow", SLOW))]
    fast, slow = comparison_rows(runs, target=0.85)
    assert (fast["seconds_to_target"], fast["speed_up"]) == (3.0, 1.0)
    assert (slow["seconds_to_target"], slow["exchanges_to_target"], slow["speed_up"]) == (None, None, None)
    with pytest.raises(SettingsError, match="finite"):
        comparison_rows(runs, target=float("nan"))


def test_for_rmse_smaller_is_better(tmp_path: Path) -> None:
    runs = []
    for name, values in {
        "one": [(1, 1.0, 3.0), (2, 2.0, 2.0)],
        "two": [(1, 1.5, 2.5), (2, 3.0, 2.4)],
    }.items():
        path = small_run(tmp_path / name, values, headline="rmse", test={"rmse": values[-1][2]})
        lines = (path / "metrics.jsonl").read_text().replace('"accuracy"', '"rmse"')
        (path / "metrics.jsonl").write_text(lines)
        runs.append(read_run(path))
    one, two = comparison_rows(runs)
    assert one["target"] == 2.4
    assert (one["seconds_to_target"], two["seconds_to_target"]) == (2.0, 3.0)
    assert one["speed_up"] == 1.5


def test_an_evaluation_that_only_the_summary_holds_counts_at_the_end(tmp_path: Path) -> None:
    path = small_run(tmp_path / "late", FAST, test={"accuracy": 0.95}, exchanges=40, virtual_seconds=4.5)
    (row,) = comparison_rows([read_run(path)], target=0.95)
    assert (row["seconds_to_target"], row["exchanges_to_target"]) == (4.5, 40)


def test_virtual_and_wall_seconds_are_never_compared(tmp_path: Path) -> None:
    simulated = read_run(small_run(tmp_path / "simulated", FAST))
    real = read_run(small_run(tmp_path / "real", [(1000, None, 0.8)]))
    rows = comparison_rows([simulated, real])
    assert [row["seconds_to_target"] for row in rows] == [None, None]
    assert [row["speed_up"] for row in rows] == [None, None]
    assert [row["exchanges_to_target"] for row in rows] == [20, 1000]
    assert [row["clock"] for row in rows] == [None, None]
    (alone,) = comparison_rows([real])
    assert (alone["clock"], alone["seconds_to_target"]) == ("wall", 1.0)


def test_runs_of_different_tasks_are_refused(tmp_path: Path) -> None:
    one = read_run(small_run(tmp_path / "one", FAST))
    two = read_run(small_run(tmp_path / "two", SLOW, headline="rmse", test={"rmse": 1.0}))
    with pytest.raises(SettingsError, match=r"'one' by accuracy, 'two' by rmse"):
        comparison_rows([one, two])


def test_a_run_that_evaluated_nothing_has_an_empty_row(tmp_path: Path) -> None:
    path = small_run(tmp_path / "young", FAST, test={}, headline=None)
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text(lines[0].replace('{"accuracy": 0.5}', "null"))
    young, fast = comparison_rows([read_run(path), read_run(small_run(tmp_path / "fast", FAST))])
    assert (young["final_metric"], young["seconds_to_target"], young["speed_up"]) == (None, None, None)
    assert (fast["target"], fast["speed_up"]) == (0.9, 1.0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    curves=st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=6), min_size=1, max_size=3),
)
def test_every_run_reaches_the_default_target(
    tmp_path_factory: pytest.TempPathFactory, curves: list[list[int]]
) -> None:
    base = tmp_path_factory.mktemp("runs")
    runs = [
        read_run(
            small_run(
                base / f"run{place}",
                [(step, step * 1.5, tenths / 10) for step, tenths in enumerate(tenths_of, start=1)],
            )
        )
        for place, tenths_of in enumerate(curves)
    ]
    rows = comparison_rows(runs)
    for row, tenths_of in zip(rows, curves, strict=True):
        worst_final = min(curve[-1] for curve in curves)
        first = next(at for at, tenths in enumerate(tenths_of, start=1) if tenths >= worst_final)
        assert (row["exchanges_to_target"], row["seconds_to_target"]) == (first, first * 1.5)
    assert min(row["speed_up"] or 0.0 for row in rows) == 1.0
