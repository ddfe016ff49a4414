"""Reproductions: the rows they make from runs, and the processes that the runs happen in."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade import Cascaded, Training, dataset, train
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError, SettingsError
from colonnade.models.top import TopSettings
from colonnade.reproductions import cascaded, reproduce
from colonnade.reproductions.cascaded import GRID, Run, Trial
from colonnade.reproductions.reproduction import Scope
from colonnade.trials.pool import run_each

# --- processes --------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_jobs() -> None:
    seen: dict[int, int] = {}
    assert run_each(math.factorial, [3, 5, 4], seen.__setitem__, workers=2) == [6, 120, 24]
    assert seen == {3: 6, 4: 24, 5: 120}
    assert run_each(math.factorial, []) == []


def test_an_error_in_a_process_arrives_here_and_ends_the_others() -> None:
    with pytest.raises(ValueError, match="negative"):
        run_each(math.factorial, [-1, 3], workers=1)


def test_a_process_that_dies_is_one_sentence() -> None:
    with pytest.raises(RunError, match="killed"):
        run_each(os._exit, [1], workers=1)


ENDLESS = """
import sys, time
from colonnade.trials.pool import run_each

def work(job):
    print("at work", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    try:
        run_each(work, [1, 2, 3], workers=2)
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Two workers that would go on for ten minutes, and the process that started them."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal's foreground job has
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["at work\n", "at work\n"]
    yield process
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_leaves_no_process_behind(endless: subprocess.Popen[str]) -> None:
    os.killpg(endless.pid, signal.SIGINT)  # a terminal signals the whole group, the workers too
    # The output ends when the last process that has it open does.
    assert endless.communicate(timeout=60) == ("", "interrupted\n")
    assert endless.returncode == 1


def test_a_killed_caller_leaves_no_process_behind(endless: subprocess.Popen[str]) -> None:
    endless.kill()
    out, _ = endless.communicate(timeout=60)
    assert out == ""


# --- one run ----------------------------------------------------------------------------------------------------


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images of ten digits in MNIST's place."""

    def small(max_rows: int, parties: int = 4, validation: float = 0.0) -> FederatedData:
        return dataset("digits", parties=parties, validation=validation)

    monkeypatch.setattr(cascaded, "_mnist", small)


@pytest.mark.usefixtures("digits")
def test_a_run_is_watched_on_validation_rows_and_tested_once() -> None:
    found = cascaded.run(Trial("cascaded", 0.02, 4, seed=1, width=16))
    same = train(
        dataset("digits", parties=4, validation=cascaded.VALIDATION),
        Cascaded(step="plain", directions=1),
        training=Training(
            epochs=4, batch_size=64, learning_rate=0.02, optimiser="sgd", evaluate_every_epochs=1.0, heal=False
        ),
        bottom=cascaded.BOTTOM,
        top=TopSettings(hidden=(16,)),
        seed=1,
    )
    assert found.test == pytest.approx(100 * same.summary["test"]["accuracy"])
    assert found.best == pytest.approx(100 * same.summary["validation"]["accuracy"])
    assert len(found.curve) == 4 and not found.diverged
    assert found.best == max(accuracy for _, accuracy in found.curve)


@pytest.mark.usefixtures("digits")
def test_training_accuracy_is_that_on_training_rows() -> None:
    on_validation = cascaded.run(Trial("vafl", 0.1, 3, seed=0, width=16))
    on_training = cascaded.run(Trial("vafl", 0.1, 3, seed=0, width=16, on_training_rows=True))
    assert (len(on_validation.curve), len(on_training.curve)) == (3, 6)
    assert on_training.curve[-1][0] > on_validation.curve[-1][0]  # a tenth of the rows is kept apart
    assert on_training.test is None


@pytest.mark.usefixtures("digits")
def test_a_rate_that_diverges_is_given_up() -> None:
    found = cascaded.run(Trial("zoo", 3.0, 50, seed=0, width=16))
    assert found.diverged
    assert len(found.curve) < 50


def test_when_an_accuracy_was_reached() -> None:
    found = Run(Trial("vafl", 0.1, 3, 0), ((10, 70.0), (20, 90.0), (30, 80.0)), False, 1.0)
    assert [found.exchanges_to(accuracy) for accuracy in (70, 71, 90, 91)] == [10, 20, 20, None]
    assert found.best == 90
    assert (str(found.trial), str(found)) == ("vafl, rate 0.1, 4 parties, width 128, seed 0", "90.0 % (1 s)")
    assert str(replace(found, diverged=True)).endswith("90.0 %, then diverged (1 s)")
    assert str(replace(found, diverged=True, curve=())) == "diverged (1 s)"


# --- the tables -------------------------------------------------------------------------------------------------

ACCURACY = {"split": 97, "vafl": 98, "cascaded": 96, "zoo": 88, "zoo-sync": 87}


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """All trials that were run, each answered at once: best at a rate of 0.01, a point less with every seed.

    A rate of 0.015 is better still, but diverges with the second seed; 0.02 is better yet in the first epochs, and then
    diverges.
    """
    asked: list[Trial] = []

    def answer(trials: Sequence[Trial], scope: Scope) -> list[Run]:
        asked.extend(trials)
        return [made(trial) for trial in trials]

    def made(trial: Trial) -> Run:
        bonus = {0.015: 6, 0.02: 12}.get(trial.rate, 0)
        best = ACCURACY[trial.algorithm] - 1000 * abs(trial.rate - 0.01) - trial.seed + bonus
        diverged = (trial.rate == 0.015 and trial.seed == 1) or (trial.rate == 0.02 and trial.epochs >= 10)
        slow = 2 if (trial.algorithm, trial.width) == ("zoo", 512) else 1
        return Run(trial, ((slow * 100 * (trial.seed + 1), 80.0), (1000, best)), diverged, 1.0, best - 1)

    monkeypatch.setattr(cascaded, "run_all", answer)
    return asked


def test_table_2_shows_each_algorithm_at_its_best_rate(trials: list[Trial]) -> None:
    rows = {row["label"]: row for row in reproduce("cascaded-table-2", quick=False, seeds=2)["rows"]}
    for name, accuracy in ACCURACY.items():
        row = rows[f"{name}, MNIST, 4 clients, test accuracy %"]
        # A point more for the rate, one less on test rows, and half for the second seed.
        assert row["ours"] == accuracy - 0.5
        assert row["deviation"] == pytest.approx(math.sqrt(0.5))  # of two that are a point apart
        assert row["note"] == "learning rate 0.015, best of 100 epochs; 1 of 2 diverged later"
    assert rows["vafl less cascaded, MNIST, 4 clients, points"]["ours"] == 2
    assert rows["cascaded less zoo, MNIST, 4 clients, points"]["ours"] == 8
    assert rows["zoo, MNIST, 4 clients, test accuracy %"]["holds"] is False  # 87.5 and 89.0 in the paper
    # Every rate of the paper's grid for a while, with the first seed; the best one at full length, with all.
    short = [(one.algorithm, one.rate, one.seed) for one in trials if one.epochs == cascaded.FULL_RATE_EPOCHS]
    assert sorted(short) == sorted((name, rate, 0) for name in ACCURACY for rate in GRID)
    whole = [(one.algorithm, one.rate, one.seed) for one in trials if one.epochs == cascaded.FULL_EPOCHS]
    assert sorted(whole) == sorted((name, 0.015, seed) for name in ACCURACY for seed in (0, 1))


def test_table_2_has_a_command_for_each_group_of_columns(trials: list[Trial]) -> None:
    rows = {row["label"]: row for row in reproduce("cascaded-table-2-widths", quick=False, seeds=1)["rows"]}
    assert rows["zoo, MNIST, width 256, test accuracy %"]["holds"] is True  # 88 and 85.3 in the paper
    assert {(one.parties, one.width) for one in trials} == {(4, 256), (4, 512)}
    trials.clear()
    reproduce("cascaded-table-2-parties", quick=False, seeds=1)
    assert {(one.parties, one.width) for one in trials} == {(6, 128), (8, 128)}


def test_the_quick_table_2_tries_rates_for_a_short_while(trials: list[Trial]) -> None:
    result = reproduce("cascaded-table-2", quick=True)
    assert result["seeds"] == [0]
    short = [one for one in trials if one.epochs == cascaded.QUICK_RATE_EPOCHS]
    whole = [one for one in trials if one.epochs == cascaded.QUICK_EPOCHS]
    assert sorted((one.algorithm, one.rate) for one in short) == sorted((n, r) for n in ACCURACY for r in GRID)
    assert sorted((one.algorithm, one.rate) for one in whole) == sorted((n, 0.02) for n in ACCURACY)
    split = result["rows"][0]
    assert (split["ours"], split["deviation"]) == (98, None)
    assert "1 of 1 diverged later" in split["note"]


@pytest.mark.usefixtures("trials")
def test_the_width_compares_exchanges_seed_by_seed() -> None:
    result = reproduce("cascaded-top-width", quick=True)
    assert result["seeds"] == [0, 1, 2]
    rows = {row["label"]: row for row in result["rows"]}
    assert rows["cascaded, top 512 wide: exchanges to 90 % in training"]["ours"] == 1000
    assert rows["zoo, top 128 wide: exchanges to 80 % in training"]["ours"] == 200  # of 100, 200, 300
    assert rows["zoo, top 128 wide: exchanges to 80 % in training"]["deviation"] == 100
    assert rows["cascaded: exchanges at 512 over 128"]["ours"] == 1
    slower = rows["zoo: exchanges at 512 over 128"]
    assert (slower["ours"], slower["deviation"]) == (2, 0)
    assert rows["zoo, top 512 wide: training accuracy %"]["published"] is None  # the paper prints test accuracy


@pytest.mark.usefixtures("trials")
def test_a_target_that_is_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascaded, "TARGETS", {"cascaded": 99.0})
    rows = reproduce("cascaded-top-width", quick=True)["rows"]
    assert rows[0]["ours"] == 1000
    assert "3 of 3 did not reach it" in rows[0]["note"]


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'cascaded-table-2'"):
        reproduce("cascaded-table-3", quick=True)
