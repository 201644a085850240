"""MNIST and Fashion-MNIST from their IDX files, gzipped or plain."""

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch import Tensor

from autogd.data.fetch import RemoteFile, obtain
from autogd.data.task import Task, image_task

__all__ = ["FASHION_MNIST", "MNIST", "IdxSource", "load_idx", "read_idx"]

UNSIGNED_BYTE = 0x08
LIMIT = 1 << 30  # bytes; the largest official file has 47 million
CHUNK = 1 << 20


@dataclass(frozen=True)
class IdxSource:
    """How one of the sets is published.

    Args:
        name: its name for `load`.
        folders: sub-folders of the data folder that may hold its files; downloads go to the first.
        files: training images and labels, test images and labels.
        first_labels: the first training and test labels, to tell apart two sets with the same names and sizes.
        samples: numbers of training and test images.
        side: height and width of an image, in pixels.
        classes: number of classes.

    >>> MNIST.samples, FASHION_MNIST.side
    ((60000, 10000), 28)
    """

    name: str
    folders: tuple[str, ...]
    files: tuple[RemoteFile, RemoteFile, RemoteFile, RemoteFile]
    first_labels: tuple[str, str]
    samples: tuple[int, int] = (60_000, 10_000)
    side: int = 28
    classes: int = 10


def _files(mirrors: Sequence[str], md5: Sequence[str]) -> tuple[RemoteFile, RemoteFile, RemoteFile, RemoteFile]:
    names = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    a, b, c, d = (
        RemoteFile(name, tuple(mirror + name for mirror in mirrors), checksum)
        for name, checksum in zip(names, md5, strict=True)
    )
    return a, b, c, d


MNIST = IdxSource(
    name="mnist",
    folders=("mnist", "MNIST/raw", "."),
    files=_files(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    first_labels=("5041921314", "7210414959"),
)
FASHION_MNIST = IdxSource(
    name="fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw", "fashion", "."),
    files=_files(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    first_labels=("9003027255", "9211614657"),
)


def load_idx(source: IdxSource, folder: Path, *, download: bool = True) -> Task:
    """The set in `folder`, or in a sub-folder of its name; downloaded if it is missing.

    Downloads are compared with the published checksums. Files put there by hand may be unpacked or packed again, so
    their content is checked instead.

    >>> load_idx(MNIST, Path("data"), download=False)
    Traceback (most recent call last):
    FileNotFoundError: data/mnist/train-images-idx3-ubyte.gz: there is no such file, and downloads are off; put it ...
    """
    paths = _find(source, folder) or [
        _plain_or_packed(folder / source.folders[0], file)
        or obtain(file, folder / source.folders[0], download=download)
        for file in source.files
    ]
    splits = []
    for i, samples in enumerate(source.samples):
        images = _expect(paths[2 * i], (samples, source.side, source.side))
        labels = _expect(paths[2 * i + 1], (samples,))
        beginning = "".join(str(label) for label in labels[:10].tolist())
        if labels.max() >= source.classes or beginning != source.first_labels[i]:
            raise ValueError(
                f"{paths[2 * i + 1]}: these are not the labels of {source.name}: they begin with {beginning}, not with "
                f"{source.first_labels[i]}. Put the files of {source.name} into a folder {source.folders[0]!r} there"
            )
        splits.append((images.unsqueeze(1), labels.long()))
    return image_task(source.name, splits[0], splits[1], source.classes)


def read_idx(path: Path, limit: int = LIMIT) -> Tensor:
    """The array of unsigned bytes in an IDX file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(path)
    tensor([7, 2, 1], dtype=torch.uint8)
    """
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if packed else plain
            return _parse(stream, limit)
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: not a complete IDX file ({error}). Delete it and fetch it again") from error


def _parse(stream: BinaryIO, limit: int) -> Tensor:
    head = _read(stream, 4)
    zero, kind, dimensions = struct.unpack(">HBB", head)
    if zero != 0 or kind != UNSIGNED_BYTE or not 1 <= dimensions <= 4:
        raise ValueError(f"it begins with {head.hex()}, an array of bytes with 00000801 to 00000804")
    shape = struct.unpack(f">{dimensions}I", _read(stream, 4 * dimensions))
    size = math.prod(shape)
    if not 0 < size <= limit:
        raise ValueError(f"its header gives {' × '.join(map(str, shape))} bytes")
    content = _read(stream, size)
    # gzip compares its checksum only if the file is read to the end
    if stream.read(1):
        raise ValueError(f"more follows after the {size} bytes of its header")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


def _read(stream: BinaryIO, size: int) -> bytearray:
    """Exactly `size` bytes, read in chunks, so that a wrong header cannot allocate more memory than the file has."""
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(CHUNK, size - len(content)))
        if not chunk:
            raise ValueError(f"it ends after {len(content)} of {size} bytes")
        content += chunk
    return content


def _expect(path: Path, shape: tuple[int, ...]) -> Tensor:
    found = read_idx(path, limit=math.prod(shape))
    if tuple(found.shape) != shape:
        raise ValueError(f"{path}: expected an array of shape {shape}, found {tuple(found.shape)}")
    return found


def _find(source: IdxSource, folder: Path) -> list[Path] | None:
    for name in source.folders:
        paths = [path for file in source.files if (path := _plain_or_packed(folder / name, file))]
        if len(paths) == len(source.files):
            return paths
    return None


def _plain_or_packed(folder: Path, file: RemoteFile) -> Path | None:
    packed = folder / file.name
    return next((path for path in (packed, packed.with_suffix("")) if path.is_file()), None)
