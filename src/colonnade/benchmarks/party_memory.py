"""One feature party's peak memory in training, measured in a process of its own: python -m … KIND MODEL.

Prints a JSON object of bytes: `before` (resident before the model was there), `model`, `activations` (what one forward
pass without gradients takes at its peak), `peak` (resident at the peak of five exchanges).
"""

import gc
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.seed_replay import SeedReplayBottom
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import PartyColumns
from colonnade.models.papers import SmallTransformer, resnet18
from colonnade.privacy.noise import PerturbationSettings

ROWS, WIDTH, EXCHANGES = 4, 64, 5
SHAPES = {"resnet18": (3, 32, 32), "transformer": (16, 64)}


def build(model: str) -> nn.Module:
    if model == "resnet18":
        return resnet18(3, WIDTH)
    return SmallTransformer(features=64, embedding=WIDTH, width=384, layers=6, heads=6)


def main(kind: str, model: str) -> None:
    torch.set_num_threads(1)
    columns = torch.randn(ROWS, *SHAPES[model])
    warm = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    warm(torch.randn(2, 3, 8, 8)).sum().backward()  # libraries allocate their own workspaces at first use
    rows = np.arange(ROWS, dtype=np.uint32)
    gc.collect()
    before = resident("VmRSS")
    settings = Dpzv() if kind == "dpzv" else Vafl()
    seat = FeatureSeat(
        name="party1",
        label_party="label",
        columns=PartyColumns(columns, columns[:0], ("x",)),
        bottom=build(model),
        width=WIDTH,
        training=DecidedTraining(batch_size=ROWS, learning_rate=0.001),
        settings=settings,
        privacy=PerturbationSettings(),
        seed=0,
        secret=0,
    )
    size = sum(4 * parameter.numel() for parameter in seat.bottom.parameters())
    bottom = SeedReplayBottom(seat, Dpzv().directions_used()) if kind == "dpzv" else Bottom(seat)
    del seat
    gc.collect()
    resting = resident("VmRSS")
    forget_peak()
    bottom.network.embed(columns)
    activations = max(0, resident("VmHWM") - resting)
    forget_peak()
    for exchange in range(EXCHANGES):
        if isinstance(bottom, SeedReplayBottom):
            bottom.look_both_ways(exchange, rows)
            bottom.apply(exchange, [0.1])
        else:
            bottom.upload(exchange, rows)
            bottom.apply(exchange, np.full((ROWS, WIDTH), 1e-3, np.float32))
    peak = resident("VmHWM")
    print(json.dumps({"before": before, "model": size, "activations": activations, "peak": peak}))


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
