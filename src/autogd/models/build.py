"""A network by its name."""

import math
from collections.abc import Sequence

from torch import nn

from autogd.models.fcn import FCN

__all__ = ["NAMES", "build"]

NAMES = ("fcn", "vgg16", "resnet18", "resnet50", "gpt")


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
    """A network for samples of `input_shape`, at the sizes of the paper where nothing is said.

    Args:
        name: one of `NAMES`.
        input_shape: the shape of one sample.
        classes: how many outputs.
        depth: linear layers of an FCN, blocks of a GPT.
        width: hidden units of an FCN, the embedding's size of a GPT, channels of the first stage of the others.
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
    if name == "fcn":
        if affine:
            raise ValueError("fcn: affine is a switch of norm layers, and an FCN has none; leave it out")
        return FCN(depth or 8, width or 256, math.prod(input_shape), classes, bias=bool(bias))
    raise ValueError(f"{name!r}: there is no such network; choose from {', '.join(NAMES)}")
