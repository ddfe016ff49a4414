"""Networks of fully connected layers with their gradients in closed form: the fast way for small batches.

Runs any `nn.Sequential` (or bare layer) made of Linear, Bias, SumEmbeddings, ReLU, Tanh, Sigmoid, Identity
and a Flatten at the front. Weights are kept as (in, out), whose product with a batch is faster than with
torch's (out, in); for a batch of 64 rows and layers of some hundred units, the autograd engine would cost as
much as the arithmetic.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from enum import Enum, auto
from typing import NamedTuple

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.contract import Pass, check_state
from colonnade.models.device import CPU, brought_to
from colonnade.models.exact_products import exact_product
from colonnade.models.layers import Bias, SumEmbeddings
from colonnade.models.randomness import has_hooks
from colonnade.models.row_gradients import Factors, OuterProducts
from colonnade.privacy.noise import LayerNoise, clip_backward, clip_factors

# One kernel each, where `gradient * (output > 0)` would be two. They read the activation's output.
_relu_backward = torch.ops.aten.threshold_backward.default
_tanh_backward = torch.ops.aten.tanh_backward.default
_sigmoid_backward = torch.ops.aten.sigmoid_backward.default


class Kind(Enum):
    LINEAR = auto()
    BIAS = auto()
    SUM = auto()
    RELU = auto()
    TANH = auto()
    SIGMOID = auto()


_ACTIVATIONS: dict[type[nn.Module], Kind] = {nn.ReLU: Kind.RELU, nn.Tanh: Kind.TANH, nn.Sigmoid: Kind.SIGMOID}


class Layer(NamedTuple):
    """One step of the computation; only the fields that its kind needs are set."""

    kind: Kind
    weight: Tensor | None = None  # (in, out)
    bias: Tensor | None = None
    parties: int = 1


def layers_of(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The leaves of nested Sequentials in their order, with the prefix of their names in `state_dict`."""
    if type(module) is nn.Sequential and not has_hooks(module):
        # Not named_children(), which passes over a module that occurs twice.
        for name, child in module._modules.items():
            if child is not None:
                yield from layers_of(child, f"{prefix}{name}.")
    else:
        yield prefix, module


def _flattens(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1


def is_dense(module: nn.Module) -> bool:
    """Whether DenseNetwork runs this module exactly.

    Subclasses, hooks, frozen or shared parameters and unknown layers are left to autograd; so is a module
    without parameters, for which nothing can be gained.
    """
    leaves = [leaf for _, leaf in layers_of(module) if type(leaf) is not nn.Identity]
    if leaves and _flattens(leaves[0]):
        leaves = leaves[1:]
    plain = {nn.Linear, Bias, SumEmbeddings, *_ACTIVATIONS}
    if any(type(leaf) not in plain or has_hooks(leaf) for leaf in leaves):
        return False
    parameters = [parameter for leaf in leaves for parameter in leaf.parameters()]
    distinct = len({id(parameter) for parameter in parameters}) == len(parameters)
    return bool(parameters) and distinct and all(parameter.requires_grad for parameter in parameters)


def _without_weights(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    """The same layers with parameters that hold no numbers: a tenth of the time of `deepcopy(module).to("meta")`.

    `made`: what there is already of layers that occur twice.
    """
    if id(module) in made:
        return made[id(module)]
    empty = made[id(module)] = type(module).__new__(type(module))
    for name, value in vars(module).items():
        if name == "_modules":
            value = {key: child and _without_weights(child, made) for key, child in value.items()}
        elif name == "_parameters":
            value = {key: own if own is None else nn.Parameter(own.detach().to("meta")) for key, own in value.items()}
        elif value is not None and not isinstance(value, int | float | str):
            value = deepcopy(value) if value else type(value)()  # most are dictionaries without a hook in them
        vars(empty)[name] = value
    return empty


class DenseNetwork:
    """A `Network` (see network.py) in closed form.

    Noise follows the paper exactly: an inner Z_l on every Linear or Bias layer but the last one, the clip and
    Z_L on the last one, before the activation that follows.
    """

    trains_as_it_embeds = True

    def __init__(self, module: nn.Module, snapshots: bool = False, device: torch.device = CPU) -> None:
        if not is_dense(module):
            raise SettingsError(
                f"The module {type(module).__name__} has layers that a dense network cannot run. Use "
                "network_for(), which chooses the kind of network by itself."
            )
        self.generator: torch.Generator | None = None  # never read: no layer here is random
        self._structure = _without_weights(module, {})  # they would be a second copy
        self._snapshots = snapshots
        self._device = device
        self._flatten = False
        self._layers: list[Layer] = []
        self._named: dict[str, Tensor] = {}  # in the order of `parameters`, weights as (in, out)
        for prefix, leaf in layers_of(module):
            self._append(prefix, leaf)
        self.parameters: list[Tensor] = list(self._named.values())
        parametric = [i for i, layer in enumerate(self._layers) if layer.kind in (Kind.LINEAR, Kind.BIAS)]
        self._first = parametric[0]  # where a backward that need not reach the inputs ends
        self._last = parametric[-1]  # where the clip and the Gaussian noise belong

    def _append(self, prefix: str, leaf: nn.Module) -> None:
        if isinstance(leaf, nn.Linear):
            weight = leaf.weight.detach().t().clone(memory_format=torch.contiguous_format).to(self._device)
            bias = None if leaf.bias is None else leaf.bias.detach().clone().to(self._device)
            self._layers.append(Layer(Kind.LINEAR, weight, bias))
            self._named[prefix + "weight"] = weight
            if bias is not None:
                self._named[prefix + "bias"] = bias
        elif isinstance(leaf, Bias):
            bias = leaf.bias.detach().clone().to(self._device)
            self._layers.append(Layer(Kind.BIAS, bias=bias))
            self._named[prefix + "bias"] = bias
        elif isinstance(leaf, SumEmbeddings):
            self._layers.append(Layer(Kind.SUM, parties=leaf.parties))
        elif isinstance(leaf, nn.Flatten):
            self._flatten = True
        elif type(leaf) in _ACTIVATIONS:
            self._layers.append(Layer(_ACTIVATIONS[type(leaf)]))

    def forward(self, inputs: Tensor, noise: LayerNoise | None = None) -> tuple[Tensor, Pass]:
        weights = [layer.weight for layer in self._layers]
        if self._snapshots:
            weights = [None if weight is None else weight.clone() for weight in weights]
        # Three slots, of which _perturb fills the clip's, and then a stack of what the layers keep.
        kept = Pass((inputs.shape, weights, None))
        return self._run(inputs, noise, kept), kept

    def embed(self, inputs: Tensor, noise: LayerNoise | None = None, moves: Sequence[Tensor | None] = ()) -> Tensor:
        """`moves`: by how much what each layer with parameters gives is moved, the first of them first; None: not."""
        return self._run(inputs, noise, None, iter(moves) if moves else None)

    def score(self, inputs: Tensor, noise: LayerNoise | None = None) -> Tensor:
        return self._run(inputs, noise, None, exactly=True)

    @property
    def units(self) -> list[int]:
        """How many numbers each layer with parameters gives for a row."""
        sizes = (layer.weight if layer.bias is None else layer.bias for layer in self._layers)
        return [size.shape[-1] for size in sizes if size is not None]

    @property
    def with_parameters(self) -> list[Layer]:
        """The layers that moves are for, the first of them first."""
        return [layer for layer in self._layers if layer.kind in (Kind.LINEAR, Kind.BIAS)]

    def looked_into(self, inputs: Tensor) -> tuple[Tensor, list[tuple[Tensor | None, Tensor | None]]]:
        """What it gives; and of each layer with parameters what went into it (None: it has no weights), and what a
        ReLU right after it gave (None: there is none)."""
        outputs, kept = self.forward(inputs)
        left = iter(kept[3:])
        found: list[tuple[Tensor | None, Tensor | None]] = []
        before = None
        for layer in self._layers:
            if layer.kind is Kind.LINEAR or layer.kind is Kind.BIAS:
                found.append((None if layer.weight is None else next(left).cpu(), None))
            elif layer.kind is not Kind.SUM:
                given = next(left)
                if layer.kind is Kind.RELU and before in (Kind.LINEAR, Kind.BIAS):
                    found[-1] = found[-1][0], given.cpu()
            before = layer.kind
        return outputs, found

    @property
    def ends_in_relu(self) -> bool:
        return self._layers[-1].kind is Kind.RELU

    def _run(
        self,
        inputs: Tensor,
        noise: LayerNoise | None,
        kept: Pass | None,
        moves: Iterator[Tensor | None] | None = None,
        exactly: bool = False,
    ) -> Tensor:
        # What is exact is computed in main memory, wherever the rest is: to the same bits as a prediction.
        device = CPU if exactly else self._device
        u = brought_to(device, inputs.detach() if inputs.requires_grad else inputs)
        if self._flatten:
            u = u.flatten(1)
        if u.ndim != 2:
            raise SettingsError(
                f"A model of dense layers was given inputs of shape {tuple(inputs.shape)}; it takes [rows, "
                "features]. Put an nn.Flatten() in front of it."
            )
        ours = False  # whether u is referred to by nobody else, so that it may be overwritten or given away
        for index, (kind, weight, bias, parties) in enumerate(self._layers if not exactly else self._in_main_memory()):
            if kind is Kind.LINEAR or kind is Kind.BIAS:
                if weight is None:
                    assert bias is not None
                    u = u + bias
                else:
                    if kept is not None:
                        kept.append(u)
                    if exactly:
                        u = exact_product(u, weight, bias)
                    else:
                        u = torch.mm(u, weight) if bias is None else torch.addmm(bias, u, weight)
                ours = True
                if moves is not None and (move := next(moves, None)) is not None:
                    u += brought_to(device, move)
                if noise is not None:
                    u, ours = self._perturb(u, index, noise, kept)
            elif kind is Kind.SUM:
                u = u.reshape(u.shape[0], parties, u.shape[1] // parties).sum(1)
                ours = True
            else:
                if kind is Kind.RELU:
                    u = u.relu_() if ours else u.relu()
                elif kind is Kind.TANH:
                    u = u.tanh_() if ours else u.tanh()
                elif exactly:  # torch's sigmoid rounds the last few numbers of a tensor otherwise
                    u = u.neg().exp_().add_(1).reciprocal_()
                else:
                    u = u.sigmoid_() if ours else u.sigmoid()
                ours = kept is None
                if kept is not None:
                    kept.append(u)
        return (u if ours else u.clone()).cpu()

    def _in_main_memory(self) -> list[Layer]:
        """The layers themselves, or copies of those on an accelerator."""
        if self._device == CPU:
            return self._layers
        return [
            layer._replace(
                weight=None if layer.weight is None else layer.weight.cpu(),
                bias=None if layer.bias is None else layer.bias.cpu(),
            )
            for layer in self._layers
        ]

    def _perturb(self, z: Tensor, index: int, noise: LayerNoise, kept: Pass | None) -> tuple[Tensor, bool]:
        """z + Z of this layer, and whether nobody else refers to it."""
        if index != self._last:
            return noise.inner(z), True
        bound = noise.settings.clip
        if bound == 0:
            return noise.last(z), True
        factors = clip_factors(z, bound)
        clipped = z * factors
        if kept is not None:
            kept[2] = clipped, factors, bound
        released = noise.last(clipped)
        return released, kept is None or released is not clipped

    def backward(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[list[Tensor], Tensor | None]:
        gradients: list[Tensor] = []
        return gradients, self._backward(kept, output_gradient, input_gradient, gradients, None)

    def gradients_by_layers(self, kept: Pass, by_layers: Sequence[Tensor]) -> list[Tensor]:
        """Gradients in the order of `parameters`, from those by what each layer with parameters gives."""
        gradients: list[Tensor] = []
        inputs: list[Tensor] = kept[3:]
        left = list(by_layers)
        for layer in reversed(self._layers):
            if layer.kind is Kind.LINEAR or layer.kind is Kind.BIAS:
                g = brought_to(self._device, left.pop())
                gradients += [] if layer.bias is None else [g.sum(0)]
                gradients += [] if layer.weight is None else [torch.mm(inputs.pop().t(), g)]
            elif layer.kind is not Kind.SUM:
                inputs.pop()
        gradients.reverse()
        return gradients

    def row_gradients(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[OuterProducts, Tensor | None]:
        factors: list[Factors] = []
        by_inputs = self._backward(kept, output_gradient, input_gradient, [], factors)
        return OuterProducts(len(output_gradient), factors), by_inputs

    def _backward(
        self,
        kept: Pass,
        output_gradient: Tensor,
        input_gradient: bool | slice,
        gradients: list[Tensor],
        factors: list[Factors] | None,
    ) -> Tensor | None:
        """Fills `gradients`, or with `factors` those instead, in the order of `parameters`."""
        if not kept:
            raise ValueError("This pass was used by an earlier backward: run a forward for each backward.")
        shape: torch.Size
        weights: list[Tensor | None]
        clip: tuple[Tensor, Tensor, float] | None
        shape, weights, clip = kept[:3]
        asked = input_gradient is not False
        columns = input_gradient if isinstance(input_gradient, slice) else None
        g = brought_to(self._device, output_gradient.detach() if output_gradient.requires_grad else output_gradient)
        for index in range(len(self._layers) - 1, -1, -1):
            kind, _, bias, parties = self._layers[index]
            if kind is Kind.LINEAR or kind is Kind.BIAS:
                if clip is not None and index == self._last:
                    g = clip_backward(g, *clip)
                weight = weights[index]
                if factors is not None:
                    factors += [] if bias is None else [(None, g)]
                    factors += [] if weight is None else [(kept.pop(), g)]
                else:
                    if bias is not None:
                        gradients.append(g.sum(0))
                    if weight is not None:
                        gradients.append(torch.mm(kept.pop().t(), g))
                if index == self._first and not asked:
                    break
                if weight is not None:
                    if index == 0 and columns is not None and len(shape) == 2:
                        # The other columns are not even computed: most of the work if there are many parties.
                        weight, columns = weight[columns], None
                        shape = torch.Size((shape[0], weight.shape[0]))
                    g = torch.mm(g, weight.t())
            elif kind is Kind.SUM:
                g = g.repeat(1, parties)
            elif kind is Kind.RELU:
                g = _relu_backward(g, kept.pop(), 0)
            elif kind is Kind.TANH:
                g = _tanh_backward(g, kept.pop())
            else:
                g = _sigmoid_backward(g, kept.pop())
        kept.clear()
        gradients.reverse()
        if factors is not None:
            factors.reverse()
        if not asked:
            return None
        g = g.reshape(shape)
        return (g if columns is None else g[:, columns]).cpu()

    def state(self) -> dict[str, Tensor]:
        return {
            name: tensor.t().clone(memory_format=torch.contiguous_format).cpu() for name, tensor in self._named.items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_state({name: tensor.t() for name, tensor in self._named.items()}, state)
        for name, tensor in self._named.items():
            tensor.copy_(state[name].detach().t())

    def module(self) -> nn.Module:
        module = _without_weights(self._structure, {})
        # The weights themselves: to copy them, PyTorch would load SymPy to give layers without weights some memory.
        module.load_state_dict(self.state(), assign=True)
        return module.eval()
