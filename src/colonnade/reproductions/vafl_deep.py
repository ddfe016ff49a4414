"""Figures 5 to 8 of T. Chen et al., "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020: deep bottoms.

Figures 5 and 6: views of three-dimensional shapes, a multi-view CNN of seven layers at each party (six convolutions and
a Linear layer), a top of two layers. Twelve views; four parties with three each, or twelve with one each. Shapes are
ModelNet10's in place of ModelNet40's: `modelnet10_voxel`, drawn from the side in steps of 30 degrees.

Figures 7 and 8: who dies in hospital, by an LSTM over the first 48 hours at each of four parties; the open stays of
`physionet2012_icu` in place of MIMIC-III. A party is who measures: the monitor, the ward, gases, the laboratory.

Delays as in vafl.py; noise has variance 1. The paper names no optimiser: steps are Adam's, with its rate, 0.001,
in the middle of those tried.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.data.stays import QUANTITIES, columns_of
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.reproduction import Reproduction, Scope, Shown
from colonnade.reproductions.vafl import Learnt, Problem, Trial, compared, trained

RATES = (0.0003, 0.001, 0.003)
NOISE = 1.0
CNN = BottomSettings("multi-view", embedding=32, channels=(8, 8, 16, 16, 32, 32))
LSTM = BottomSettings("lstm", embedding=8, hidden=(16,))


@cache
def _shapes(parties: int, max_rows: int, validation: float) -> FederatedData:
    return dataset("modelnet10_voxel", split="channels", parties=parties, max_rows=max_rows, validation=validation)


@cache
def _stays(max_rows: int, validation: float) -> FederatedData:
    columns = {who: columns_of(who) for who in QUANTITIES}
    split = "named-columns"
    return dataset("physionet2012_icu", split=split, columns=columns, max_rows=max_rows, validation=validation)


def _views(parties: int) -> Problem:
    return Problem(
        parties,
        partial(_shapes, parties),
        CNN,
        TopSettings(hidden=(64,)),
        RATES,
        NOISE,
        ("async",),
        batch=32,
        optimiser="adam",
        below=2.0,
        centralised=False,
        epochs=(10.0, 40.0),
        rate_epochs=3.0,
        quick_rows=1_000,
    )


TWELVE, SLOWER_TOP = "views, 12 parties", "views, 12 parties, a slower top"
PROBLEMS = {
    "views, 4 parties": _views(4),
    TWELVE: replace(_views(12), slower_top=SLOWER_TOP),
    SLOWER_TOP: replace(_views(12), top_share=1 / 12),
    "stays": Problem(
        len(QUANTITIES),
        _stays,
        LSTM,
        TopSettings(hidden=(16,)),
        RATES,
        NOISE,
        ("async",),
        batch=32,
        optimiser="adam",
        metric="auc",
        below=2.0,
        epochs=(8.0, 20.0),
        rate_epochs=3.0,
        quick_rows=1_500,
    ),
}


def run(trial: Trial) -> Learnt:
    return trained(trial, PROBLEMS[trial.data])


def _run_all(trials: Sequence[Trial], scope: Scope) -> list[Learnt]:
    return run_cells(run, trials, Learnt, scope)


def figures(name: str, remark: str, scope: Scope) -> Shown:
    rows, panels = compared({name: PROBLEMS[name]}, _run_all, scope)
    return Shown(rows, tuple(panels), remark)


OF_VIEWS = (
    "The paper prints curves, no numbers, and says that async and t-sync have a sizable speed-up and that noise of "
    "variance 1 costs async little; it says nothing of accuracy beside sync's. ModelNet10 stands in for ModelNet40: "
    "3,991 shapes of ten kinds, drawn from voxels."
)
OF_TWELVE = (
    f"{OF_VIEWS} That sentence is of four parties; with twelve the text says nothing of noise. What it costs there is "
    "the label party's model: it is updated with every upload, twelve times an epoch with each row, by embeddings of "
    "which eleven in twelve have the noise that they had the last time, and learns that by heart (its training loss is "
    "the lower one from the first epoch on). The last rows differ in its rate alone, a twelfth."
)
OF_STAYS = (
    "The paper prints curves, no numbers, and says that async and t-sync come to what the centralised model comes to, "
    "in less time than sync. 4,000 stays of the PhysioNet Challenge 2012 stand in for MIMIC-III."
)
REPRODUCTIONS = (
    Reproduction(
        "vafl-figure-5",
        "vafl",
        "Figures 5 and 6",
        "a multi-view CNN under delays, four parties with three views each",
        ("modelnet10_voxel",),
        partial(figures, "views, 4 parties", OF_VIEWS),
    ),
    Reproduction(
        "vafl-figure-5-twelve",
        "vafl",
        "Figures 5 and 6",
        "a multi-view CNN under delays, twelve parties with one view each",
        ("modelnet10_voxel",),
        partial(figures, TWELVE, OF_TWELVE),
    ),
    Reproduction(
        "vafl-figure-7",
        "vafl",
        "Figures 7 and 8",
        "LSTMs over stays in intensive care under delays, four parties",
        ("physionet2012_icu",),
        partial(figures, "stays", OF_STAYS),
    ),
)
