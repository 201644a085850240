"""Evaluate a batch a second time as it was the first time, and leave no trace of it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["Snapshot"]


class Snapshot:
    """What an evaluation changes beside gradients: the state of the random numbers, and the modules' buffers.

    Args:
        modules: whose buffers are to be remembered.
        devices: on which numbers may be drawn, beside the CPU.

    >>> layer = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    >>> x, before = torch.randn(4, 2), Snapshot([layer])
    >>> first = layer(x)
    >>> with before.again():
    ...     print(torch.equal(layer(x), first))
    True
    >>> int(layer[0].num_batches_tracked)
    1
    """

    def __init__(self, modules: Sequence[nn.Module], devices: Iterable[torch.device] = ()) -> None:
        self.modules = modules
        self.cpu = torch.get_rng_state()
        places = {device for device in devices if device.type != "cpu"}
        self.others = {place: torch.get_device_module(place).get_rng_state(place) for place in places}
        self.buffers = [buffer.clone() for module in modules for buffer in module.buffers()]

    def restore(self) -> None:
        """Put everything back; numbers are drawn as they were after the snapshot was taken."""
        torch.set_rng_state(self.cpu)
        for place, state in self.others.items():
            torch.get_device_module(place).set_rng_state(state, place)
        now = [buffer for module in self.modules for buffer in module.buffers()]
        with torch.no_grad():
            for buffer, value in zip(now, self.buffers, strict=True):
                buffer.copy_(value)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside, all is as it was when the snapshot was taken; on the way out, as it is now."""
        now = Snapshot(self.modules, self.others)
        self.restore()
        try:
            yield
        finally:
            now.restore()
