"""A network by its name."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import nn

from autogd.models.gpt import GPT
from autogd.models.plain import FCN, VGG16
from autogd.models.resnet import ResNet18, ResNet50

__all__ = ["NAMES", "build"]

NAMES = ("fcn", "vgg16", "resnet18", "resnet50", "gpt")
LARGE = 128  # pixels per side from which a ResNet has ImageNet's stem


def build(
    name: str,
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int | None = None,
    width: int | None = None,
    bias: bool | None = None,
    affine: bool | None = None,
) -> nn.Module:
    """A network for samples of `input_shape`; sizes that are not given are the paper's.

    Args:
        name: one of `NAMES`.
        input_shape: the shape of one sample.
        classes: number of outputs.
        depth: linear layers of an FCN, blocks of a GPT.
        width: hidden units of an FCN, embedding size of a GPT, channels of the first stage of the others.
        bias: whether linear and convolutional layers have biases.
        affine: whether norm layers have gains and biases.

    >>> build("fcn", (1, 8, 8), 10, depth=2, width=32)
    FCN(
      (layers): ModuleList(
        (0): Linear(in_features=64, out_features=32, bias=False)
        (1): Linear(in_features=32, out_features=10, bias=False)
      )
    )
    """
    for what, value in (("depth", depth), ("width", width)):
        if value is not None and value < 1:
            raise ValueError(f"{what}: expected a whole number of at least 1, found {value}")
    if name not in NAMES:
        raise ValueError(f"{name!r}: there is no such network; choose from {', '.join(NAMES)}")
    if name == "gpt":
        if len(input_shape) != 1:
            raise ValueError(f"gpt: samples must be sequences of tokens, found the shape {tuple(input_shape)}")
        return GPT(classes, input_shape[0], depth=depth or 4, width=width or 128, bias=bool(bias), affine=bool(affine))
    if name == "fcn":
        if affine:
            raise ValueError("fcn: affine is a switch of norm layers, and an FCN has none; leave it out")
        return FCN(depth or 8, width or 256, math.prod(input_shape), classes, bias=bool(bias))
    if depth is not None:
        raise ValueError(f"{name}: its depth is fixed, found depth={depth}; leave it out, or choose fcn or gpt")
    if len(input_shape) != 3:
        raise ValueError(f"{name}: samples must be images (channels, height, width), found {tuple(input_shape)}")
    channels, *sides = input_shape
    width, bias, affine = width or 64, bool(bias), bool(affine)
    if name == "vgg16":
        return VGG16(classes, channels=channels, width=width, bias=bias, affine=affine)
    network = ResNet18 if name == "resnet18" else ResNet50
    stem: Literal["cifar", "imagenet"] = "imagenet" if min(sides) >= LARGE else "cifar"
    return network(classes, channels=channels, width=width, stem=stem, bias=bias, affine=affine)
