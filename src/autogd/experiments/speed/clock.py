"""The best of several times, with all that is compared taking turns in one process."""

import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["best_times", "seconds"]


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """How long one call takes; on a CUDA device by its own clock, from an idle start to the last kernel's end.

    On one thread the processor's own time counts, which other programs do not lengthen; on more, the clock on the wall.

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
    """The shortest time of each call; in every round each has its turn, so that what else the machine does hits all.

    Args:
        tick: called after every round.

    >>> list(best_times({"nothing": int}, 2, torch.device("cpu")))
    ['nothing']
    """
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()  # the first call makes state and fills caches
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call, device))
        tick()
    return best
