"""One feature party's peak memory in training, measured in a process of its own: python -m … KIND MODEL.

Prints a JSON object of bytes: `before` (resident before the model was there), `model`, `activations` (what one forward
pass without gradients takes at its peak), `peak` (resident at the peak of five exchanges).
"""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.czofo import Czofo, PerturbingBottom
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.seed_replay import SeedReplayBottom
from colonnade.algorithms.split_models.parts.zeroth_bottom import ZerothOrderBottom
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.split_models.zoo import Zoo
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import PartyColumns
from colonnade.models.papers import SmallTransformer, resnet18
from colonnade.models.pretrained import VOCABULARY, transformer
from colonnade.privacy.noise import PerturbationSettings

ROWS, WIDTH, EXCHANGES = 4, 64, 5
PRETRAINED = {"pretrained": 0, "pretrained, lora": 8}
"""Models of text, which need the extra `transformers`: the rank of their adapters."""
SHAPES = {
    "resnet18": (3, 32, 32),
    "resnet18 of strips": (1, 4, 28),
    "transformer": (16, 64),
    "bert-sized": (16, 64),
    **dict.fromkeys(PRETRAINED, (64,)),
}
"""A party's part of an image: a whole one of CIFAR-10, a strip of MNIST's seven; a series of tokens; token numbers."""
SETTINGS: dict[str, Any] = {
    "dpzv": Dpzv(step="plain"),
    "vafl": Vafl(),
    "czofo": Czofo(),
    "zoo": Zoo(step="plain", directions=1),
}
"""Of "ALGORITHM, OPTIMISER", too; sgd if it has no optimiser."""


def build(model: str) -> nn.Module:
    if model in PRETRAINED:
        return transformer(WIDTH, PRETRAINED[model])
    if model.startswith("resnet18"):
        return resnet18(SHAPES[model][0], WIDTH)
    if model == "bert-sized":
        return SmallTransformer(features=64, embedding=WIDTH, width=768, layers=12, heads=12)
    return SmallTransformer(features=64, embedding=WIDTH, width=384, layers=6, heads=6)


def bottom_of(seat: FeatureSeat) -> SeedReplayBottom | ZerothOrderBottom | PerturbingBottom | Bottom:
    """What the algorithm of the seat's settings trains at a feature party."""
    settings = seat.settings
    if isinstance(settings, Dpzv):
        return SeedReplayBottom(seat, settings.directions_used())
    if isinstance(settings, Zoo):
        return ZerothOrderBottom(seat, settings.directions_used())
    return PerturbingBottom(seat) if isinstance(settings, Czofo) else Bottom(seat)


def exchange_once(bottom: Any, exchange: int, rows: Any) -> None:
    """One upload and its reply, with made-up numbers in the reply."""
    if isinstance(bottom, SeedReplayBottom):
        bottom.look_both_ways(exchange, rows)
        bottom.apply(exchange, [0.1])
    elif isinstance(bottom, ZerothOrderBottom):
        bottom.look_around(exchange, rows)
        bottom.apply(exchange, np.array([1.0, 1.0001]))
    elif isinstance(bottom, PerturbingBottom):
        _, _, perturbed = bottom.look_around(exchange, rows)
        bottom.apply_losses(exchange, np.ones((1 + len(perturbed), ROWS), np.float32))
    else:
        bottom.upload(exchange, rows)
        bottom.apply(exchange, np.full((ROWS, WIDTH), 1e-3, np.float32))


def main(kind: str, model: str) -> None:
    torch.set_num_threads(1)
    columns = torch.randn(ROWS, *SHAPES[model])
    if model in PRETRAINED:
        columns = torch.randint(1, VOCABULARY, columns.shape).float()
        build(model)  # the library that reads it is loaded, and all that it needs once
    warm = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    warm(torch.randn(2, 3, 8, 8)).sum().backward()  # libraries allocate their own workspaces at first use
    rows = np.arange(ROWS, dtype=np.uint32)
    gc.collect()
    before = resident("VmRSS")
    name, _, optimiser = kind.partition(", ")
    settings = SETTINGS[name]
    seat = FeatureSeat(
        name="party1",
        label_party="label",
        columns=PartyColumns(columns, columns[:0], ("x",)),
        bottom=build(model),
        width=WIDTH,
        training=DecidedTraining(batch_size=ROWS, learning_rate=0.001, optimiser=optimiser or "sgd"),
        settings=settings,
        privacy=PerturbationSettings(),
        seed=0,
        secret=0,
    )
    size = sum(4 * parameter.numel() for parameter in seat.bottom.parameters())
    bottom = bottom_of(seat)
    del seat
    gc.collect()
    resting = resident("VmRSS")
    forget_peak()
    bottom.network.embed(columns)
    activations = max(0, resident("VmHWM") - resting)
    forget_peak()
    for exchange in range(EXCHANGES):
        exchange_once(bottom, exchange, rows)
    peak = resident("VmHWM")
    print(json.dumps({"before": before, "model": size, "activations": activations, "peak": peak}))


def measured(kind: str, model: str) -> dict[str, int]:
    """What a process of its own prints for an algorithm and a model."""
    # Freed blocks must go back to the system, or the peak of building the model would hide that of training it.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-m", "colonnade.benchmarks.party_memory", kind, model]
    told: dict[str, int] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    )
    return told


def over_model(seen: dict[str, int]) -> float:
    """(peak − before the model was there − activations of one forward pass) / the model's size."""
    return (seen["peak"] - seen["before"] - seen["activations"]) / seen["model"]


def resident(which: str) -> int:
    """Bytes: VmRSS now, VmHWM at the peak since it was last forgotten."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {which}")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
