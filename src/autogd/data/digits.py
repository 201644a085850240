"""The digits that come with scikit-learn: 1,797 images of 8 × 8 pixels, no download."""

import torch

from autogd.data.extra import needs_extra
from autogd.data.task import Task, image_task

__all__ = ["TRAIN_SAMPLES", "load_digits"]

TRAIN_SAMPLES = 1437  # four fifths; 360 are left for the test


def load_digits() -> Task:
    """The handwritten digits, shuffled once by a fixed seed and cut into 1,437 for training and 360 for testing.

    >>> task = load_digits()
    >>> len(task.train), len(task.test), task.input_shape
    (1437, 360, (1, 8, 8))
    """
    with needs_extra("digits"):
        from sklearn import datasets

    bunch = datasets.load_digits()
    images = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:TRAIN_SAMPLES], order[TRAIN_SAMPLES:]
    return image_task("digits", (images[train], labels[train]), (images[test], labels[test]), classes=10)
