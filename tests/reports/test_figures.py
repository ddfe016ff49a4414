"""Figures show what the run holds: right axes, right windows, no figure where there is nothing to show."""

import io
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from fake_runs import full_run, metric_line, small_run, write_lines
from matplotlib.figure import Figure

from colonnade.reports import error_figures, figures
from colonnade.reports.comparison import comparison_rows
from colonnade.reports.rundir import Run, Span, read_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(full_run(tmp_path_factory.mktemp("figures") / "async", exchanges=200))


def axis_labels(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]


def is_blank(png: bytes) -> bool:
    return bool(np.ptp(matplotlib.image.imread(io.BytesIO(png), format="png")[..., :3]) < 0.1)


def test_the_same_figure_is_the_same_file_and_not_blank(run: Run) -> None:
    first = figures.png_bytes(figures.staleness_histogram(run) or Figure())
    second = figures.png_bytes(figures.staleness_histogram(run) or Figure())
    assert first == second
    assert not is_blank(first)
    assert is_blank(figures.png_bytes(Figure()))


def test_axes_say_which_seconds(run: Run, tmp_path: Path) -> None:
    real = read_run(small_run(tmp_path / "real", [(1, None, 0.5), (2, None, 0.6)]))
    assert axis_labels(figures.learning_curves(run, "seconds")) == ["virtual seconds (simulated)"]
    assert axis_labels(figures.learning_curves(real, "seconds")) == ["wall seconds (measured)"]
    assert axis_labels(figures.timeline(run)) == ["virtual seconds (simulated)"]
    assert figures.compared_curves([run, real], "seconds") is None
    assert figures.compared_curves([run, real], "exchanges") is not None
    assert figures.time_to_target(comparison_rows([run, real])) is None


def test_curves_hold_the_points_of_the_run(tmp_path: Path) -> None:
    small = read_run(small_run(tmp_path / "small", [(10, 1.0, 0.5), (20, 2.0, 0.8)]))
    figure = figures.learning_curves(small, "megabytes")
    assert figure is not None
    loss, metric = figure.axes
    assert loss.get_lines()[0].get_ydata().tolist() == [1.0, 1.0]
    # 300 bytes per exchange
    assert metric.get_lines()[0].get_xdata().tolist() == pytest.approx([0.003, 0.006])
    assert metric.get_lines()[0].get_ydata().tolist() == [0.5, 0.8]


def test_a_running_mean_keeps_its_ends_and_a_constant() -> None:
    assert figures._running_mean(np.array([1.0, 2.0, 6.0]), 1).tolist() == [1.5, 3.0, 4.0]
    assert figures._running_mean(np.full(9, 2.5), 3).tolist() == [2.5] * 9


def busy(party: str, *stretches: tuple[float, float]) -> list[Span]:
    return [Span(party, start, end, "busy") for start, end in stretches]


def test_the_window_shows_forty_five_bars_of_the_busiest_party() -> None:
    quick = busy("quick", *((float(at), at + 0.5) for at in range(100)))
    slow = busy("slow", (0.0, 80.0))
    assert figures.timeline_window([*slow, *quick]) == (0.0, 44.5)
    assert figures.timeline_window([*slow, *quick[:10]]) == (0.0, 80.0)
    assert figures.timeline_window([Span("away", 0.0, 1.0, "away")]) is None
    assert figures.timeline_window(busy("instant", (0.0, 0.0))) is None


def test_two_timelines_share_the_shorter_time_axis(run: Run, tmp_path: Path) -> None:
    waiting = read_run(full_run(tmp_path / "sync", synchronous=True, exchanges=200))
    figure = figures.compared_timelines(waiting, run)
    assert figure is not None
    window, longer = figures.timeline_window(run.timeline), figures.timeline_window(waiting.timeline)
    assert window is not None and longer is not None and window[1] < longer[1]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim() == window
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["sync", "async"]


@pytest.mark.parametrize(
    ("edges", "counts", "bins"),
    [
        ([0, 1, 2, 4, 8], [5, 4, 3, 2], [("0", 5), ("1", 4), ("2–3", 3), ("4–7", 2)]),
        ([0, 1, 2], [5, 4, 3], [("0", 5), ("1", 4), ("2+", 3)]),
        ([0, 1, float("inf")], [5, 4], [("0", 5), ("1+", 4)]),
        ([0, 1, 2, 4, 8], [5, 0, 3, 0], [("0", 5), ("1", 0), ("2–3", 3)]),
        ([0, 0.5, 1], [1, 2], [("0–0.5", 1), ("0.5–1", 2)]),
        ([0, 1], [1, 2, 3], []),
        ([0, 1], ["many"], []),
        ([], [], []),
        (None, [1], []),
    ],
)
def test_staleness_bins(edges: Any, counts: Any, bins: list[tuple[str, float]]) -> None:
    assert figures.staleness_bins({"edges": edges, "counts": counts}) == bins


def test_nothing_recorded_means_no_figure(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [metric_line(1, loss=None)])
    empty = read_run(tmp_path)
    drawn = [
        figures.learning_curves(empty, "exchanges"),
        figures.timeline(empty),
        figures.utilisation(empty),
        figures.staleness_histogram(empty),
        figures.bytes_by_message(empty),
        figures.compared_timelines(empty, empty),
    ]
    assert drawn == [None] * 6


@pytest.mark.parametrize("name", [r"$\frac$", "_hidden", "a$b", "银行", "x" * 90, "two\nlines"])
def test_any_party_name_can_be_drawn(tmp_path: Path, name: str) -> None:
    write_lines(tmp_path / "metrics.jsonl", [metric_line(1)])
    write_lines(tmp_path / "timeline.jsonl", [{"party": name, "start": 0.0, "end": float(at)} for at in (1, 2)])
    figure = figures.timeline(read_run(tmp_path))
    assert figure is not None
    assert not is_blank(figures.png_bytes(figure, dots_per_inch=40))


def test_many_parties_stay_readable(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [metric_line(1)])
    spans = [{"party": f"party{place}", "start": 0.0, "end": 1.0, "what": "busy"} for place in range(60)]
    write_lines(tmp_path / "timeline.jsonl", spans)
    figure = figures.timeline(read_run(tmp_path))
    assert figure is not None
    assert len(figure.axes[0].get_yticks()) == figures.ROWS_SHOWN


# --- how a model errs -------------------------------------------------------------------------------------------


def test_errors_are_drawn_where_they_are_told(tmp_path: Path) -> None:
    told = {"confusion": [[8, 2], [1, 9]], "roc": [[0, 0], [0.1, 0.8], [1, 1]], "calibration": [[0.2, 0.1, 10]]}
    run = read_run(small_run(tmp_path / "told", [(1, 1.0, 0.5)], errors=told))
    drawn = [error_figures.confusion(run), error_figures.roc(run), error_figures.calibration(run)]
    assert all(drawn)
    words = {one.get_text() for one in drawn[0].axes[0].texts}
    assert words == {"8", "2", "1", "9"}
    assert drawn[1].axes[0].lines[1].get_ydata().tolist() == [0, 0.8, 1]


@pytest.mark.parametrize("odd", [None, [], "x", [[1]], [["x", None, 2]], [[1, 2], [3]], {"a": 1}, [[float("nan")] * 3]])
def test_what_is_no_table_of_numbers_is_not_drawn(odd: object, tmp_path: Path) -> None:
    errors = {"confusion": odd, "roc": odd, "calibration": odd}
    run = read_run(small_run(tmp_path / "odd", [(1, 1.0, 0.5)], errors=errors))
    assert error_figures.roc(run) is None and error_figures.calibration(run) is None
    assert odd == [[1]] or error_figures.confusion(run) is None  # which is a matrix, of one class
