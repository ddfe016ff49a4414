"""The comparison of all algorithms: who takes part, what is shown, and what one run is."""

from pathlib import Path

import pytest

from colonnade import dataset
from colonnade.algorithms import ALGORITHMS
from colonnade.errors import RunError
from colonnade.reproductions import reproduce, which_one
from colonnade.reproductions.which_one import COLUMNS, LABELS, TWINS, Found, Trial, run, trials_of


def test_every_algorithm_takes_part_and_has_a_place_in_a_panel() -> None:
    trials = trials_of(False, [0, 1, 2])
    assert {one.algorithm for one in trials if not one.protects} == ALGORITHMS.keys()
    assert len({name for twins in TWINS.values() for pair in twins for name in pair}) == len(ALGORITHMS)
    private = {(one.algorithm, one.protects, one.epsilon) for one in trials if one.protects}
    assert len(private) == 2 * (len(LABELS) + len(COLUMNS)) and {one.seed for one in trials} == {0, 1, 2}


def test_rows_are_means_over_seeds_and_a_failure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(trial: Trial) -> Found:
        if trial.algorithm == "zoo" and trial.seed == 1:
            return Found(failed="it diverged.")
        if trial.protects:
            return Found((), 60.0, 1.0, 2.0, trial.epsilon)
        return Found(((1.0, 2.0, 50.0), (2.0, 4.0, 70.0 + trial.seed)), 70.0 + trial.seed, 2.0, 4.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(which_one, "run_cells", lambda work, trials, kind, scope: [made(one) for one in trials])
    monkeypatch.setattr("colonnade.reports.figures.png_bytes", lambda figure: b"")
    monkeypatch.setattr("colonnade.reproductions.drawing.drawing_of", lambda panels: None)
    result = reproduce("which-one", quick=True, seeds=2)
    rows = {row["label"]: row for row in result["rows"]}
    assert rows["credit_default_uci, vafl, AUC %"]["ours"] == 70.5 and rows["mnist, vafl, megabytes"]["ours"] == 4.0
    assert rows["mnist, zoo, accuracy %"]["note"] == "1 of 2 failed: it diverged."
    assert rows["mnist, dpzv, labels at ε = 8, accuracy %"]["note"] == "sound ε = 8"
    assert {panel["figure"] for panel in result["panels"]} == {"time", "bytes", "epsilon"}
    first = result["panels"][0]["curves"][0]
    assert (first["label"], first["x"], first["y"]) == ("vafl", [1.0, 2.0], [50.0, 70.5])


def test_a_run_tells_seconds_bytes_and_a_sound_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(which_one, "data_of", lambda name, rows: dataset("breast_cancer", parties=2, max_rows=200))
    found = run(Trial("any", "split", 200, 2.0, 0))
    assert len(found.looks) == 2 and found.seconds >= found.looks[-1][0] > found.looks[0][0] > 0
    assert found.looks[-1][1] == pytest.approx(found.megabytes, rel=0.5)
    assert found.reached is not None and found.sound is None
    private = run(Trial("any", "vafl", 200, 1.0, 0, "columns", 8.0))
    assert private.sound is not None and 4 < private.sound <= 8.001

    def fail(*given: object, **more: object) -> None:
        raise RunError("The loss is not finite.")

    monkeypatch.setattr(which_one, "train", fail)
    assert run(Trial("any", "vafl", 200, 1.0, 0)).failed == "The loss is not finite."
