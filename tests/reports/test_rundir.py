"""A run directory is read as far as it is whole; what cannot be read is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import full_run, metric_line, small_run, write_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.errors import RunError, SettingsError
from colonnade.reports.rundir import distinct_names, read_run


def bare_run(directory: Path, *lines: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_lines(directory / "metrics.jsonl", list(lines))
    return directory


def test_a_full_run_is_read(tmp_path: Path) -> None:
    run = read_run(full_run(tmp_path / "monday", exchanges=40))
    assert (run.name, run.algorithm, run.runtime, run.status) == ("monday", "vafl", "simulate", "finished")
    assert run.clock == "virtual"
    assert [party.name for party in run.parties] == ["label", "party1", "party2", "party3", "party4"]
    assert run.parties[1].columns == 16
    assert run.headline == "accuracy"
    assert run.final_metric == run.section("test")["accuracy"]
    assert len(run.curve) == 10
    assert {span.what for span in run.timeline} == {"busy", "away"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0, max_value=400))
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path: Path, cut: int) -> None:
    lines = [metric_line(exchange, party="één") for exchange in (1, 2)]
    whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    # A cut just before the newline leaves a line that is torn in name only.
    complete = [line for line in whole[:cut].split(b"\n") if line.endswith(b"}")]
    (tmp_path / "metrics.jsonl").write_bytes(whole[:cut])
    assert [line.exchange for line in read_run(tmp_path).lines] == [1, 2][: len(complete)]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    bare_run(tmp_path, metric_line(1))
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as out:
        out.write('{"exchange": \n' + json.dumps(metric_line(3)) + "\n")
    with pytest.raises(RunError, match=r"Line 2 of .*metrics\.jsonl is not a JSON object.*delete that line"):
        read_run(tmp_path)


def test_a_line_without_its_exchange_is_an_error_that_names_it(tmp_path: Path) -> None:
    bare_run(tmp_path, metric_line(1), {"party": "label", "loss": 0.5})
    with pytest.raises(RunError, match=r"Line 2 of .*'exchange'"):
        read_run(tmp_path)


def test_paths_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"There is no run directory .*nowhere"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"not a run directory: metrics\.jsonl is missing"):
        read_run(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SettingsError, match="is a file, not a run directory"):
        read_run(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": ', "not valid JSON"),
        (b"[1]", "a JSON list where an object belongs"),
        (b'"\xff"', "not UTF-8"),
    ],
)
def test_an_unreadable_summary_is_named_with_what_to_do(tmp_path: Path, content: bytes, said: str) -> None:
    bare_run(tmp_path, metric_line(1))
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(RunError, match=rf"summary\.json.*{said}.*delete it"):
        read_run(tmp_path)


def test_an_interrupted_run_is_told_by_its_last_line(tmp_path: Path) -> None:
    bare_run(
        tmp_path,
        metric_line(10, 1.0, metric={"auc": 0.7}, loss=0.6),
        metric_line(20, 2.0, loss=0.5),
    )
    (tmp_path / "federation.toml").write_text('[algorithm]\nname = "vafl"\n')
    run = read_run(tmp_path)
    assert (run.status, run.algorithm, run.has_summary) == ("interrupted", "vafl", False)
    assert (run.total("exchanges"), run.seconds, run.total("train_loss")) == (20, 2.0, 0.5)
    assert (run.headline, run.final_metric) == ("auc", 0.7)
    assert run.bytes_both_ways == 20 * 300


def test_a_run_without_virtual_seconds_is_told_in_wall_seconds(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path / "real", [(1000, None, 0.9)]))
    assert (run.clock, run.seconds, run.seconds_of(run.curve[0])) == ("wall", 1.0, 1.0)


def test_the_label_party_tells_the_curve_even_if_others_write_more(tmp_path: Path) -> None:
    others = [metric_line(exchange, party="party1", loss=9.0) for exchange in range(1, 6)]
    run = read_run(bare_run(tmp_path, *others, metric_line(5, loss=0.5)))
    assert [line.loss for line in run.curve] == [0.5]


def test_of_a_repeated_stretch_the_later_telling_stays(tmp_path: Path) -> None:
    told = [(10, 0.9), (20, 0.8), (30, 0.7), (20, 0.75), (30, 0.65)]
    run = read_run(bare_run(tmp_path, *(metric_line(exchange, loss=loss) for exchange, loss in told)))
    assert [(line.exchange, line.loss) for line in run.curve] == [
        (10, 0.9),
        (20, 0.8),
        (20, 0.75),
        (30, 0.65),
    ]


def test_a_diverged_loss_is_noticed_and_not_drawn(tmp_path: Path) -> None:
    run = read_run(bare_run(tmp_path, metric_line(1, loss=float("nan")), metric_line(2, loss=None)))
    assert [(line.loss, line.diverged) for line in run.curve] == [(None, True), (None, False)]


def test_equal_directory_names_are_told_apart(tmp_path: Path) -> None:
    first = read_run(small_run(tmp_path / "vafl" / "seed1", [(1, 1.0, 0.5)]))
    second = read_run(small_run(tmp_path / "split" / "seed1", [(1, 1.0, 0.5)]))
    third = read_run(small_run(tmp_path / "other", [(1, 1.0, 0.5)]))
    assert distinct_names([first, second, third]) == ["vafl/seed1", "split/seed1", "other"]
    assert distinct_names([third, third]) == [f"{tmp_path.name}/other", f"{tmp_path.name}/other (2)"]
