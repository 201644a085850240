"""Ctrl-C and SIGTERM: finish the step, save, and say how to resume."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["StopRequest", "Stopped", "listening"]


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
    """Inside the block the first signal is a request; a second one ends the process as usual.

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

    def hear(number: int, frame: FrameType | None) -> None:
        request.signal_number = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, hear)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
