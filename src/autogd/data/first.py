"""The first samples of a data set, for short runs."""

import dataclasses

from torch import Tensor

from autogd.data.task import Split, Task

__all__ = ["FirstSamples", "first_samples"]


class FirstSamples:
    """A split that ends early.

    >>> import torch
    >>> from autogd.data.task import TensorSplit
    >>> len(FirstSamples(TensorSplit(torch.zeros(5, 1), torch.zeros(5)), 3))
    3
    """

    def __init__(self, split: Split, samples: int) -> None:
        self.split = split
        self.samples = min(samples, len(split))

    def __len__(self) -> int:
        return self.samples

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The batch of the whole split."""
        return self.split.batch(indices)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the whole split, if it uses it."""
        if hasattr(self.split, "set_epoch"):
            self.split.set_epoch(epoch)


def first_samples(task: Task, samples: int) -> Task:
    """A task with only the first `samples` training samples, and as many test samples.

    Sets in memory are shuffled. A folder of images is sorted by class, so its first samples have few classes.

    >>> from autogd.data.digits import load_digits
    >>> task = first_samples(load_digits(), 500)
    >>> len(task.train), len(task.test)
    (500, 360)
    """
    if task.vocabulary:
        raise ValueError("limit: the samples of a text overlap, and their number says little; give a shorter file")
    return dataclasses.replace(task, train=FirstSamples(task.train, samples), test=FirstSamples(task.test, samples))
