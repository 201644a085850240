"""Long workloads, for `--long`: overfitting cannot hide a better optimiser, since the data do not run out.

Images are augmented in every pass, and texts are longer than the budget. Rivals search their learning rates at the
full budget.
"""

from collections import ChainMap
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import nn

from autogd.experiments.quality.long_sources import read_bytes, read_characters, read_cifar
from autogd.experiments.quality.nets import TiedGPT
from autogd.experiments.quality.recipe import Recipe
from autogd.experiments.quality.sources import SOURCES
from autogd.experiments.quality.workloads import WORKLOADS, Workload, entropy
from autogd.models.resnet import ResNet

__all__ = ["EVERY", "LONG"]

PASS = 390  # batches of 128 in 50,000 images
TEXT = Recipe(floor=0.1, clip=1.0, betas=(0.9, 0.99))
IMAGES = Recipe()

SOURCES |= {
    "cifar10, all, crops and flips": lru_cache(read_cifar),
    "text, recipe's windows of 64": lru_cache(read_characters),
    "Python's library, 6 MB": lru_cache(read_bytes),
}


def _resnet() -> nn.Module:
    """One block per stage; the stem halves the image and kernels are channels_last, so that a run takes minutes."""
    model = ResNet((1, 1, 1, 1), bottleneck=False, width=16, affine=True)
    model.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it


def _cifar(passes: int, rates: Mapping[str, tuple[float, ...]]) -> Workload:
    return Workload(
        f"ResNet, four blocks, width 16, batch norm, {passes} passes; cross-entropy",
        "cifar10, all, crops and flips",
        _resnet,
        entropy,
        128,
        passes * PASS,
        passes=True,
        recipe=IMAGES,
        rates=rates,
    )


def _characters(steps: int, rates: Mapping[str, tuple[float, ...]]) -> Workload:
    return Workload(
        "GPT, depth 4, width 128, tied, characters; cross-entropy",
        "text, recipe's windows of 64",
        lambda: TiedGPT(65),
        entropy,
        12,
        steps,
        own_start=True,
        recipe=TEXT,
        rates=rates,
    )


LONG: dict[str, Workload] = {
    "char-gpt": _characters(2000, {"adamw": (1e-3, 3e-3, 1e-2), "muon": (3e-3, 1e-2, 3e-2), "muon-original": (0.02,)}),
    "cifar-3e": _cifar(3, {"adamw": (3e-3, 1e-2, 3e-2, 0.1), "sgd": (0.03, 0.1, 0.3, 1.0)}),
    "char-gpt-long": _characters(10_000, {"adamw": (1e-2, 3e-3, 1e-3), "muon": (1e-2, 3e-3)}),
    "cifar-10e": _cifar(10, {"adamw": (3e-3, 1e-2, 3e-2, 0.1), "sgd": (0.1, 0.3, 1.0)}),
    "byte-gpt": Workload(
        "GPT, depth 2, width 64, tied, bytes, one pass; cross-entropy",
        "Python's library, 6 MB",
        lambda: TiedGPT(256, width=64, layers=2, heads=2),
        entropy,
        32,
        2780,
        passes=True,
        own_start=True,
        recipe=TEXT,
        rates={"adamw": (3e-3, 1e-2, 3e-2), "muon": (3e-3, 1e-2, 3e-2)},
    ),
}
"""By name, in the order of the table."""

EVERY: Mapping[str, Workload] = ChainMap(WORKLOADS, LONG)
"""The suite and the long ones."""
