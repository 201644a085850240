"""Sets of parameters to time a step on, by name."""

from collections.abc import Callable

from torch import nn

from autogd.models import FCN, ResNet18, ResNet50

__all__ = ["SETS", "matrices"]


def matrices(count: int, rows: int, columns: int) -> nn.Module:
    """Linear layers of one size, without biases.

    >>> sum(p.numel() for p in matrices(3, 2, 5).parameters())
    30
    """
    return nn.ModuleList(nn.Linear(columns, rows, bias=False) for _ in range(count))


def _gpt2(width: int = 768, depth: int = 12, context: int = 1024, vocabulary: int = 12_288) -> nn.Module:
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
    "gpt2": _gpt2,
    "tiny": lambda: matrices(1000, 10, 10),
    "huge": lambda: matrices(1, 8192, 4096),
}
