"""Instruments of the speed benchmarks: seconds of a call, bytes of state, peak bytes, bytes sent to other ranks."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Counted", "best_times", "peak_bytes", "seconds", "steady_bytes"]


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The time of one call; on a CUDA device, from an idle start to the end of the last kernel.

    With one thread it is processor time, which other programs do not lengthen; with more threads it is wall time.

    >>> seconds(lambda: None, torch.device("cpu")) < 1
    True
    """
    if device.type != "cuda":
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        call()
        return clock() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1000


def best_times(
    calls: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, tick: Callable[[], object] = int
) -> dict[str, float]:
    """The shortest time of each call; calls take turns in every round, so that other load affects all of them.

    Args:
        tick: called after every round.

    >>> list(best_times({"nothing": int}, 2, torch.device("cpu")))
    ['nothing']
    """
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()  # warm-up: creates state and fills caches
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call, device))
        tick()
    return best


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


class Counted(TorchDispatchMode):
    """Counts the bytes that this rank sends and receives inside the context.

    An all-reduce or all-gather counts as much as it moves around a ring.

    >>> with Counted() as counted:
    ...     pass
    >>> counted.sent, counted.calls
    (0, {})
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent = self.received = 0
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Count the operation if it is a collective, then run it."""
        name = func.name()
        if name.startswith("c10d::"):
            self._count(name.removeprefix("c10d::"), args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if name == "alltoall_base_":
            into, out, _, into_splits, out_splits = args[:5]
            rank = dist.get_rank()  # every caller has a group of all ranks
            self.sent += (sum(out_splits) - out_splits[rank]) * out.element_size()
            self.received += (sum(into_splits) - into_splits[rank]) * into.element_size()
        elif name == "allreduce_":
            ranks = dist.get_world_size()
            moved = sum(2 * t.numel() * t.element_size() * (ranks - 1) // ranks for t in args[0])
            self.sent += moved
            self.received += moved
        elif name == "allgather_":
            moved = sum(t.numel() * t.element_size() * (dist.get_world_size() - 1) for t in args[1])
            self.sent += moved
            self.received += moved
        else:
            raise ValueError(f"{name}: this collective is not counted yet")
