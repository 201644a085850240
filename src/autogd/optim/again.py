"""Evaluate a batch a second time as it was the first time, and leave no trace of it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["Randomness", "once_more"]


class Randomness:
    """The state of the random numbers that layers such as dropout draw, on the CPU and on other devices.

    >>> before = Randomness()
    >>> first = torch.rand(1)
    >>> before.restore()
    >>> bool(first == torch.rand(1))
    True
    """

    def __init__(self, devices: Iterable[torch.device] = ()) -> None:
        self.cpu = torch.get_rng_state()
        places = {device for device in devices if device.type != "cpu"}
        self.others = {place: torch.get_device_module(place).get_rng_state(place) for place in places}

    def restore(self) -> None:
        """Draw from here on what was drawn after the state was taken."""
        torch.set_rng_state(self.cpu)
        for place, state in self.others.items():
            torch.get_device_module(place).set_rng_state(state, place)


@contextmanager
def once_more(before: Randomness, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, random numbers come as they did from `before` on; after it, they and all buffers are as they were.

    So the statistics of batch norm count a batch once.

    >>> layer = nn.BatchNorm1d(2)
    >>> with once_more(Randomness(), [layer]):
    ...     output = layer(torch.randn(4, 2))
    >>> int(layer.num_batches_tracked)
    0
    """
    buffers = [buffer for module in modules for buffer in module.buffers()]
    held = [buffer.clone() for buffer in buffers]
    after = Randomness(before.others)
    before.restore()
    try:
        yield
    finally:
        after.restore()
        with torch.no_grad():
            for buffer, value in zip(buffers, held, strict=True):
                buffer.copy_(value)
