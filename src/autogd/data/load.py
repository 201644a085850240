"""A data set by its name; the digits need no file."""

from pathlib import Path

import torch

from autogd.data.cifar import CIFAR10, CIFAR100, load_cifar
from autogd.data.fetch import data_folder, needs_extra
from autogd.data.idx import FASHION_MNIST, MNIST, load_idx
from autogd.data.imagefolder import load_image_folder
from autogd.data.task import Task, image_task
from autogd.data.text import load_text

__all__ = ["NAMES", "load", "load_digits"]

NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "imagenet", "text")
TRAIN_SAMPLES = 1437  # of the digits: four fifths; 360 are left for the test


def load(name: str, data_dir: str | Path | None = None, *, download: bool = True, context: int = 64) -> Task:
    """Load a data set.

    Args:
        name: one of `NAMES`.
        data_dir: the folder that holds it; by default the folder that AUTOGD_DATA names, or ~/.cache/autogd.
            For `text`, a UTF-8 file or a folder of .txt files.
        download: fetch missing files from the official address, if there is one.
        context: characters in a sample of `text`.

    >>> import torch
    >>> task = load("digits")
    >>> inputs, labels = task.train.batch(torch.tensor([0, 1, 2]))
    >>> task.prepare(inputs).square().sum((1, 2, 3))
    tensor([64.0000, 64.0000, 64.0000])
    """
    folder = data_folder(data_dir)
    match name:
        case "digits":
            return load_digits()
        case "cifar10" | "cifar100":
            return load_cifar(CIFAR10 if name == "cifar10" else CIFAR100, folder, download=download)
        case "mnist" | "fashion-mnist":
            return load_idx(MNIST if name == "mnist" else FASHION_MNIST, folder, download=download)
        case "imagenet":
            return load_image_folder(folder)
        case "text":
            return load_text(folder, context)
    raise ValueError(f"{name!r}: there is no such data set; choose from {', '.join(NAMES)}")


def load_digits() -> Task:
    """scikit-learn's handwritten digits, 8 × 8 pixels: 1,437 for training and 360 for testing, without a download.

    They are shuffled once, with a fixed seed.

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
