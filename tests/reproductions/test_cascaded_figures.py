"""Cascaded's Table I, Figures 3 and 4 and its deep models: the rows they make, and what one run is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.reproductions import cascaded, cascaded_curves, cascaded_deep, cascaded_labels, reproduce
from colonnade.reproductions.cascaded import GRID, Run, Trial
from colonnade.reproductions.cascaded_labels import Attacked, Labels, attack
from colonnade.reproductions.reproduction import Scope
from colonnade.trials.attack import CURIOUS, DIFFERENCES, EAVESDROPPER


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


# --- Table I ----------------------------------------------------------------------------------------------------


def test_gradients_give_labels_away_and_losses_hardly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascaded_labels, "_data", lambda max_rows: dataset("digits", parties=2, max_rows=400))
    assert attack(Attacked("vafl", 0)).found == {CURIOUS: 100.0, EAVESDROPPER: 100.0}
    found = attack(Attacked("cascaded", 0)).found
    assert set(found) == {CURIOUS, EAVESDROPPER, DIFFERENCES}
    assert all(2 < share < 30 for share in found.values())  # chance is 10


def test_table_1_holds_each_algorithm_against_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(work: Callable[[Attacked], Labels], cells: Sequence[Attacked], *_: Any) -> list[Labels]:
        first = {CURIOUS: 100.0, EAVESDROPPER: 100.0}
        zeroth = {CURIOUS: 11.5, EAVESDROPPER: 12.0, DIFFERENCES: 13.0}
        return [Labels(first if one.algorithm in ("split", "vafl") else zeroth) for one in cells]

    monkeypatch.setattr(cascaded_labels, "run_cells", answer)
    result = reproduce("cascaded-table-1", quick=True)
    assert result["seeds"] == [0, 1, 2, 3, 4]
    rows = {row["label"]: row for row in result["rows"]}
    assert rows["vafl, curious party, labels found %"]["published"] == 100
    assert rows["zoo, curious party, labels found %"]["holds"] is True  # 11.7 in the paper
    assert rows["zoo, eavesdropper, labels found %"]["holds"] is False  # 10.0 there
    assert rows[f"zoo, {DIFFERENCES}, labels found %"]["holds"] is None


# --- Figures 3 and 4 --------------------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """All trials that were asked for: 0.005 is the best rate of all, and `zoo` shakes."""
    asked: list[Trial] = []

    def answer(wanted: Sequence[Trial], scope: Scope) -> list[Run]:
        asked.extend(wanted)
        return [made(one) for one in wanted]

    def made(one: Trial) -> Run:
        best = 90 - 1000 * abs(one.rate - 0.005)
        shaken = 20.0 if one.algorithm == "zoo" else 1.0
        test = best - (1000 if one.algorithm == "zoo" else 100) * abs(one.top_rate - 0.01)
        return Run(one, ((1, best), (2, best - shaken), (3, best - 0.5 * shaken)), False, 1.0, test)

    monkeypatch.setattr(cascaded, "run_all", answer)
    monkeypatch.setattr(cascaded_curves, "run_all", answer)
    return asked


def test_figure_3_has_a_panel_for_each_number_of_parties(trials: list[Trial]) -> None:
    result = reproduce("cascaded-figure-3", quick=True)
    shown = [one for one in trials if one.on_training_rows]
    assert {one.rate for one in shown} == {0.005} and {one.parties for one in shown} == {4, 6, 8}
    assert {one.rate for one in trials if not one.on_training_rows} == set(GRID)
    assert [panel["title"] for panel in result["panels"]] == ["4 parties", "6 parties", "8 parties"]
    assert result["panels"][0]["curves"][0]["x"] == [0.5, 1.0, 1.5]
    rows = {row["label"]: row for row in result["rows"]}
    assert rows["6 parties, zoo, largest fall, points"]["ours"] == 20
    assert rows["6 parties, cascaded, largest fall, points"]["holds"] is True
    assert rows["6 parties, cascaded, training accuracy %"]["holds"] is True


def test_where_zoo_diverges_it_is_shown_at_the_next_smaller_rate_too(
    trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    shaking = cascaded_curves.run_all

    def answer(wanted: Sequence[Trial], scope: Scope) -> list[Run]:
        lost = [one.algorithm == "zoo" and one.parties > 4 and one.rate == 0.005 for one in wanted]
        return [replace(run, diverged=gone) for run, gone in zip(shaking(wanted, scope), lost, strict=True)]

    monkeypatch.setattr(cascaded_curves, "run_all", answer)
    rows = {row["label"]: row for row in reproduce("cascaded-figure-3", quick=True)["rows"]}
    assert rows["6 parties, zoo, training accuracy %"]["note"].endswith("; diverged")
    calmer = rows["8 parties, zoo at 0.001, training accuracy %"]
    assert (calmer["ours"], calmer["note"], calmer["holds"]) == (76, "in the last epoch", None)
    assert rows["8 parties, zoo at 0.001, largest fall, points"]["ours"] == 20
    assert "4 parties, zoo at 0.001, training accuracy %" not in rows


def test_figure_4_varies_the_rate_of_the_top_alone(trials: list[Trial]) -> None:
    rows = {row["label"]: row for row in reproduce("cascaded-figure-4", quick=True)["rows"]}
    shown = [one for one in trials if one.top_rate]
    assert {(one.algorithm, one.rate, one.top_rate) for one in shown} == {
        (name, 0.005, rate) for name in ("cascaded", "zoo") for rate in GRID
    }
    assert rows["cascaded: best less worst rate, points"]["ours"] == pytest.approx(1.0)
    assert rows["cascaded: best less worst rate, points"]["holds"] is True
    assert rows["zoo: best less worst rate, points"]["ours"] == pytest.approx(10.0)


def test_the_top_learns_at_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(max_rows: int, parties: int = 4, validation: float = 0.0) -> FederatedData:
        return dataset("digits", parties=parties, validation=validation, max_rows=800)

    monkeypatch.setattr(cascaded, "_mnist", small)
    slow, same, fast = (cascaded.run(Trial("split", 0.1, 4, 0, 8, top_rate=rate)) for rate in (1e-9, 0.1, 0.4))
    plain = cascaded.run(Trial("split", 0.1, 4, 0, 8))
    assert same.curve == plain.curve and fast.curve != plain.curve
    assert fast.best > slow.best


def test_of_a_run_that_diverges_later_the_best_epoch_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[float] = []

    def train(*given: object, training: Training, watch: Callable[[dict[str, Any]], None], **more: object) -> Any:
        lengths.append(training.epochs)
        for epoch, accuracy in enumerate((0.5, 0.8, 0.6)[: int(training.epochs)], 1):
            watch({"exchange": 10 * epoch, "loss": 1.0, "metric": {}, "validation": {"accuracy": accuracy}})
        if training.epochs > 3:
            raise RunError("The loss is not finite.")
        return SimpleNamespace(summary={"test": {"accuracy": 0.75}})

    monkeypatch.setattr(cascaded, "train", train)
    monkeypatch.setattr(cascaded, "_mnist", lambda *given: None)
    found = cascaded.run(Trial("zoo", 0.01, 30, 0))
    assert (found.diverged, found.best, found.test) == (True, 80.0, 75.0) and len(found.curve) == 3
    assert lengths == [30, 2]


# --- deep models ------------------------------------------------------------------------------------------------


def test_the_deep_figures_print_table_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(trials: Sequence[cascaded_deep.Trial], scope: Scope) -> list[cascaded_deep.Learnt]:
        made = []
        for one in trials:
            zoo = one.algorithm == "zoo"
            if one.validation:
                made.append(cascaded_deep.Learnt(validation=100 * one.rate, diverged=one.rate == 0.03))
            else:
                made.append(cascaded_deep.Learnt(((1.0, 50.0), (2.0, 60.0)), 20.0 if zoo else 86.0))
        return made

    monkeypatch.setattr(cascaded_deep, "_run_all", answer)
    result = reproduce("cascaded-figure-5b", quick=True)
    rows = {row["label"]: row for row in result["rows"]}
    assert result["seeds"] == [0]
    split = rows["split, CIFAR-10, ResNet-18, test accuracy %"]
    assert (split["published"], split["holds"], split["note"]) == (84.7, None, "learning rate 0.01")
    whole = {row["label"]: row for row in reproduce("cascaded-figure-5b", quick=False, seeds=1)["rows"]}
    assert whole["split, CIFAR-10, ResNet-18, test accuracy %"]["holds"] is True
    assert whole["vafl, CIFAR-10, ResNet-18, test accuracy %"]["holds"] is False  # 88.1 there
    assert rows["zoo, CIFAR-10, ResNet-18, test accuracy %"]["published"] is None
    assert rows["cascaded less zoo, points"]["ours"] == 66
    assert [curve["y"] for curve in result["panels"][0]["curves"]] == [[50.0, 60.0]] * 4
    # What the text tells of an epoch is held against ours where it has run so long: two epochs, not forty.
    told = {row["label"]: row for row in reproduce("cascaded-figure-5c", quick=False, seeds=1)["rows"]}
    row = told["cascaded, training accuracy % in epoch 2"]
    assert (row["published"], row["ours"], row["holds"]) == (94, 60, False)
    assert not any("in epoch" in label for label in rows)


def test_a_deep_run_is_watched_on_training_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(max_rows: int, validation: float) -> FederatedData:
        return dataset("iris", parties=2, validation=validation)

    def models() -> tuple[nn.Module, nn.Module]:
        return nn.Linear(2, 4), nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

    task = cascaded_deep.TASKS["images"]
    small = cascaded_deep.Task("", load, models, 16, (1, 1), (0, 0), task.rates, task.zoo_rates, (1, 1), ("zoo", 9), "")
    monkeypatch.setitem(cascaded_deep.TASKS, "small", small)
    found = cascaded_deep.run(cascaded_deep.Trial("small", "vafl", 0.1, 3.0, 0, 0))
    assert [epoch for epoch, _ in found.curve] == [1, 2, 3] and found.test is not None
    tried = cascaded_deep.run(cascaded_deep.Trial("small", "vafl", 0.1, 3.0, 0, 0, validation=0.2))
    assert tried.validation is not None and tried.test is None
    assert str(cascaded_deep.run(cascaded_deep.Trial("small", "vafl", 1e20, 3.0, 0, 0))).startswith("diverged")
