"""Larger networks that the papers train or measure: ResNet-18, and a small transformer. Plain torch modules."""

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
    blocks: list[nn.Module] = []
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [ResidualBlock(width, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, embedding),
    )


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
