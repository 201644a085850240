"""The process that trains: its device, its CPU threads, and the signals that stop it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["StopRequest", "Stopped", "find_device", "listening", "suitable_threads", "using_threads"]

# use one thread if a layer has fewer operations per batch than this: about a millisecond
SMALL = 5e7


def find_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of that name, if it works here; `auto` takes an accelerator if there is one.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("its tensors have no values")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = (str(error).strip().splitlines() or [""])[0].partition(". ")[0].rstrip(".")
        raise ValueError(f"device: {name!r} cannot be used here ({said}); try cpu, or leave the option out") from error
    return device


@torch.no_grad()
def suitable_threads(model: nn.Module, sample: Tensor, batch_size: int) -> int:
    """One thread if the layers are small on average for a batch of that size; torch's own number otherwise.

    Threads that share a small product wait for each other, and on a busy machine one of them is always late: seconds
    become minutes. The rule depends only on the network and the batch.

    >>> suitable_threads(nn.Linear(8, 8), torch.ones(2, 8), batch_size=128)
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
def using_threads(threads: int) -> Iterator[None]:
    """Inside the block torch uses this many CPU threads.

    >>> with using_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Stopped(Exception):  # noqa: N818 - not an error
    """Training stopped on request, after saving."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopRequest:
    """The signal that asked training to stop; 0 if none did."""

    def __init__(self) -> None:
        self.signal_number = 0


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Inside the block the first Ctrl-C or SIGTERM sets the request; a second one ends the process as usual.

    >>> with listening() as request:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     request.signal_number == signal.SIGTERM
    True
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread can handle signals
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        request.signal_number = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
