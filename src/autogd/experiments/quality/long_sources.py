"""The data of long workloads: all of CIFAR-10 with crops and flips, and texts that do not run out."""

import hashlib
import sysconfig
from pathlib import Path

import torch
from torch import Tensor

from autogd.data import load
from autogd.data.fetch import data_folder
from autogd.experiments.quality.sources import Batch, Source

__all__ = ["BYTES", "library", "read_bytes", "read_characters", "read_cifar"]

BYTES = 6_000_000
"""Bytes of the library that are read."""
CONTEXT = 64
WINDOWS = 1000  # of bytes, held out
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

    Without tests, tables of codes, generated files and programs.

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
