"""Larger networks that the papers train or measure: ResNet-18, whole or split, and a small transformer."""

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut (K. He et al., "Deep Residual Learning for Image Recognition", 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.body(inputs) + self.shortcut(inputs))


def resnet18(channels: int, embedding: int) -> nn.Module:
    """ResNet-18 for small images (3×3 stem, no first pooling): [rows, channels, height, width] → [rows, embedding]."""
    return nn.Sequential(nn.Conv2d(channels, STEM, 3, padding=1, bias=False), *_after_the_stem(embedding))


STEM = 64
"""Channels after the first convolution."""


def _after_the_stem(outputs: int) -> list[nn.Module]:
    """Everything behind the first convolution."""
    blocks: list[nn.Module] = []
    inputs = STEM
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [ResidualBlock(inputs, width, stride), ResidualBlock(width, width, 1)]
        inputs = width
    front = [nn.BatchNorm2d(STEM), nn.ReLU()]
    return [*front, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, outputs)]


class JoinedStrips(nn.Module):
    """Feature maps of horizontal strips, which arrive side by side in one tensor, as one map: from top to bottom.

    >>> strips = JoinedStrips(parties=2, channels=1, height=1, width=2)
    >>> strips(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    def __init__(self, parties: int, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape = (parties, channels, height, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(-1, *self.shape).transpose(1, 2).flatten(2, 3)


def split_resnet18(parties: int, strip: tuple[int, int, int], outputs: int) -> tuple[nn.Module, nn.Module]:
    """ResNet-18 cut after its first convolution (7×7, every second pixel): a bottom for each party, and the top.

    Parties hold horizontal strips of images, of the shape (channels, height, width) each; height and width are even.
    The top puts the strips together.
    """
    channels, height, width = strip
    bottom = nn.Sequential(nn.Conv2d(channels, STEM, 7, stride=2, padding=3, bias=False), nn.Flatten())
    joined = JoinedStrips(parties, STEM, height // 2, width // 2)
    norm, activation, *rest = _after_the_stem(outputs)
    return bottom, nn.Sequential(joined, norm, activation, nn.MaxPool2d(3, stride=2, padding=1), *rest)


class SmallTransformer(nn.Module):
    """An encoder over a series: [rows, time, features] → the mean of the last layer, [rows, embedding]."""

    def __init__(self, features: int, embedding: int, width: int = 256, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.enter = nn.Linear(features, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.leave = nn.Linear(width, embedding)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.leave(self.encoder(self.enter(inputs)).mean(1))
        return outputs
