"""A feature party's bottom models, by name: from one row of its own columns to an embedding.

Builders return plain torch modules with arbitrary weights; call `initialise(module, seed)` before use. Any
other `torch.nn.Module` that returns [rows, features] may stand in for them.
"""

from dataclasses import dataclass

from torch import nn

from colonnade.errors import SettingsError, unknown_name
from colonnade.models.layers import ChannelModel, LastHidden
from colonnade.models.pretrained import transformer

BOTTOMS = ("linear", "mlp", "cnn", "lstm", "multi-view", "transformer")

MOST_LORA = 256


@dataclass(frozen=True)
class BottomSettings:
    """Which bottom model, and how large.

    `linear` is one Linear layer. The others end in a Linear layer and, unless `output_activation` is off, a ReLU: with
    `hidden = ()` an mlp is the papers' Linear + ReLU. `multi-view` is one cnn for all channels of an image, of which
    the largest values count. `transformer` is a pre-trained one for token numbers (models/pretrained.py).

    >>> BottomSettings(embedding=8, hidden=()).kind
    'mlp'
    """

    kind: str = "mlp"
    """`linear`, `mlp`, `cnn` (images), `lstm` (series, and grey images read row by row), `multi-view` (one cnn for
    every channel, of which the largest values count) or `transformer` (pre-trained, for columns of kind `tokens`)"""
    embedding: int = 16
    """numbers in one row's embedding"""
    hidden: tuple[int, ...] = (64,)
    """units of an mlp's hidden layers, or of the one LSTM layer"""
    channels: tuple[int, ...] = (8, 16)
    """of the convolutions of a cnn or a multi-view model"""
    output_activation: bool = True
    """whether all but `linear` end in a ReLU"""
    lora: int = 0
    """of a transformer: the rank of adapters that are trained in the place of its weights; 0: its weights are"""

    def __post_init__(self) -> None:
        if self.kind not in BOTTOMS:
            raise unknown_name("bottom model", self.kind, BOTTOMS)
        check_sizes("bottom", "embedding", (self.embedding,))
        check_sizes("bottom", "hidden", self.hidden)
        check_sizes("bottom", "channels", self.channels)
        if not 0 <= self.lora <= MOST_LORA:
            raise SettingsError(f"bottom.lora is {self.lora}; it must be a rank from 1 to {MOST_LORA}, or 0 for none.")
        if self.lora and self.kind != "transformer":
            raise SettingsError(
                f"bottom.lora is for kind = 'transformer', and the kind is {self.kind!r}: leave it out."
            )
        if self.kind == "lstm" and len(self.hidden) != 1:
            raise SettingsError(
                f"The bottom model 'lstm' has one hidden layer, and 'hidden' lists {len(self.hidden)}. Give "
                "one number, the units of that layer, such as hidden = [64]."
            )
        if self.kind in ("cnn", "multi-view") and not self.channels:
            raise SettingsError(
                f"The bottom model {self.kind!r} has no convolution: 'channels' is empty. Give at least one number."
            )


def check_sizes(model: str, setting: str, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise SettingsError(
                f"The {model} model's setting {setting!r} contains {size!r}. Give whole numbers of at least 1."
            )


def build_bottom(settings: BottomSettings, input_shape: tuple[int, ...], outputs: int | None = None) -> nn.Module:
    """The bottom model for rows of this shape.

    Give `outputs` if the top only sums (`TopSettings.only_sums`): embeddings are then the model's outputs, so
    they have that width and no activation, whatever `embedding` and `output_activation` say.

    >>> build_bottom(BottomSettings(embedding=4, hidden=()), (3,))
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): ReLU()
    )
    """
    check_sizes("bottom", "input_shape", input_shape)
    if not input_shape:
        raise SettingsError("A bottom model was asked for rows without features. Give the party at least one column.")
    width = settings.embedding
    if outputs is not None:
        check_sizes("bottom", "outputs", (outputs,))
        width = outputs
    if settings.kind == "cnn":
        layers = convolutions(settings.channels, input_shape, width)
    elif settings.kind == "multi-view":
        layers = one_for_all_views(settings.channels, input_shape, width)
    elif settings.kind == "transformer":
        layers = transformer_layers(settings.lora, input_shape, width)
    elif settings.kind == "lstm":
        layers = recurrence(settings.hidden[0], input_shape, width)
    else:
        layers = dense_layers(settings.hidden if settings.kind == "mlp" else (), input_shape, width)
    if settings.kind != "linear" and settings.output_activation and outputs is None:
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def dense_layers(hidden: tuple[int, ...], input_shape: tuple[int, ...], width: int) -> list[nn.Module]:
    """Linear layers with ReLU between them; rows that are not flat are flattened first."""
    layers: list[nn.Module] = [nn.Flatten()] if len(input_shape) > 1 else []
    features = 1
    for size in input_shape:
        features *= size
    for units in hidden:
        layers += [nn.Linear(features, units), nn.ReLU()]
        features = units
    return [*layers, nn.Linear(features, width)]


def convolutions(channels: tuple[int, ...], input_shape: tuple[int, ...], width: int) -> list[nn.Module]:
    """Convolutions of 3×3 that keep the size, each with ReLU and pooling, then one Linear layer.

    A side of at least 4 pixels is halved by each pooling; a shorter one is kept, so the thinnest strip
    survives.
    """
    if len(input_shape) not in (2, 3):
        raise SettingsError(
            f"The bottom model 'cnn' was given rows of shape {input_shape}; it takes images, [height, width] "
            "or [channels, height, width]. Choose 'mlp' or 'linear' for a table."
        )
    *planes, height, breadth = input_shape
    layers: list[nn.Module] = [] if planes else [nn.Unflatten(1, (1, height))]
    inputs = planes[0] if planes else 1
    for outputs in channels:
        layers += [nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.ReLU()]
        inputs = outputs
        pool = (2 if height >= 4 else 1, 2 if breadth >= 4 else 1)
        if pool != (1, 1):
            layers.append(nn.MaxPool2d(pool))
            height, breadth = height // pool[0], breadth // pool[1]
    return [*layers, nn.Flatten(), nn.Linear(inputs * height * breadth, width)]


def one_for_all_views(channels: tuple[int, ...], input_shape: tuple[int, ...], width: int) -> list[nn.Module]:
    """The same convolutions and Linear layer for each channel of an image, and the largest of what they give."""
    if len(input_shape) not in (2, 3):
        raise SettingsError(
            f"The bottom model 'multi-view' was given rows of shape {input_shape}; it takes views, [views, height, "
            "width], or one, [height, width]. Choose 'mlp' or 'linear' for a table."
        )
    front: list[nn.Module] = [] if len(input_shape) == 3 else [nn.Unflatten(1, (1, input_shape[0]))]
    return [*front, ChannelModel(nn.Sequential(*convolutions(channels, (1, *input_shape[-2:]), width)))]


def transformer_layers(lora: int, input_shape: tuple[int, ...], width: int) -> list[nn.Module]:
    """A pre-trained transformer for rows of token numbers, and one Linear layer."""
    if len(input_shape) != 1:
        raise SettingsError(
            f"The bottom model 'transformer' was given rows of shape {input_shape}; it takes rows of token numbers, as "
            'a column of text is with kind = "tokens". Choose another kind of bottom.'
        )
    return [transformer(width, lora)]


def recurrence(hidden: int, input_shape: tuple[int, ...], width: int) -> list[nn.Module]:
    """One LSTM layer, whose last hidden state goes through one Linear layer.

    A piece of a grey image, [1, height, width], is read as a series too: row of pixels by row of pixels.
    """
    is_strip = len(input_shape) == 3 and input_shape[0] == 1
    if len(input_shape) != 2 and not is_strip:
        raise SettingsError(
            f"The bottom model 'lstm' was given rows of shape {input_shape}; it takes series, [time, features], or "
            "images of one channel, [1, time, features]. Choose 'mlp' or 'linear' for a table, 'cnn' for other images."
        )
    front: list[nn.Module] = [nn.Flatten(1, 2)] if is_strip else []
    return [*front, LastHidden(input_shape[-1], hidden), nn.Linear(hidden, width)]
