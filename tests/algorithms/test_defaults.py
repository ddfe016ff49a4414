"""A sample of `colonnade bench defaults`: what algorithms reach with nothing set, on data that nobody tuned for.

Those of zeroth order are in test_scale_free_steps.py.
"""

from pathlib import Path

import pytest
import torch

from colonnade.benchmarks import defaults, measure
from colonnade.benchmarks.benchmark import Part
from colonnade.benchmarks.defaults import Cell, figures
from colonnade.benchmarks.kept_cells import KeptCells
from colonnade.benchmarks.twelve_sets import TWELVE
from colonnade.benchmarks.unseen_sets import unseen
from colonnade.errors import SettingsError


def reached(data: str, algorithm: str) -> float:
    found = defaults.measure_cell(Cell(data, algorithm))
    assert found is not None, "it diverged"
    return found


def test_split_models_are_as_good_as_one_model_in_one_place() -> None:
    found = {Cell("breast cancer", name): reached("breast cancer", name) for name in ("centralised", "vafl", "split")}
    assert figures(found)["worst_first_order_points"] <= 1


@pytest.mark.parametrize("algorithm", ["afsaga", "fsvrg", "asysqn-saga", "fcg"])
def test_columns_that_say_the_same_at_several_parties(algorithm: str) -> None:
    assert reached("redundant columns", algorithm) <= 1e-4


@pytest.mark.parametrize("algorithm", ["fsaga", "afsvrg", "synsqn-saga"])
def test_log_normal_columns(algorithm: str) -> None:
    assert reached("skewed columns", algorithm) <= 1e-4


@pytest.mark.parametrize("algorithm", ["fsgd", "synsqn-sgd"])
def test_stochastic_gradients_on_columns_of_all_units(algorithm: str) -> None:
    assert reached("units from 1e-6 to 1e6", algorithm) <= 1e-3


def test_the_worst_of_each_kind_is_told() -> None:
    found = {
        Cell("one", "centralised"): 90.0,
        Cell("one", "vafl"): 89.5,
        Cell("one", "split"): 91.0,
        Cell("one", "zoo"): 80.0,
        Cell("one", "dpzv"): None,
        Cell("one", "afsaga"): 1e-5,
        Cell("one", "afsgd"): 1e-3,
        Cell("two", "afsaga"): 1e-7,
    }
    told = figures(found)
    assert told["diverged"] == 1
    assert (told["worst_first_order_points"], told["worst_zeroth_order_points"]) == (0.5, 10.0)
    assert (told["worst_linear_gap"], told["worst_linear_sgd_gap"]) == (1e-5, 1e-3)


def test_figures_that_are_kept_are_not_measured_again(tmp_path: Path) -> None:
    kept = KeptCells(tmp_path / "kept.json")
    kept.add("breast cancer", "vafl", 12.5)
    kept.add("breast cancer", "split", None)
    cells = [Cell("breast cancer", "vafl"), Cell("breast cancer", "split")]
    again = KeptCells(tmp_path / "kept.json")
    told: list[str] = []
    assert defaults.measured(cells, told.append, again) == {cells[0]: 12.5, cells[1]: None}
    assert told == []


@pytest.mark.parametrize("content", ["[1]", "{", '{"vafl": 3}', '{"vafl": {"digits": "high"}}'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text(content)
    with pytest.raises(SettingsError, match="does not hold the figures of a benchmark"):
        KeptCells(tmp_path / "kept.json")


def test_a_short_benchmark_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="for benchmarks that take hours: defaults"):
        measure("split", part=Part(kept=tmp_path / "kept.json"))


def test_the_sets_are_of_all_kinds() -> None:
    assert len(TWELVE) == 12
    drawn = {name: TWELVE[name]() for name in ("friedman", "rare class", "sparse words")}
    assert {one.labels.task for one in drawn.values()} == {"binary", "regression"}
    assert drawn["rare class"].labels.train.double().mean().item() == pytest.approx(0.05, abs=0.01)


def test_a_seed_gives_the_same_table_and_another_one_another() -> None:
    here, again, other = unseen(122), unseen(122), unseen(127)
    assert here.rows == again.rows != other.rows
    for party, own in here.columns.items():
        assert torch.equal(own.train, again.columns[party].train)
    assert defaults.measure_cell(Cell("unseen 122", "fcg")) == pytest.approx(0, abs=1e-4)


def test_tables_that_are_drawn_are_of_all_kinds() -> None:
    drawn = [unseen(seed) for seed in (0, 1, 2, 5, 122)]
    assert {one.labels.task for one in drawn} == {"binary", "multiclass", "regression"}
    assert {any(own.sparse for own in one.columns.values()) for one in drawn} == {False, True}
    assert all(400 <= one.rows <= 6_000 and 2 <= len(one.feature_parties) <= 16 for one in drawn)
