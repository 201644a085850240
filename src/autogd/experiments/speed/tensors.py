"""Sets of parameters by name: some to time a step on, and public models as shapes on the meta device."""

from collections.abc import Callable

import torch
from torch import nn

from autogd.models import FCN, ResNet18, ResNet50

__all__ = ["SETS", "SHAPES", "gpt2", "llama", "matrices"]


def matrices(count: int, rows: int, columns: int) -> nn.Module:
    """Linear layers of one size, without biases.

    >>> sum(p.numel() for p in matrices(3, 2, 5).parameters())
    30
    """
    return nn.ModuleList(nn.Linear(columns, rows, bias=False) for _ in range(count))


def _gpt2_small(width: int = 768, depth: int = 12, context: int = 1024, vocabulary: int = 12_288) -> nn.Module:
    # GPT-2 small with a smaller vocabulary
    layers: list[nn.Module] = [nn.Embedding(vocabulary, width), nn.Embedding(context, width)]
    for _ in range(depth):
        layers += [
            nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
        ]  # fmt: skip
    return nn.ModuleList([*layers, nn.LayerNorm(width)])


SETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: FCN(32, 300, 300, 300),
    "resnet18": lambda: ResNet18(10),
    "resnet50": lambda: ResNet50(10),
    "gpt2": _gpt2_small,
    "tiny": lambda: matrices(1000, 10, 10),
    "huge": lambda: matrices(1, 8192, 4096),
}
"""To time a step on."""


def gpt2(width: int = 768, depth: int = 12, context: int = 1024, vocabulary: int = 50_257) -> nn.Module:
    """The parameters of GPT-2; its head is tied to its embedding.

    >>> sum(p.numel() for p in SHAPES["gpt2-small"]().parameters())
    124439808
    """
    with torch.device("meta"):
        blocks = [
            nn.ModuleDict({
                "norm_1": nn.LayerNorm(width), "attention": nn.MultiheadAttention(width, 12),
                "norm_2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(depth)
        ]  # fmt: skip
        tables = [nn.Embedding(vocabulary, width), nn.Embedding(context, width)]
        return nn.ModuleList([*tables, *blocks, nn.LayerNorm(width)])


def llama(width: int, depth: int, hidden: int, keys: int = 1024, vocabulary: int = 128_256) -> nn.Module:
    """The parameters of a Llama 3 model; its head is a matrix of its own.

    >>> sum(p.numel() for p in SHAPES["llama-3-8b"]().parameters())
    8030261248
    """

    def linear(columns: int, rows: int) -> nn.Linear:
        return nn.Linear(columns, rows, bias=False)

    with torch.device("meta"):
        blocks = [
            nn.ModuleDict({
                "norm_1": nn.RMSNorm(width), "q": linear(width, width), "k": linear(width, keys),
                "v": linear(width, keys), "o": linear(width, width),
                "norm_2": nn.RMSNorm(width), "gate": linear(width, hidden), "up": linear(width, hidden),
                "down": linear(hidden, width),
            })
            for _ in range(depth)
        ]  # fmt: skip
        return nn.ModuleList([nn.Embedding(vocabulary, width), *blocks, nn.RMSNorm(width), linear(width, vocabulary)])


SHAPES: dict[str, Callable[[], nn.Module]] = {
    "gpt2-small": gpt2,
    "llama-3-8b": lambda: llama(4096, 32, 14_336),
    "llama-3-70b": lambda: llama(8192, 80, 28_672),
}
"""Public models, on the meta device."""
