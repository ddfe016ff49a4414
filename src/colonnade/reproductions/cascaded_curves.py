"""Figures 3 and 4 of G. Wang et al., "Cascaded Hybrid Optimization", 2023, on MNIST: training accuracy by epoch for 4,
6 and 8 parties, and test accuracy by the label party's learning rate.

Models, batches and plain SGD as in cascaded.py. The feature parties' rates are chosen on validation rows, with four
parties and the first seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan

from colonnade.reproductions.cascaded import (
    FULL_EPOCHS,
    FULL_RATE_EPOCHS,
    GRID,
    NAMES,
    QUICK_RATE_EPOCHS,
    Run,
    Trial,
    best_rates,
    run_all,
)
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

PARTIES = (4, 6, 8)
QUICK_ROWS = 6_000
QUICK_CURVE_EPOCHS = 10.0
LONG_EPOCHS, QUICK_LONG_EPOCHS = 200.0, 20.0


def _rates(names: Sequence[str], scope: Scope) -> dict[str, float]:
    """The best rate of the paper's grid for each algorithm, by validation rows."""
    shown = [Trial(name, 0.0, 0.0, 0, max_rows=QUICK_ROWS if scope.quick else 0) for name in names]
    epochs = QUICK_RATE_EPOCHS if scope.quick else FULL_RATE_EPOCHS
    best, _ = best_rates(shown, dict.fromkeys(names, GRID), epochs, scope.seeds[:1], scope)
    return dict(zip(names, best, strict=True))


# --- Figure 3: training accuracy by epoch -----------------------------------------------------------------------


def figure_3(scope: Scope) -> Shown:
    """Curves of the five algorithms, a panel for each number of parties."""
    rates = _rates([*NAMES], scope)
    epochs = QUICK_CURVE_EPOCHS if scope.quick else FULL_EPOCHS
    rows_used = QUICK_ROWS if scope.quick else 0
    trials = {
        (parties, name): Trial(
            name, rates[name], epochs, scope.seeds[0], parties=parties, max_rows=rows_used, on_training_rows=True
        )
        for parties in reversed(PARTIES)  # the slowest first
        for name in NAMES
    }
    found = dict(zip(trials, run_all([*trials.values()], scope), strict=True))
    calmer = _calmer_zoo(found, trials, scope)
    rows, panels = [], []
    for parties in PARTIES:
        own = {name: found[parties, name] for name in NAMES}
        rows += _curve_rows(parties, own, rates) + (_zoo_rows(parties, calmer[parties]) if parties in calmer else [])
        curves = tuple(Curve(name, *_by_epoch(run)) for name, run in own.items())
        panels.append(Panel(f"{parties} parties", "epoch", "training accuracy, %", curves))
    remark = (
        "The paper prints curves, no numbers, and says that cascaded converges more steadily than ZOO-VFL, whose curve "
        "shakes. A fall is how far accuracy drops below the best of the epochs before. Rates are chosen with four "
        "parties, after a few epochs. Where zoo's turns out to be too large for what follows, rows have it at the next "
        "smaller one of the grid, too: how much it falls depends on the rate that is chosen."
    )
    return Shown(rows, tuple(panels), remark + (_said_of_quick(epochs) if scope.quick else ""))


def _said_of_quick(epochs: float) -> str:
    return f" Quick: {QUICK_ROWS:,} rows and {epochs:.0f} epochs in place of the paper's 60,000 and {FULL_EPOCHS:.0f}."


def _by_epoch(run: Run) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Epochs and accuracies: a run looks twice in every epoch."""
    return tuple((1 + place) / 2 for place in range(len(run.curve))), tuple(accuracy for _, accuracy in run.curve)


def _curve_rows(parties: int, own: dict[str, Run], rates: dict[str, float]) -> list[Row]:
    rows = []
    for name, run in own.items():
        note = f"learning rate {rates[name]}, in the last epoch" + ("; diverged" if run.diverged else "")
        claim, holds = "", None
        if name == "cascaded":
            claim, holds = "above zoo", _last(run) > _last(own["zoo"])
        label = f"{parties} parties, {name}, training accuracy %"
        rows.append(Row(label, None, _last(run), None, note, "", claim, holds))
    falls = {name: largest_fall(own[name]) for name in ("cascaded", "zoo")}
    for name, fall in falls.items():
        claim, holds = ("at most that of zoo", fall <= falls["zoo"]) if name == "cascaded" else ("", None)
        rows.append(Row(f"{parties} parties, {name}, largest fall, points", None, fall, None, "", "", claim, holds))
    return rows


def _calmer_zoo(
    found: Mapping[tuple[int, str], Run], trials: Mapping[tuple[int, str], Trial], scope: Scope
) -> dict[int, Run]:
    """`zoo` at the next smaller rate, by parties, where it diverged."""
    smaller = {
        parties: [rate for rate in GRID if rate < trials[parties, "zoo"].rate]
        for parties in PARTIES
        if found[parties, "zoo"].diverged
    }
    calmer = {parties: replace(trials[parties, "zoo"], rate=max(rates)) for parties, rates in smaller.items() if rates}
    return dict(zip(calmer, run_all([*calmer.values()], scope), strict=True)) if calmer else {}


def _zoo_rows(parties: int, run: Run) -> list[Row]:
    label, lost = f"{parties} parties, zoo at {run.trial.rate}", "; diverged" if run.diverged else ""
    return [
        Row(f"{label}, training accuracy %", None, _last(run), None, f"in the last epoch{lost}"),
        Row(f"{label}, largest fall, points", None, largest_fall(run)),
    ]


def _last(run: Run) -> float:
    return run.curve[-1][1] if run.curve else nan


def largest_fall(run: Run) -> float:
    """How far accuracy drops below the best of what came before."""
    best, fall = 0.0, 0.0
    for _, accuracy in run.curve:
        best = max(best, accuracy)
        fall = max(fall, best - accuracy)
    return fall


# --- Figure 4: test accuracy by the label party's rate ----------------------------------------------------------


def figure_4(scope: Scope) -> Shown:
    """`cascaded` and `zoo` with the feature parties at their best rate, and every rate of the grid for the top."""
    names = ("cascaded", "zoo")
    rates = _rates(names, scope)
    epochs = QUICK_LONG_EPOCHS if scope.quick else LONG_EPOCHS
    base = Trial("", 0.0, epochs, scope.seeds[0], max_rows=QUICK_ROWS if scope.quick else 0)
    trials = {
        (name, rate): replace(base, algorithm=name, rate=rates[name], top_rate=rate) for name in names for rate in GRID
    }
    found = dict(zip(trials, run_all([*trials.values()], scope), strict=True))
    rows, curves, spread = [], [], {}
    for name in names:
        scores = [_tested(found[name, rate]) for rate in GRID]
        spread[name] = max(scores) - min(scores)
        curves.append(Curve(name, tuple(reversed(GRID)), tuple(reversed(scores))))
        for rate, score in zip(GRID, scores, strict=True):
            lost = "; diverged" if found[name, rate].diverged else ""
            note = f"feature parties at {rates[name]}{lost}"
            rows.append(Row(f"{name}, top at {rate}, test accuracy %", None, score, None, note))
    claim = "less than zoo's"
    for name in names:
        holds = spread["cascaded"] < spread["zoo"] if name == "cascaded" else None
        label = f"{name}: best less worst rate, points"
        rows.append(Row(label, None, spread[name], None, "", "", claim if holds is not None else "", holds))
    remark = (
        "The paper prints bars, no numbers, and says that a rate away from the best costs ZOO-VFL more. Each model is "
        "that of its best epoch by validation rows; one that fails before its first epoch ends guesses (10 %)."
    )
    if scope.quick:
        remark += f" Quick: {QUICK_ROWS:,} rows and {epochs:.0f} epochs in place of the paper's 60,000 and 200."
    panel = Panel("four parties", "learning rate of the label party", "test accuracy, %", tuple(curves), log_x=True)
    return Shown(rows, (panel,), remark)


GUESSED = 10.0
"""Per cent, among ten classes: what a model that failed at once is worth."""


def _tested(run: Run) -> float:
    return GUESSED if run.test is None else run.test


REPRODUCTIONS = (
    Reproduction(
        "cascaded-figure-3",
        "cascaded",
        "Figure 3",
        "training accuracy by epoch with 4, 6 and 8 parties",
        ("mnist",),
        figure_3,
    ),
    Reproduction(
        "cascaded-figure-4",
        "cascaded",
        "Figure 4",
        "test accuracy by the label party's learning rate",
        ("mnist",),
        figure_4,
    ),
)
