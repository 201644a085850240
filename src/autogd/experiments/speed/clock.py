"""The best of several timings; all candidates take turns in one process."""

import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["best_times", "seconds"]


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The time of one call; on a CUDA device with its events, from an idle start to the end of the last kernel.

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
