"""VGG-16 for small images."""

from torch import Tensor, nn

from autogd.models.fcn import FCN

__all__ = ["VGG16"]

STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))  # convolutions and relative width of each stage


class VGG16(nn.Module):
    """Thirteen convolutions in five stages, each with batch norm, and three linear layers.

    The linear layers are as wide as the last stage (512): the usual form for 32-pixel images. The original, for 224
    pixels, has 4,096. Images of any size work, since pooling rounds up and the last map is averaged.

    Args:
        classes: how many outputs.
        channels: of the images.
        width: channels of the first stage.
        bias: whether convolutions and linear layers have biases.
        affine: whether norm layers have gains and biases.

    >>> import torch
    >>> VGG16(classes=10, width=8)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, classes: int = 10, *, channels: int = 3, width: int = 64, bias: bool = False, affine: bool = False
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: a VGG16 has at least one channel, found {width}")
        layers: list[nn.Module] = []
        for convolutions, factor in STAGES:
            for _ in range(convolutions):
                layers += [
                    nn.Conv2d(channels, factor * width, 3, padding=1, bias=bias),
                    nn.BatchNorm2d(factor * width, affine=affine),
                    nn.ReLU(inplace=True),
                ]
                channels = factor * width
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.classifier = FCN(depth=3, width=channels, d_in=channels, d_out=classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of images to one logit per class."""
        return self.classifier(self.features(x))
