"""Networks without residual branches: fully-connected, and VGG-16."""

import math
from itertools import pairwise

from torch import Tensor, nn

__all__ = ["FCN", "VGG16"]


class FCN(nn.Module):
    """`depth` linear layers with relu(z)·√2 between them, which keeps the root-mean-square of activations at one.

    >>> import torch
    >>> FCN(depth=3, width=16, d_in=8, d_out=2)(torch.randn(5, 8)).shape
    torch.Size([5, 2])
    """

    def __init__(self, depth: int, width: int, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth: an FCN has at least one layer, found {depth}")
        sizes = [d_in, *[width] * (depth - 1), d_out]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of inputs, flattened if they are images."""
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = nn.functional.relu(layer(x)) * math.sqrt(2)
        return self.layers[-1](x)


STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))  # convolutions and relative width of each stage


class VGG16(nn.Module):
    """Thirteen convolutions in five stages, each with batch norm, and three linear layers.

    The linear layers are as wide as the last stage (512): the usual form for 32-pixel images. The original, for 224
    pixels, has 4,096. Images of any size work, since pooling rounds up and the last map is averaged.

    Args:
        classes: number of outputs.
        channels: channels of the images.
        width: channels of the first stage.
        bias: whether convolutions and linear layers have biases.
        affine: whether norm layers have gains and biases.

    >>> import torch
    >>> VGG16(classes=10, width=8)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, classes: int = 10, *, channels: int = 3, width: int = 64, bias: bool = False, affine: bool = False
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: a VGG16 has at least one channel, found {width}")
        layers: list[nn.Module] = []
        for convolutions, factor in STAGES:
            for _ in range(convolutions):
                layers += [
                    nn.Conv2d(channels, factor * width, 3, padding=1, bias=bias),
                    nn.BatchNorm2d(factor * width, affine=affine),
                    nn.ReLU(inplace=True),
                ]
                channels = factor * width
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.classifier = FCN(depth=3, width=channels, d_in=channels, d_out=classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of images to one logit per class."""
        return self.classifier(self.features(x))
