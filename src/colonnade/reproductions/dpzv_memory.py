"""Figure 4 of DPZV: the most memory that a feature party's training takes, over the size of its model.

Each algorithm trains for five exchanges of four rows, in a process of its own; resident memory is counted from before
the model was there. The paper's is that of a GPU, normalised it does not say how.
"""

from dataclasses import dataclass

from colonnade.benchmarks.party_memory import measured
from colonnade.benchmarks.party_memory import over_model as without_activations
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.dpzv_runs import METHODS
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

QUICK, FULL = ("resnet18 of strips", "transformer"), ("resnet18 of strips", "resnet18", "bert-sized")
WORDS = {
    "resnet18 of strips": "ResNet-18, MNIST strip",
    "resnet18": "ResNet-18, CIFAR-10",
    "transformer": "small transformer",
    "bert-sized": "BERT-sized transformer",
}
ABOUT = 1.25
"""Times the model's size, up to which memory is called about that of the model."""


@dataclass(frozen=True)
class Measuring:
    algorithm: str
    model: str

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.model}"


@dataclass(frozen=True)
class Memory:
    """Megabytes of the model, and of a training's peak over what was there before; and that over the model's."""

    model: float
    peak: float
    over_model: float  # without the activations of one forward pass, which any training holds

    def __str__(self) -> str:
        return f"{self.peak:.0f} MB, {self.over_model:.2f} times a model of {self.model:.0f} MB"


def measure(job: Measuring) -> Memory:
    seen = measured(job.algorithm, job.model)
    return Memory(seen["model"] / 1e6, (seen["peak"] - seen["before"]) / 1e6, without_activations(seen))


def figure_4(scope: Scope) -> Shown:
    """Bars by model and algorithm."""
    models = QUICK if scope.quick else FULL
    jobs = [Measuring(name, model) for model in models for name in METHODS]
    found = dict(zip(jobs, run_cells(measure, jobs, Memory, scope), strict=True))
    rows = []
    for job, seen in found.items():
        claim, holds = {
            "dpzv": (f"at most {ABOUT:g}: about the model itself", seen.over_model <= ABOUT),
            "vafl": ("above 2", seen.over_model > 2),
        }.get(job.algorithm, ("above dpzv", seen.over_model > found[Measuring("dpzv", job.model)].over_model))
        note = f"{seen.peak:.0f} MB with activations, a model of {seen.model:.1f} MB"
        label = f"{WORDS[job.model]}, {job.algorithm}, peak over the model"
        rows.append(Row(label, None, seen.over_model, None, note, "", claim, holds))
    places = tuple(float(place) for place in range(len(METHODS)))
    panels = tuple(
        Panel(
            WORDS[model],
            "",
            "peak, times the model",
            (Curve("ours", places, tuple(found[Measuring(name, model)].over_model for name in METHODS)),),
            bars=METHODS,
        )
        for model in models
    )
    words = (
        "Bars only in the paper, normalised, no numbers; it says about the model's own memory for dpzv, more than "
        "twice for vafl, and more than dpzv's for zoo. The activations of one forward pass, which each of the four "
        "holds, are left out; the megabytes in the notes have them."
    )
    return Shown(rows, panels, words)


REPRODUCTIONS = (
    Reproduction(
        "dpzv-figure-4", "dpzv", "Figure 4", "memory of a feature party's training", ("sizes of models",), figure_4
    ),
)
