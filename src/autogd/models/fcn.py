"""The fully-connected network."""

import math
from itertools import pairwise

from torch import Tensor, nn

__all__ = ["FCN"]


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
