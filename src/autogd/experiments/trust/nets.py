"""Networks that only this benchmark has."""

import torch
from torch import nn

from autogd.experiments.quality.nets import mlp

__all__ = ["GRU", "NormCNN", "flat_mlp", "tanh_mlp"]


def flat_mlp(*sizes: int) -> nn.Sequential:
    """An MLP on images.

    >>> flat_mlp(4, 8, 3)(torch.randn(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    """
    return nn.Sequential(nn.Flatten(), mlp(*sizes))


def tanh_mlp(*sizes: int) -> nn.Sequential:
    """An MLP with tanh, which has second derivatives.

    >>> tanh_mlp(1, 8, 1)(torch.randn(5, 1)).shape
    torch.Size([5, 1])
    """
    return nn.Sequential(*(nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in mlp(*sizes)))


class NormCNN(nn.Module):
    """Two convolutions, each with a norm over all channels, and a linear head.

    >>> NormCNN()(torch.randn(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(1, width, 3, 1, 1), nn.GroupNorm(1, width)
        self.second, self.second_norm = nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(1, 2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a batch of images to one logit per class."""
        x = self.first_norm(self.first(x)).relu()
        x = self.second_norm(self.second(x)).relu()
        return self.head(x.mean((2, 3)))


class GRU(nn.Module):
    """From characters to the logits of the next ones.

    >>> GRU(vocabulary=9, width=8)(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 9])
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """One vector of logits for every position."""
        return self.head(self.cell(self.tokens(codes))[0])
