"""Lanes of a whole run: what they are given, and that they act in a page that is opened offline."""

import json
from pathlib import Path
from typing import Any

from fake_runs import small_run

from colonnade.reports.lanes import MOST_PARTIES, lanes
from colonnade.reports.rundir import Run, read_run


def live(moment: float, virtual: float, **busy: float) -> dict[str, Any]:
    parties = {name: {"busy": seconds, "away": 0.25} for name, seconds in busy.items()}
    return {"time": 1e9, "now": moment, "virtual": virtual, "parties": parties}


def a_run(folder: Path, lines: list[Any], spans: list[dict[str, Any]] | None = None) -> Run:
    run = small_run(folder / "run", [(10, 2.0, 0.8)], parties={"label": {}, "shop": {}})
    (run / "live").mkdir()
    (run / "live" / "simulate.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "live" / "log.jsonl").write_text('{"now": 7, "virtual": 7, "parties": {"log": {"busy": 1}}}\n')
    (run / "timeline.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans or []))
    return read_run(run)


def told(run: Run) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(str(lanes(run)).partition("data-lanes>")[2].partition("</script>")[0])
    return shown


def test_the_record_of_a_whole_run_and_the_excerpt_of_its_beginning(tmp_path: Path) -> None:
    spans = [{"party": "shop", "start": 0.0, "end": 0.5, "what": "busy"}]
    shown = told(a_run(tmp_path, [live(0.1, 0.0, label=0.0, shop=0.0), live(0.4, 2.0, label=0.5, shop=1.5)], spans))
    assert (shown["unit"], shown["end"]) == ("virtual seconds", 2.0)
    label, shop = shown["parties"]
    assert label == {"name": "label", "records": [[0.0, 0.0, 0.25], [2.0, 0.5, 0.25]], "spans": []}
    assert shop["spans"] == [[0.0, 0.5, "busy"]]


def test_lines_that_go_back_or_are_none_are_left_out(tmp_path: Path) -> None:
    odd = [{"parties": 3}, {"parties": {"label": 3}}, live(2, 2.0, label=1.0)]
    odd = [live(1, 1.0, label=0.5), live(1, 0.5, label=0.1), *odd]
    assert [one[0] for one in told(a_run(tmp_path, odd))["parties"][0]["records"]] == [1.0, 2.0]


def test_a_run_that_recorded_nothing_has_no_lanes(tmp_path: Path) -> None:
    assert lanes(a_run(tmp_path, [])) == ""


def test_a_name_cannot_end_the_script(tmp_path: Path) -> None:
    many: dict[str, Any] = {f"</script>{one}": {} for one in range(MOST_PARTIES + 5)}
    run = small_run(tmp_path / "run", [(10, 2.0, 0.8)], parties=many)
    (run / "timeline.jsonl").write_text(json.dumps({"party": "</script>0", "start": 0, "end": 1, "what": "busy"}))
    page = str(lanes(read_run(run)))
    assert page.count("</script>") == 1 and "\\u003c/script>0" in page
    assert len(told(read_run(run))["parties"]) == MOST_PARTIES
