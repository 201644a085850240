"""Scale inputs to Prescription 1: ‖x‖₂ = √d_0."""

import torch
from torch import Tensor

__all__ = ["as_is", "channel_statistics", "unit_scale"]


def as_is(inputs: Tensor) -> Tensor:
    """The inputs unchanged.

    >>> as_is(torch.tensor([3, 1]))
    tensor([3, 1])
    """
    return inputs


def unit_scale(inputs: Tensor) -> Tensor:
    """Scale every sample to root-mean-square one, that is, to norm √d_0; a sample of zeros stays zero.

    >>> unit_scale(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).square().sum(1)
    tensor([2., 0.])
    """
    flat = inputs.flatten(1)
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    # 0/0 would turn a blank image into nan, and one nan into a dead network
    factors = torch.where(norms > 0, flat.shape[1] ** 0.5 / norms, 0)
    return (flat * factors).view_as(inputs)


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of a set of uint8 images (samples, channels, height, width).

    Computed from a histogram: exact, and the same on any number of threads.

    >>> mean, deviation = channel_statistics(torch.tensor([[[[0, 2]]], [[[4, 6]]]], dtype=torch.uint8))
    >>> mean.flatten(), deviation.flatten()
    (tensor([3.]), tensor([2.2361]))
    """
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = shares @ levels
    deviation = (shares @ levels.square() - mean.square()).clamp(min=0).sqrt()
    # a constant channel becomes zero, not 0/0
    deviation = torch.where(deviation > 0, deviation, 1.0)
    return mean.float().view(-1, 1, 1), deviation.float().view(-1, 1, 1)
