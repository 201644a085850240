"""Residual networks with pre-activation: norm and relu come before each convolution (He et al. 2016)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu

__all__ = ["ResNet", "ResNet18", "ResNet50", "Residual"]

Kernels = Sequence[tuple[int, int, int]]
"""A branch's convolutions: outputs, kernel size, stride."""


class Residual(nn.Module):
    """A branch of convolutions, each with norm and relu before it, added to its input.

    If the sizes differ, the input passes through a 1 × 1 convolution, after the branch's first norm.

    >>> import torch
    >>> Residual(4, [(8, 3, 2), (8, 3, 1)], bias=False, affine=False)(torch.randn(1, 4, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(self, inputs: int, kernels: Kernels, *, bias: bool, affine: bool) -> None:
        super().__init__()
        sizes = [inputs, *(outputs for outputs, _, _ in kernels)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(size, affine=affine) for size in sizes[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=bias)
            for (before, after), (_, kernel, stride) in zip(pairwise(sizes), kernels, strict=True)
        )
        strides = max(stride for _, _, stride in kernels)
        same = strides == 1 and inputs == sizes[-1]
        self.shortcut = None if same else nn.Conv2d(inputs, sizes[-1], 1, stride=strides, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the input, or to the shortcut's output."""
        branch = relu(self.norms[0](x))
        kept = x if self.shortcut is None else self.shortcut(branch)
        branch = self.convolutions[0](branch)
        for norm, convolution in zip(list(self.norms)[1:], list(self.convolutions)[1:], strict=True):
            branch = convolution(relu(norm(branch)))
        return kept + branch


class ResNet(nn.Module):
    """Four stages of residual blocks; see `ResNet18` and `ResNet50`.

    Args:
        blocks: number in each stage.
        bottleneck: blocks of 1 × 1, 3 × 3 and 1 × 1 convolutions with four times as wide an output, not of two 3 × 3.
        classes: number of outputs.
        channels: channels of the images.
        width: channels of the first stage; each further stage doubles them.
        stem: `cifar`, one 3 × 3 convolution; or `imagenet`, a 7 × 7 one and a pool, which divide the sides by four.
        bias: whether convolutions and the last linear layer have biases.
        affine: whether norm layers have gains and biases.

    >>> import torch
    >>> ResNet((1, 1, 1, 1), bottleneck=False, width=4)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        bottleneck: bool,
        classes: int = 10,
        channels: int = 3,
        width: int = 64,
        stem: Literal["cifar", "imagenet"] = "cifar",
        bias: bool = False,
        affine: bool = False,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: a ResNet has at least one channel, found {width}")
        if stem not in ("cifar", "imagenet"):
            raise ValueError(f"stem: expected 'cifar' or 'imagenet', found {stem!r}")
        if stem == "cifar":
            self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=bias))
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=bias), nn.MaxPool2d(3, stride=2, padding=1)
            )
        layers: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(blocks):
            inner = width * 2**stage
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                if bottleneck:
                    kernels = [(inner, 1, 1), (inner, 3, stride), (4 * inner, 1, 1)]
                else:
                    kernels = [(inner, 3, stride), (inner, 3, 1)]
                layers.append(Residual(inputs, kernels, bias=bias, affine=affine))
                inputs = kernels[-1][0]
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(inputs, affine=affine)
        self.head = nn.Linear(inputs, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of images to one logit per class."""
        x = relu(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((2, 3)))


class ResNet18(ResNet):
    """Pre-activation ResNet-18, for 32-pixel images, or for ImageNet's with `stem="imagenet"`.

    >>> sum(p.numel() for p in ResNet18(width=4).parameters())
    44012
    """

    def __init__(
        self,
        classes: int = 10,
        *,
        channels: int = 3,
        width: int = 64,
        stem: Literal["cifar", "imagenet"] = "cifar",
        bias: bool = False,
        affine: bool = False,
    ) -> None:
        super().__init__(
            (2, 2, 2, 2),
            bottleneck=False,
            classes=classes,
            channels=channels,
            width=width,
            stem=stem,
            bias=bias,
            affine=affine,
        )


class ResNet50(ResNet):
    """Pre-activation ResNet-50, for 32-pixel images, or for ImageNet's with `stem="imagenet"`.

    >>> import torch
    >>> ResNet50(classes=7, width=4, stem="imagenet")(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 7])
    """

    def __init__(
        self,
        classes: int = 10,
        *,
        channels: int = 3,
        width: int = 64,
        stem: Literal["cifar", "imagenet"] = "cifar",
        bias: bool = False,
        affine: bool = False,
    ) -> None:
        super().__init__(
            (3, 4, 6, 3),
            bottleneck=True,
            classes=classes,
            channels=channels,
            width=width,
            stem=stem,
            bias=bias,
            affine=affine,
        )
