"""The data of the benchmark: training batches and validation sets.

The long workloads have all of CIFAR-10 with crops and flips, and texts that a run reads once or a few times.
"""

import hashlib
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from autogd.data import load
from autogd.data.fetch import data_folder
from autogd.data.task import Split, TensorSplit
from autogd.training.seeds import generator

__all__ = ["BYTES", "SOURCES", "Batch", "Source", "library", "read_bytes", "read_characters", "read_cifar"]

Batch = tuple[Tensor, Tensor]
HELD_OUT = 1000  # validation samples, from the test set


@dataclass(frozen=True)
class Source:
    """Training samples by index, and a validation set.

    Args:
        batch: the samples at some indices.
        samples: the number of training samples.
        held_out: the validation set.
        vary: the same with augmentation; None if there is none.
        digest: a hash of the data, if they depend on the machine; else empty.
    """

    batch: Callable[[Tensor], Batch]
    samples: int
    held_out: Batch
    vary: Callable[[Tensor, torch.Generator], Batch] | None = None
    digest: str = ""

    def drawn(self, indices: Tensor, draws: torch.Generator) -> Batch:
        """A training batch."""
        return self.vary(indices, draws) if self.vary else self.batch(indices)


def _images(name: str, data_dir: str | None, held_out: int = HELD_OUT) -> Source:
    task = load(name, data_dir, download=False)

    def prepared(split: Split, indices: Tensor) -> Batch:
        inputs, labels = split.batch(indices)
        return task.prepare(inputs), labels

    test = torch.arange(min(held_out, len(task.test)))
    return Source(lambda indices: prepared(task.train, indices), len(task.train), prepared(task.test, test))


def _digits(data_dir: str | None) -> Source:
    return _images("digits", data_dir)


def _cifar(data_dir: str | None) -> Source:
    return _images("cifar10", data_dir)


def _part_of_cifar(data_dir: str | None) -> Source:
    whole = _cifar(data_dir)
    return Source(whole.batch, 10_000, whole.held_out)


def _fashion(data_dir: str | None) -> Source:
    return _images("fashion-mnist", data_dir)


def _pictures(data_dir: str | None) -> Source:
    """Fashion-MNIST, with every image as its own target."""
    whole = _fashion(data_dir)

    def itself(inputs: Tensor) -> Batch:
        return inputs.flatten(1), inputs.flatten(1)

    return Source(lambda indices: itself(whole.batch(indices)[0]), whole.samples, itself(whole.held_out[0]))


def _classes(data_dir: str | None, wanted: range, samples: int | None = None) -> Source:
    """Fashion-MNIST's classes in a range, counted from zero."""
    task = load("fashion-mnist", data_dir, download=False)
    splits = []
    for split in (task.train, task.test):
        assert isinstance(split, TensorSplit)
        splits.append(((split.labels >= wanted.start) & (split.labels < wanted.stop)).nonzero().flatten())
    mine, test = splits[0][:samples], splits[1][:HELD_OUT]

    def prepared(split: Split, indices: Tensor) -> Batch:
        inputs, labels = split.batch(indices)
        return task.prepare(inputs), labels - wanted.start

    return Source(lambda indices: prepared(task.train, mine[indices]), len(mine), prepared(task.test, test))


def _text(context: int, windows: int) -> Callable[[str | None], Source]:
    def read(data_dir: str | None) -> Source:
        task = load("text", data_folder(data_dir) / "tinyshakespeare.txt", context=context)
        places = torch.arange(windows) * (len(task.test) // windows)
        return Source(task.train.batch, len(task.train), task.test.batch(places))

    return read


def _table(inputs: Tensor, targets: Tensor) -> Source:
    """A table, standardised; a fifth is held out."""
    order = torch.randperm(len(inputs), generator=generator("table"))
    cut = len(order) - len(order) // 5
    train, held = order[:cut], order[cut:]

    def standard(values: Tensor) -> Tensor:
        return (values - values[train].mean(0)) / values[train].std(0)

    inputs, targets = standard(inputs.float()), standard(targets.float())
    return Source(lambda i: (inputs[train[i]], targets[train[i]]), cut, (inputs[held], targets[held]))


def _diabetes(data_dir: str | None) -> Source:
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return _table(torch.tensor(data.data), torch.tensor(data.target)[:, None])


def _cells(data_dir: str | None) -> Source:
    """Thirty measurements of each cell nucleus; predict the ten worst from the others."""
    from sklearn.datasets import load_breast_cancer

    values = torch.tensor(load_breast_cancer().data)
    return _table(values[:, :20], values[:, 20:])


BYTES = 6_000_000
"""Read so many bytes of the library."""
CONTEXT = 64
WINDOWS = 1000  # held out, of the library
# folders to skip: tests, tables, generated text, programs
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
LEFT_OUT |= {"idlelib", "lib2to3", "turtledemo", "ensurepip"}


def read_cifar(data_dir: str | None) -> Source:
    """All of CIFAR-10: training with crops and flips, validation on the whole test set."""
    task = load("cifar10", data_dir, download=False)
    assert task.augment
    augment = task.augment

    def plain(indices: Tensor) -> Batch:
        inputs, labels = task.train.batch(indices)
        return task.prepare(inputs), labels

    def varied(indices: Tensor, draws: torch.Generator) -> Batch:
        inputs, labels = task.train.batch(indices)
        return task.prepare(augment(inputs, draws)), labels

    inputs, labels = task.test.batch(torch.arange(len(task.test)))
    return Source(plain, len(task.train), (task.prepare(inputs), labels), vary=varied)


def read_characters(data_dir: str | None) -> Source:
    """Tiny Shakespeare as characters, in windows at any offset; six batches of 200 from the last tenth are held out."""
    text = (data_folder(data_dir) / "tinyshakespeare.txt").read_text()
    code = {character: i for i, character in enumerate(sorted(set(text)))}
    codes = torch.tensor([code[character] for character in text])
    cut = int(0.9 * len(codes))
    train, test = codes[:cut], codes[cut:]
    held = [
        torch.randint(len(test) - CONTEXT - 1, (200,), generator=torch.Generator().manual_seed(7 + i)) for i in range(6)
    ]
    return Source(lambda at: _windows(train, at), len(train) - CONTEXT - 1, _windows(test, torch.cat(held)))


def read_bytes(data_dir: str | None) -> Source:
    """The sources of Python's standard library as bytes, cut into windows; the last twentieth is held out."""
    return _cut(library(Path(sysconfig.get_paths()["stdlib"]), BYTES))


def library(folder: Path, size: int) -> bytes:
    """The Python files of a folder, concatenated in the order of their names, up to a size.

    Tests, tables of codes, generated files and programs are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.py", "a.py", "tests.txt"):
    ...         _ = Path(folder, name).write_text(f"# {name}\\n")
    ...     library(Path(folder), 12)
    b'# a.py\\n# b.p'
    """
    files = {path.relative_to(folder): path for path in folder.rglob("*.py")}
    parts: list[bytes] = []
    for name in sorted(files, key=Path.as_posix):
        generated = name.name.startswith("_sysconfigdata") or name.parts[0].startswith("config-")
        if not generated and not LEFT_OUT & set(name.parts):
            parts.append(files[name].read_bytes())
            if sum(map(len, parts)) >= size:
                break
    return b"".join(parts)[:size]


def _cut(text: bytes) -> Source:
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    cut = len(codes) - len(codes) // 20
    train, test = codes[:cut], codes[cut:]
    places = torch.arange(WINDOWS) * ((len(test) - CONTEXT - 1) // WINDOWS)
    return Source(
        lambda indices: _windows(train, indices * CONTEXT),
        (len(train) - 1) // CONTEXT,
        _windows(test, places),
        digest=f"sha256:{hashlib.sha256(text).hexdigest()}",
    )


def _windows(codes: Tensor, at: Tensor) -> Batch:
    rows = codes[at.unsqueeze(1) + torch.arange(CONTEXT + 1)].long()
    return rows[:, :-1], rows[:, 1:]


SOURCES: dict[str, Callable[[str | None], Source]] = {
    name: lru_cache(read)
    for name, read in {
        "digits": _digits,
        "cifar10": _cifar,
        "cifar10, 10,000 samples": _part_of_cifar,
        "fashion-mnist": _fashion,
        "fashion-mnist, pictures": _pictures,
        "fashion-mnist, classes 0 to 4": lambda data_dir: _classes(data_dir, range(5)),
        "fashion-mnist, 1,000 of classes 5 to 9": lambda data_dir: _classes(data_dir, range(5, 10), 1000),
        "text, windows of 64": _text(64, 128),
        "text, windows of 32": _text(32, 256),
        "text, windows of 16": _text(16, 256),
        "diabetes": _diabetes,
        "cells": _cells,
        "cifar10, all, crops and flips": read_cifar,
        "text, recipe's windows of 64": read_characters,
        "Python's library, 6 MB": read_bytes,
    }.items()
}
"""By name: how to read it from a data folder."""
