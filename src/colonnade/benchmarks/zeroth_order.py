"""What `simulate` adds to zeroth-order arithmetic, and what a feature party's training holds in memory.

Speed: exchanges per second of `cascaded` and `dpzv` over hand-written loops with the same arithmetic and the same
generator, MNIST-shaped. Memory: the peak of a feature party's training over its model's size, for a ResNet-18 and a
small transformer, each in a process of its own; less the activations of one forward pass, which any training holds.
"""

import torch
from torch import nn

from colonnade.algorithms.split_models.cascaded import Cascaded
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.parts.seed_replay import GRID
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.mnist_shaped import BATCH, CLASSES, RATE, TURNS, WIDTH, Loop, Simulated, mnist_shaped, ratio
from colonnade.benchmarks.party_memory import measured, over_model
from colonnade.data.federated import FederatedData

RADIUS = 0.001
MODELS = ("resnet18", "transformer")


@one_thread
def run(watch: Watch) -> dict[str, float]:
    data = mnist_shaped()
    rates: dict[str, list[float]] = {}
    sides: dict[str, Simulated | Loop] = {
        "cascaded": Simulated(data, Cascaded(step="plain", directions=1)),
        "cascaded by hand": _CascadedLoop(data),
        "dpzv": Simulated(data, Dpzv(step="plain"), rate=RATE / 100),
        "dpzv by hand": _DpzvLoop(data),
    }
    for name, side in sides.items():
        side.turn()
        rates[name] = []
    for turn in range(TURNS):
        for name, side in sides.items():
            rates[name].append(side.turn())
        if turn % 5 == 4:
            watch(
                f"{turn + 1} of {TURNS} turns: " + ", ".join(f"{name} {seen[-1]:.0f}/s" for name, seen in rates.items())
            )
    result = {
        "cascaded_over_plain_torch": ratio(rates["cascaded"], rates["cascaded by hand"]),
        "dpzv_over_plain_torch": ratio(rates["dpzv"], rates["dpzv by hand"]),
    }
    memory = {}
    for kind in ("dpzv", "vafl"):
        for model in MODELS:
            watch(f"memory of {kind} with a {model}")
            memory[kind, model] = over_model(measured(kind, model))
            result[f"{kind}_memory_over_model_{model}"] = memory[kind, model]
    result["dpzv_memory_over_model"] = max(memory["dpzv", model] for model in MODELS)
    result["vafl_memory_over_model"] = min(memory["vafl", model] for model in MODELS)
    return result


class _ByHand(Loop):
    """Plain tensors: W of every party as (in, out) in one vector with its bias, and the top's four."""

    def __init__(self, data: FederatedData) -> None:
        super().__init__(data)
        inputs = self.columns[0].shape[1]
        self.split = inputs * WIDTH
        self.vectors = [_initial(nn.Linear(inputs, WIDTH)) for _ in self.columns]
        first, second = nn.Linear(WIDTH * len(self.columns), 128), nn.Linear(128, CLASSES)
        self.top = torch.cat([_initial(first), _initial(second)])
        self.shapes = [(WIDTH * len(self.columns), 128), (128,), (128, CLASSES), (CLASSES,)]
        self.generator = torch.Generator().manual_seed(0)

    def embed(self, vector: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        weight, bias = vector[: self.split].view(-1, WIDTH), vector[self.split :]
        return torch.addmm(bias, inputs, weight).relu_()

    def outputs(self, top: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        parts, place = [], 0
        for shape in self.shapes:
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            parts.append(top[place : place + size].view(shape))
            place += size
        hidden = torch.addmm(parts[1], inputs, parts[0]).relu()
        return torch.addmm(parts[3], hidden, parts[2])

    def loss(self, top: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.outputs(top, inputs), labels)


def _initial(layer: nn.Linear) -> torch.Tensor:
    return torch.cat([layer.weight.detach().t().reshape(-1), layer.bias.detach()])


class _CascadedLoop(_ByHand):
    """Algorithm 1 as a researcher writes it: autograd for the top model, two embeddings, one stored direction."""

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        inputs, labels = self.columns[party].index_select(0, rows), self.labels.index_select(0, rows)
        vector = self.vectors[party]
        direction = torch.randn(vector.numel(), generator=self.generator)
        here = self.embed(vector, inputs)
        near = self.embed(vector + RADIUS * direction, inputs)
        part = slice(party * WIDTH, (party + 1) * WIDTH)
        self.table[rows, part] = here
        read = self.table.index_select(0, rows)
        perturbed = read.clone()
        perturbed[:, part] = near
        top = self.top.requires_grad_()
        loss = self.loss(top, read, labels)
        with torch.no_grad():
            other = self.loss(top, perturbed, labels)
        (gradient,) = torch.autograd.grad(loss, [top])
        self.top = top.detach()
        self.top.add_(gradient, alpha=-RATE)
        vector.add_(direction, alpha=-RATE * (other.item() - loss.item()) / RADIUS)


class _DpzvLoop(_ByHand):
    """Algorithm 1 with the paper's sphere and seed replay, a label party of zeroth order, clipping, no noise."""

    def exchange(self, party: int, rows: torch.Tensor) -> None:
        inputs, labels = self.columns[party].index_select(0, rows), self.labels.index_select(0, rows)
        vector = self.vectors[party]
        seed = int(torch.randint(2**62, (), generator=self.generator))
        factor = vector.numel() ** 0.5 / float(torch.linalg.vector_norm(self._direction(seed, vector)))
        self._move(vector, seed, RADIUS * factor, 1)
        plus = self.embed(vector, inputs)
        self._move(vector, seed, RADIUS * factor, -2)
        minus = self.embed(vector, inputs)
        self._move(vector, seed, RADIUS * factor, 1)
        part = slice(party * WIDTH, (party + 1) * WIDTH)
        self.table[rows, part] = (plus + minus) / 2
        read = self.table.index_select(0, rows)
        pair = torch.cat([read, read])
        pair[:BATCH, part] = plus
        pair[BATCH:, part] = minus
        at = nn.functional.cross_entropy(self.outputs(self.top, pair), labels.repeat(2), reduction="none")
        slope = float(((at[:BATCH] - at[BATCH:]) / (2 * RADIUS)).clamp(-10, 10).mean())
        direction = torch.randn(self.top.numel(), generator=self.generator)
        direction.mul_(direction.numel() ** 0.5 / torch.linalg.vector_norm(direction))
        above = self.loss(self.top + RADIUS * direction, read, labels).item()
        below = self.loss(self.top - RADIUS * direction, read, labels).item()
        self.top.add_(direction, alpha=-RATE / 100 * (above - below) / (2 * RADIUS))
        self._move(vector, seed, RATE / 100 * slope * factor, -1)

    def _move(self, vector: torch.Tensor, seed: int, scale: float, times: int) -> None:
        """On the grid, as parts/seed_replay.py does: otherwise the weights drift."""
        vector.add_(self._direction(seed, vector).mul_(scale / GRID).round_(), alpha=times * GRID)

    def _direction(self, seed: int, vector: torch.Tensor) -> torch.Tensor:
        return torch.randn(vector.numel(), generator=torch.Generator().manual_seed(seed))


BENCHMARK = Benchmark(
    "zeroth-order",
    "what simulate adds to zeroth-order arithmetic; what a feature party's training holds in memory",
    run,
    {
        "cascaded_over_plain_torch": ">= 0.9",
        "dpzv_over_plain_torch": ">= 0.9",
        "dpzv_memory_over_model": "<= 1.2",
        "vafl_memory_over_model": ">= 2",
    },
)
