"""Networks of the benchmarks that `autogd.models` does not have: plain stacks and torch's own layers."""

import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

__all__ = [
    "GRU",
    "LSTM",
    "NormCNN",
    "PlainCNN",
    "TiedBlock",
    "TiedGPT",
    "ViT",
    "autoencoder",
    "flat_mlp",
    "mlp",
    "tanh_mlp",
]


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with biases and relu between them.

    >>> mlp(4, 8, 1)(torch.randn(2, 4)).shape
    torch.Size([2, 1])
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def autoencoder(d_in: int, width: int, code: int) -> nn.Sequential:
    """An autoencoder of linear layers.

    >>> autoencoder(16, 8, 2)(torch.randn(3, 16)).shape
    torch.Size([3, 16])
    """
    return nn.Sequential(mlp(d_in, width, code), nn.ReLU(), mlp(code, width, d_in))


class PlainCNN(nn.Module):
    """Five 3 × 3 convolutions with biases and no norm layer, and a linear head.

    >>> PlainCNN(width=4)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: int = 32, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        sizes = [(channels, width, 2), (width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
        sizes.append((2 * width, 4 * width, 2))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, stride, 1) for a, b, stride in sizes)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a batch of images to one logit per class."""
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x.mean((2, 3)))


class ViT(nn.Module):
    """A small vision transformer of torch's encoder layers, which pack query, key and value in one tensor.

    >>> ViT(side=28, patch=7, depth=1, width=16)(torch.randn(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, side: int, patch: int, depth: int, width: int, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.positions = nn.Embedding((side // patch) ** 2, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a batch of images to one logit per class."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions.weight
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class LSTM(nn.Module):
    """Map characters to the logits of the next ones.

    >>> LSTM(vocabulary=9, width=8)(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 9])
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.cell = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """One vector of logits for every position."""
        return self.head(self.cell(self.tokens(codes))[0])


class TiedBlock(nn.Module):
    """Attention (query, key and value in one matrix) and a two-layer network, each added to its input.

    >>> TiedBlock(width=8, heads=2)(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the outputs of attention and of the two layers to the input."""
        parts = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind()
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm2(x))))


class TiedGPT(nn.Module):
    """A small GPT of a public recipe: no biases, embedding tied to the head, weights of standard deviation 0.02.

    >>> TiedGPT(vocabulary=9, width=8, layers=1, heads=2)(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 9])
    """

    def __init__(self, vocabulary: int, width: int = 128, layers: int = 4, heads: int = 4, context: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TiedBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, bias=False), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        for block in self.blocks:
            assert isinstance(block, TiedBlock)
            for layer in (block.out, block.down):  # projections onto the residual stream
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * layers))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """One vector of logits for every position."""
        x = self.token(codes) + self.position(torch.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


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
    """Map characters to the logits of the next ones.

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
