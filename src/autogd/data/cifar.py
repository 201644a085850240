"""CIFAR-10 and CIFAR-100 from their official archives, packed or unpacked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from autogd.data.fetch import RemoteFile, check_md5, obtain, unpack
from autogd.data.prepare import crop_and_flip
from autogd.data.task import Task, image_task
from autogd.data.unpickle import PickledArray, read_pickle

__all__ = ["CIFAR10", "CIFAR100", "CifarSource", "load_cifar"]

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class CifarSource:
    """How one of the sets is published.

    Args:
        name: its name for `load`.
        archive: the file to download.
        folder: what the archive unpacks to.
        train: files of the training set, of equal length.
        test: files of the test set.
        label_key: the key of a file's labels.
        classes: number of classes.
        samples: numbers of training and test images.

    >>> CIFAR100.label_key, CIFAR100.classes
    ('fine_labels', 100)
    """

    name: str
    archive: RemoteFile
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: str
    classes: int
    samples: tuple[int, int] = (50_000, 10_000)


CIFAR10 = CifarSource(
    name="cifar10",
    archive=RemoteFile(
        "cifar-10-python.tar.gz",
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        "c58f30108f718f92721af3b95e74349a",
    ),
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    label_key="labels",
    classes=10,
)
CIFAR100 = CifarSource(
    name="cifar100",
    archive=RemoteFile(
        "cifar-100-python.tar.gz",
        ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
        "eb9058c3a382ffc7106e4002c42a8d85",
    ),
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    label_key="fine_labels",
    classes=100,
)

Images = tuple[Tensor, Tensor]


def load_cifar(source: CifarSource, folder: Path, *, download: bool = True) -> Task:
    """The set in `folder`, unpacked or as the archive; downloaded if it is missing.

    Only the archive has a published checksum. For unpacked files, shapes and labels are checked.

    >>> load_cifar(CIFAR10, Path("data"), download=False)
    Traceback (most recent call last):
    FileNotFoundError: data/cifar-10-python.tar.gz: there is no such file, and downloads are off; put it there ...
    """
    members = [*source.train, *source.test]
    for place in (folder / source.folder, folder):
        if all((place / name).is_file() for name in members):
            try:
                train, test = _read_folder(place, source)
            except ValueError as error:
                raise ValueError(
                    f"{error}. Delete {place} and put {source.archive.name} beside it, or load again with a network"
                ) from error
            break
    else:
        archive = obtain(source.archive, folder, download=download)
        check_md5(archive, source.archive.md5)
        train, test = unpack(archive, folder / source.folder, members, lambda place: _read_folder(place, source))
    return image_task(source.name, train, test, source.classes, crop_and_flip)


def _read_folder(folder: Path, source: CifarSource) -> tuple[Images, Images]:
    train, test = source.samples
    return _read_files(folder, source.train, train, source), _read_files(folder, source.test, test, source)


def _read_files(folder: Path, names: Sequence[str], samples: int, source: CifarSource) -> Images:
    parts = [_read_file(folder / name, samples // len(names), source) for name in names]
    images, labels = zip(*parts, strict=True)
    return torch.cat(images), torch.cat(labels)


def _read_file(path: Path, samples: int, source: CifarSource) -> Images:
    content = read_pickle(path)
    data, labels = content.get("data"), content.get(source.label_key)
    if not isinstance(data, PickledArray) or not isinstance(labels, list):
        found = ", ".join(map(repr, content)) or "nothing"
        raise ValueError(f"{path}: expected 'data' and {source.label_key!r}, found {found}")
    images = data.tensor()
    if images.dtype != torch.uint8 or tuple(images.shape) != (samples, 3072) or len(labels) != samples:
        raise ValueError(
            f"{path}: expected {samples} images of 3072 bytes and as many labels, "
            f"found {tuple(images.shape)} of {images.dtype} and {len(labels)}"
        )
    if not all(type(label) is int and 0 <= label < source.classes for label in labels):
        raise ValueError(f"{path}: labels must be integers from 0 to {source.classes - 1}")
    return images.view(-1, *SHAPE), torch.tensor(labels)
