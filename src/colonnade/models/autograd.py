"""Networks of any `nn.Module`, with gradients from torch's autograd: whatever dense.py cannot run.

Nothing is retained beyond one backward. Random layers are seeded from the owner's generator before each
training forward, so the global generator is neither read nor moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.errors import SettingsError
from colonnade.models.compiled import compiled_module
from colonnade.models.contract import SCORED_AT_ONCE, Pass, check_state
from colonnade.models.device import CPU, brought_to
from colonnade.models.flat import FlatModel
from colonnade.models.randomness import draw_seed, is_random, seeded
from colonnade.models.row_gradients import StackedGradients
from colonnade.privacy.noise import LayerNoise, clip_factors

_PERTURBED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class AutogradNetwork:
    """A `Network` (see network.py) by `torch.autograd.grad`.

    `parameters` are the module's parameters that ask for gradients; frozen ones only appear in `state`, as
    buffers do.

    Noise: the inner Z_l are added to the outputs of every Linear and convolution but the last one registered.
    The clip and the Gaussian Z_L are applied to the module's output, that is, with σ_L the identity: what a
    module does after its last parametric layer cannot be taken apart, and the released value is protected the
    same.
    """

    trains_as_it_embeds = False  # a module may ask whether it is in training

    def __init__(
        self, module: nn.Module, snapshots: bool = False, device: torch.device = CPU, compiled: bool = False
    ) -> None:
        self.generator: torch.Generator | None = None
        self._device = device
        self._module = deepcopy(module).to(device)
        self._snapshots = snapshots
        # A function of the user's own is called as it is, and so is a module at parameters other than its own.
        self._compiled = compiled_module(self._module) if compiled and not isinstance(module, FlatModel) else None
        named = {name: tensor for name, tensor in self._module.named_parameters() if tensor.requires_grad}
        self._names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        self._random = is_random(module)
        # A module that overwrites its inputs must get a copy: they are the caller's, and a leaf of the graph.
        self._copies_inputs = self._random or any(getattr(part, "inplace", False) for part in module.modules())
        self._inner = [part for part in self._module.modules() if isinstance(part, _PERTURBED)][:-1]

    def forward(self, inputs: Tensor, noise: LayerNoise | None = None) -> tuple[Tensor, Pass]:
        differentiable = inputs.is_floating_point()
        leaf = brought_to(self._device, inputs.detach()).detach().requires_grad_(differentiable)
        parameters = self.parameters
        if self._snapshots:
            parameters = [tensor.detach().clone().requires_grad_() for tensor in parameters]
        if not self._module.training:
            self._module.train()
        with torch.enable_grad(), self._randomness(), self._one_row(len(inputs)):
            outputs = self._call(leaf, noise, parameters)
        return outputs.detach().clone().cpu(), Pass((outputs, parameters, leaf))

    def embed(self, inputs: Tensor, noise: LayerNoise | None = None, moves: Sequence[Tensor | None] = ()) -> Tensor:
        assert not moves, "what a module's layers give cannot be moved"
        if self._module.training:
            self._module.eval()
        # A module that is random even in inference mode must still give one answer and move no generator.
        with torch.no_grad(), seeded(0, self._device) if self._random else nullcontext():
            return self._call(brought_to(self._device, inputs.detach()), noise, self.parameters).clone().cpu()

    def score(self, inputs: Tensor, noise: LayerNoise | None = None) -> Tensor:
        """Some rows at a time, the same ones wherever they are scored."""
        pieces = torch.split(inputs, SCORED_AT_ONCE)
        return self.embed(inputs, noise) if len(pieces) == 1 else torch.cat([self.embed(one, noise) for one in pieces])

    @contextmanager
    def _one_row(self, rows: int) -> Iterator[None]:
        """One row, such as the last of an epoch, has no deviation: batch norm takes the one of the rows before it."""
        norms = [part for part in self._module.modules() if isinstance(part, nn.BatchNorm1d)] if rows == 1 else []
        for part in norms:
            part.eval()
        yield
        for part in norms:
            part.train()

    def _randomness(self) -> Any:
        if not self._random:
            return nullcontext()
        if self.generator is None:
            raise SettingsError(
                f"The model {type(self._module).__name__} has layers that may draw random numbers, and its "
                "network has no generator. Set network.generator to the party's own torch.Generator."
            )
        return seeded(draw_seed(self.generator), self._device)

    def _call(self, inputs: Tensor, noise: LayerNoise | None, parameters: list[Tensor]) -> Tensor:
        if self._copies_inputs:
            inputs = inputs.clone()
        if noise is None:
            compiled = self._compiled if parameters is self.parameters else None
            return self._outputs(inputs, parameters) if compiled is None else compiled(inputs)

        def add_inner(_layer: nn.Module, _inputs: Any, outputs: Tensor) -> Tensor:
            return noise.inner(outputs)

        hooks = [layer.register_forward_hook(add_inner) for layer in self._inner]
        try:
            outputs = self._outputs(inputs, parameters)
        finally:
            for hook in hooks:
                hook.remove()
        bound = noise.settings.clip
        return noise.last(outputs if bound == 0 else outputs * clip_factors(outputs, bound))

    def _outputs(self, inputs: Tensor, parameters: list[Tensor]) -> Tensor:
        outputs: Tensor
        if parameters is self.parameters:
            outputs = self._module(inputs)
        else:
            outputs = functional_call(self._module, dict(zip(self._names, parameters, strict=True)), (inputs,))
        return outputs

    def backward(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[list[Tensor], Tensor | None]:
        outputs, parameters, leaf = _taken(kept)
        output_gradient = brought_to(self._device, output_gradient)
        if input_gradient is False:
            return _gradients(outputs, parameters, output_gradient), None
        gradients = _gradients(outputs, [*parameters, _differentiable(leaf)], output_gradient)
        gradient = gradients.pop().cpu()
        return gradients, gradient[:, input_gradient] if isinstance(input_gradient, slice) else gradient

    def row_gradients(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[StackedGradients, Tensor | None]:
        """By one backward pass per row: a module of any kind cannot be taken apart."""
        outputs, parameters, leaf = _taken(kept)
        output_gradient = brought_to(self._device, output_gradient)
        by_inputs = None
        if input_gradient is not False:
            (by_inputs,) = _gradients(outputs, [_differentiable(leaf)], output_gradient, again=True)
            by_inputs = (by_inputs[:, input_gradient] if isinstance(input_gradient, slice) else by_inputs).cpu()
        by_row = []
        for place, gradient in enumerate(output_gradient):
            alone = torch.zeros_like(output_gradient)
            alone[place] = gradient
            by_row.append(_gradients(outputs, parameters, alone, again=True))
        stacked = [torch.stack(several) for several in zip(*by_row, strict=True)]
        return StackedGradients(len(output_gradient), stacked), by_inputs

    def state(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone().cpu() for name, tensor in self._module.state_dict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_state(self._module.state_dict(), state)
        self._module.load_state_dict(state)

    def module(self) -> nn.Module:
        return deepcopy(self._module).cpu().eval()


def _taken(kept: Pass) -> tuple[Tensor, list[Tensor], Tensor]:
    """Outputs, parameters and inputs of a forward, which is used up by that."""
    if not kept:
        raise ValueError("This pass was used by an earlier backward: run a forward for each backward.")
    outputs, parameters, leaf = kept
    kept.clear()
    return outputs, parameters, leaf


def _differentiable(leaf: Tensor) -> Tensor:
    if not leaf.requires_grad:
        raise ValueError(f"Inputs of type {leaf.dtype} have no gradient: only floating-point inputs do.")
    return leaf


def _gradients(outputs: Tensor, wanted: list[Tensor], output_gradient: Tensor, again: bool = False) -> list[Tensor]:
    if not outputs.requires_grad or not wanted:
        return [torch.zeros_like(tensor) for tensor in wanted]
    found = torch.autograd.grad(
        outputs, wanted, output_gradient, retain_graph=again, allow_unused=True, materialize_grads=True
    )
    return list(found)
