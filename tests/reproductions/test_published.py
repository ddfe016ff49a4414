"""Published numbers: read twice, the two readings agree; and no reproduction writes one of its own."""

import ast
import csv
import math
from pathlib import Path

import pytest

from colonnade import reproductions
from colonnade.errors import SettingsError
from colonnade.reproductions import afsgd_vp
from colonnade.reproductions.published import PAPERS, parsed, published, tables

SECOND_READING = Path(__file__).with_name("second_reading.tsv")


def test_two_readings_of_the_papers_agree() -> None:
    first = {
        (table.paper, table.item, row, column): parsed(cell, "")
        for table in tables().values()
        for row, cells in table.rows.items()
        for column, cell in zip(table.columns, cells, strict=True)
    }
    with SECOND_READING.open(encoding="utf-8") as file:
        second = {
            (one["paper"], one["item"], one["row"], one["column"]): (one["value"], one["deviation"])
            for one in csv.DictReader(file, delimiter="\t")
        }
    assert first.keys() == second.keys()
    for place, (value, deviation) in second.items():
        found = first[place]
        if value == "–":
            assert found is None, place
            continue
        assert found is not None, place
        assert found.value == (math.inf if value == "∞" else float(value)), place
        assert found.deviation == (float(deviation) if deviation else None), place


def test_every_table_is_of_a_paper_that_is_known_and_says_what_it_holds() -> None:
    assert {table.paper for table in tables().values()} <= PAPERS.keys()
    assert all(table.what and table.item.split()[0] in ("Table", "Figure", "Figures") for table in tables().values())


@pytest.mark.parametrize("cell", ["97,7", "97.7 +- 0.1", "", "about 2"])
def test_a_cell_that_is_no_printed_number_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="no printed number"):
        parsed(cell, "somewhere")


@pytest.mark.parametrize(
    ("place", "word"),
    [
        (("afsgd-vp", "Table 9", "url", "SGD"), "Table II"),
        (("afsgd-vp", "Table II", "urls", "SGD"), "url"),
        (("afsgd-vp", "Table II", "url", "SGDs"), "SGD"),
    ],
)
def test_a_place_that_is_not_there_is_refused_with_the_nearest_one(place: tuple[str, str, str, str], word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        published(*place)


def test_the_speed_up_beside_ours_is_that_of_the_same_set_and_method() -> None:
    found = afsgd_vp.published_speed_up("givemesomecredit", "SVRG")
    assert found is not None and found.value == 2.26 and found.source == "AFSGD-VP, Table II, GiveMeSomeCredit, SVRG"
    assert afsgd_vp.published_speed_up("a9a", "SVRG") is None  # which Table II does not have


def test_no_reproduction_writes_a_published_number_itself() -> None:
    """`Row` takes it as its second argument, `Row.beside` from a Published."""
    for path in Path(reproductions.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Row":
                given = call.args[1]
                assert isinstance(given, ast.Constant) and given.value is None, f"{path.name}:{call.lineno}"
