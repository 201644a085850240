"""The first samples of a data set, for when there is no time for all of them."""

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
        """As the whole split gives them."""
        return self.split.batch(indices)

    def set_epoch(self, epoch: int) -> None:
        """Tell the whole split, if it wants to know."""
        if hasattr(self.split, "set_epoch"):
            self.split.set_epoch(epoch)


def first_samples(task: Task, samples: int) -> Task:
    """A task with only the first so many samples for training, and as many for testing.

    The sets in memory come shuffled; a folder of images is sorted by class, and its first samples are of few classes.

    >>> from autogd.data.digits import load_digits
    >>> task = first_samples(load_digits(), 500)
    >>> len(task.train), len(task.test)
    (500, 360)
    """
    if task.vocabulary:
        raise ValueError("limit: the samples of a text overlap, and their number says little; give a shorter file")
    return dataclasses.replace(task, train=FirstSamples(task.train, samples), test=FirstSamples(task.test, samples))
