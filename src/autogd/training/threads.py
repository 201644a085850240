"""The number of CPU threads for a network.

Threads that share a small product wait for each other, and on a busy machine one of them is always late: seconds become
minutes. So a network of small layers gets one thread. The rule depends only on the network and the batch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["suitable", "using"]

SMALL = 5e7  # use one thread for layers with fewer operations per batch: about a millisecond


@torch.no_grad()
def suitable(model: nn.Module, sample: Tensor, batch_size: int) -> int:
    """One thread if the mean layer is small on a batch of that size; torch's own number otherwise.

    >>> suitable(nn.Linear(8, 8), torch.ones(2, 8), batch_size=128)
    1
    """
    if sample.device.type != "cpu" or "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    layers = sum(parameter.dim() > 1 for parameter in model.parameters())
    before = [(module, module.training) for module in model.modules()]
    try:
        with FlopCounterMode(display=False) as counter:
            model.eval()(sample)
    finally:
        for module, training in before:
            module.training = training
    operations = counter.get_total_flops() * batch_size / max(1, len(sample))
    return 1 if operations / max(1, layers) < SMALL else torch.get_num_threads()


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Inside the block torch uses this many CPU threads.

    >>> with using(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
