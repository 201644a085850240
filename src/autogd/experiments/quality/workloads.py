"""The workloads: each fixes data, model, loss, batch size and number of steps.

On small sets the budget ends before tuned Adam overfits, since the benchmark compares optimisers, not early stopping.
On the long workloads, for `--long`, overfitting cannot hide a better optimiser: images are augmented in every pass, and
a text is read once or a few times. Rivals search their learning rates there at the full budget.

To add a workload, add a line to `WORKLOADS` or to `LONG`.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from autogd.experiments.quality.nets import LSTM, PlainCNN, TiedGPT, ViT, autoencoder, mlp
from autogd.experiments.quality.recipe import Recipe
from autogd.losses import one_hot, square_loss
from autogd.models import FCN, GPT
from autogd.models.resnet import ResNet

__all__ = ["EVERY", "LONG", "WORKLOADS", "Workload", "entropy"]


@dataclass(frozen=True)
class Workload:
    """A training task.

    Args:
        content: a description in one line.
        data: a name in `SOURCES`.
        model: builds the network, with torch's initialisation.
        loss: of the network's output and the labels.
        batch: samples in a batch.
        steps: the budget.
        before: data for pre-training with Adam; the head is initialised again afterwards.
        passes: whether samples are drawn without replacement, pass by pass.
        own_start: whether every optimiser starts from the network's own initialisation, which depends on the seed only,
            as in a public recipe.
        recipe: of tuned rivals; None for only a learning rate and a schedule.
        rates: the learning rates of tuned rivals, with cosine; None for the usual grids.

    >>> WORKLOADS["fcn-8"].batch
    128
    """

    content: str
    data: str
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: int
    steps: int
    before: str | None = None
    passes: bool = False
    own_start: bool = False
    recipe: Recipe | None = None
    rates: Mapping[str, tuple[float, ...]] | None = None


def _square(output: Tensor, labels: Tensor) -> Tensor:
    return square_loss(output, one_hot(labels, output.shape[-1]))


def entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, with one label per sample or one per position.

    >>> import torch
    >>> entropy(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)).item()
    1.3862943649291992
    """
    return cross_entropy(output.flatten(0, -2), labels.flatten())


def _small_resnet() -> nn.Module:
    return ResNet((1, 1, 1, 1), bottleneck=False, width=8, bias=True, affine=True)


WORKLOADS: dict[str, Workload] = {
    "fcn-8": Workload(
        "FCN, depth 8, width 128; square loss", "cifar10", lambda: FCN(8, 128, 3072, 10), _square, 128, 500
    ),
    "fcn-16": Workload(
        "FCN, depth 16, width 128; square loss", "cifar10", lambda: FCN(16, 128, 3072, 10), _square, 128, 400
    ),
    "fcn-32": Workload(
        "FCN, depth 32, width 96; square loss", "digits", lambda: FCN(32, 96, 64, 10), _square, 128, 400
    ),
    "fcn-bias": Workload(
        "FCN, depth 5, width 128, biases; cross-entropy",
        "fashion-mnist",
        lambda: nn.Sequential(nn.Flatten(), mlp(784, 128, 128, 128, 128, 10)),
        entropy,
        128,
        600,
    ),
    "cnn": Workload(
        "CNN, five convolutions, no norm layer; cross-entropy", "cifar10", lambda: PlainCNN(16), entropy, 64, 400
    ),
    "resnet": Workload(
        "ResNet, four blocks, batch norm; cross-entropy", "cifar10, 10,000 samples", _small_resnet, entropy, 64, 200
    ),
    "vit": Workload(
        "ViT, depth 3, width 64; cross-entropy", "fashion-mnist", lambda: ViT(28, 7, 3, 64), entropy, 64, 300
    ),
    "gpt": Workload(
        "GPT, depth 3, width 96, characters; cross-entropy",
        "text, windows of 64",
        lambda: GPT(65, 64, depth=3, width=96, bias=True, affine=True),
        entropy,
        16,
        300,
    ),
    "lstm": Workload(
        "LSTM, width 128, characters; cross-entropy", "text, windows of 32", lambda: LSTM(65, 128), entropy, 32, 400
    ),
    "diabetes": Workload(
        "MLP, depth 3, width 64, regression; square loss", "diabetes", lambda: mlp(10, 64, 64, 1), mse_loss, 32, 60
    ),
    "cells": Workload(
        "MLP, depth 4, width 64, regression; square loss", "cells", lambda: mlp(20, 64, 64, 64, 10), mse_loss, 32, 200
    ),
    "autoencoder": Workload(
        "autoencoder, 784-128-32-128-784; square loss",
        "fashion-mnist, pictures",
        lambda: autoencoder(784, 128, 32),
        mse_loss,
        128,
        600,
    ),
    "fine-tune": Workload(
        "CNN, trained on five classes, tuned to the other five; cross-entropy",
        "fashion-mnist, 1,000 of classes 5 to 9",
        lambda: PlainCNN(16, channels=1, classes=5),
        entropy,
        32,
        100,
        before="fashion-mnist, classes 0 to 4",
    ),
}
"""The suite, by name."""


PASS = 390  # batches of 128 in 50,000 images
TEXT_RECIPE = Recipe(floor=0.1, clip=1.0, betas=(0.9, 0.99))
IMAGE_RECIPE = Recipe()


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
        recipe=IMAGE_RECIPE,
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
        recipe=TEXT_RECIPE,
        rates=rates,
    )


LONG: dict[str, Workload] = {
    "char-gpt": _characters(
        2000, {"adamw": (1e-3, 3e-3, 1e-2), "muon": (1e-3, 3e-3, 1e-2, 3e-2), "muon-original": (0.02,)}
    ),
    "cifar-3e": _cifar(3, {"adamw": (3e-3, 1e-2, 3e-2, 0.1), "sgd": (0.03, 0.1, 0.3, 1.0)}),
    "char-gpt-long": _characters(10_000, {"adamw": (1e-2, 3e-3, 1e-3), "muon": (3e-2, 1e-2, 3e-3)}),
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
        recipe=TEXT_RECIPE,
        rates={"adamw": (3e-3, 1e-2, 3e-2), "muon": (3e-3, 1e-2, 3e-2)},
    ),
}
"""The long workloads, by name, in the order of the table."""

EVERY: Mapping[str, Workload] = ChainMap(WORKLOADS, LONG)
"""The suite and the long workloads."""
