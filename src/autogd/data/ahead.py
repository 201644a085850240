"""Prefetch: prepare the next batches in a thread while the network trains on this one."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from autogd.data.task import Split

__all__ = ["ahead"]


def ahead(split: Split, indices: Iterable[Tensor], count: int = 2) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches at each of `indices`, in order; up to `count` of them are prepared ahead in a thread.

    Use it if images are decoded from disk. For tensors in memory `split.batch` alone is as fast.

    >>> import torch
    >>> from autogd.data import TensorSplit
    >>> split = TensorSplit(torch.arange(4.0), torch.arange(4))
    >>> [labels.tolist() for _, labels in ahead(split, torch.arange(4).split(2))]
    [[0, 1], [2, 3]]
    """
    worker = ThreadPoolExecutor(1, thread_name_prefix="ahead")
    waiting: deque[Future[tuple[Tensor, Tensor]]] = deque()
    try:
        for each in indices:
            waiting.append(worker.submit(split.batch, each))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        worker.shutdown(wait=True, cancel_futures=True)
