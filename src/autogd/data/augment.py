"""Random changes to a batch of images that leave their labels true."""

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["crop_and_flip"]


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Pad by `padding`, cut out a window of the old size and mirror it or not, drawn anew for every sample.

    The padding is zero, which is the mean colour of standardised images. Numbers are drawn on the generator's device,
    so that a seed gives the same changes whatever device the images are on.

    >>> crop_and_flip(torch.ones(2, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 32, 32])
    """
    samples, channels, height, width = images.shape
    source = generator.device
    offsets = torch.randint(2 * padding + 1, (2, samples, 1), generator=generator, device=source).to(images.device)
    mirror = torch.rand(samples, 1, generator=generator, device=source).to(images.device) < 0.5
    rows = offsets[0] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = offsets[1] + torch.where(mirror, width - 1 - columns, columns)
    # one flat gather for the batch: several times faster than indexing each dimension
    places = (rows.unsqueeze(2) * (width + 2 * padding) + columns.unsqueeze(1)).view(samples, 1, -1)
    padded = pad(images, (padding,) * 4).flatten(2)
    return padded.gather(2, places.expand(-1, channels, -1)).view_as(images)
