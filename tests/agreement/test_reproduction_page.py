"""docs/reproduction.md is what the recorded results say, and its figures are drawn from them."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

from colonnade.reproductions import recorded, reproductions

TOOL = runpy.run_path(str(ROOT / "tools" / "reproduction_page.py"))


def test_the_page_and_its_figures_are_what_was_recorded() -> None:
    assert [*TOOL["stale"]()] == [], "run `make tables`"


def test_every_record_is_of_a_reproduction_that_there_is() -> None:
    known = {f"{name}-{kind}.json" for name in reproductions() for kind in ("quick", "full")}
    for path in Path(str(recorded.FOLDER)).glob("*.json"):
        assert path.name in known
        result = json.loads(path.read_text("utf-8"))
        assert {"date", "machine", "versions", "commit", "seeds", "processor_seconds", "rows"} <= result.keys()
        assert result["rows"] and result["commit"]


def test_a_quick_reproduction_ends_within_ten_minutes_on_two_cores() -> None:
    for path in Path(str(recorded.FOLDER)).glob("*-quick.json"):
        assert json.loads(path.read_text("utf-8"))["processor_seconds"] / 2 < 600, path.name


def test_every_reproduction_is_of_an_item_that_the_page_lists() -> None:
    for one in reproductions().values():
        if one.paper == "ours":
            continue
        assert any(TOOL["is_of"](one.item, item) for item in TOOL["ITEMS"][one.paper]), one.name


def test_the_comparison_is_written_from_its_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    panel = {"title": "t", "x_label": "", "y_label": "", "log_x": False, "log_y": False, "bars": [], "figure": "time"}
    curve = {"label": "vafl", "x": [1.0], "y": [97.5], "dashed": False, "published": False, "level": False}
    rows = [
        {"label": "mnist, vafl, accuracy %", "ours": 97.46, "deviation": 0.2},
        {"label": "mnist, vafl, megabytes", "ours": 12.0, "deviation": 1.0},
        {"label": "mnist, dpzv, labels at ε = 1, accuracy %", "ours": 50.0, "deviation": 3.0},
    ]
    record = {
        "name": "which-one",
        "quick": False,
        "rows": rows,
        "panels": [{**panel, "curves": [curve]}],
        "remark": "Few.",
    }
    record |= {"date": "d", "machine": "m", "commit": "c", "seeds": [0], "processor_seconds": 240.0}
    (tmp_path / "which-one-quick.json").write_text(json.dumps({**record, "quick": True}), "utf-8")
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    quick = TOOL["with_comparison"]("{}{}".format(*TOOL["MARKERS"]))
    assert "`colonnade reproduce which-one --quick`" in quick and "which-one-time-quick.png" in quick
    (tmp_path / "which-one-full.json").write_text(json.dumps(record), "utf-8")
    text = TOOL["with_comparison"]("before\n{}old\n{}after\n".format(*TOOL["MARKERS"]))
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| `vafl` | 97.5 ± 0.2 | 12.0 |" in text and "| `dpzv`, labels | 50.0 ± 3.0 |" in text
    assert "which-one-time-full.png" in text and "docs/images/reproduction/which-one-time-full.png" in TOOL["figures"]()


def test_a_part_of_a_figure_is_of_it_and_a_longer_number_is_not() -> None:
    assert TOOL["is_of"]("Figure 5a", "Figure 5") and not TOOL["is_of"]("Table II", "Table I")


@pytest.mark.parametrize(("holds", "sign"), [([True, None], "●"), ([True, False], "◐"), ([None], "◐"), (None, "○")])
def test_a_sign_says_whether_claims_hold(holds: list[Any] | None, sign: str) -> None:
    assert TOOL["mark"](None if holds is None else {"rows": [{"holds": one} for one in holds]}) == sign


def test_a_record_that_changes_makes_page_and_figure_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = next(Path(str(recorded.FOLDER)).glob("afsgd-table-2-quick.json"))
    result = json.loads(source.read_text("utf-8"))
    result["rows"][0]["ours"] = 123.456
    result["panels"][0]["curves"][0]["y"][0] = 123.456
    (tmp_path / source.name).write_text(json.dumps(result), "utf-8")
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    found = TOOL["stale"]()
    assert b"123.46" in found["docs/reproduction.md"]
    assert found["docs/images/reproduction/afsgd-table-2-quick.png"][1:4] == b"PNG"
