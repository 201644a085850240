"""Bytes of an optimiser's state, and peak bytes during a step."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["peak_bytes", "steady_bytes"]


def steady_bytes(state: Any) -> int:
    """The bytes of all tensors in a state dict, at any depth.

    >>> steady_bytes({"a": [torch.zeros(2)], "b": 3})
    8
    """
    return sum(tensor.nbytes for tensor in _tensors(state))


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _tensors(value)


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The peak bytes that a call allocates, according to torch's allocator.

    >>> peak_bytes(lambda: torch.zeros(1000) + 1, torch.device("cpu")) // 1000
    8
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return torch.cuda.max_memory_allocated(device) - before
    # not torch.profiler: it makes an object of every event, which takes longer than the call
    with _quiet(), torch.autograd.profiler.profile(profile_memory=True) as profile:
        call()
    events: Any = profile.kineto_results.events()
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what torch's profiler writes to standard error from C++."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
