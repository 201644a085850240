"""ImageNet, or any folder of images sorted into classes: train/<class>/<image> and val/<class>/<image>."""

import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from autogd.data.fetch import needs_extra
from autogd.data.prepare import unit_scale
from autogd.data.task import Task

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageFolderSplit", "centre_box", "load_image_folder", "random_box"]

# of ImageNet's training set, in the order red, green, blue
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# only the formats of data sets: Pillow starts programs for some of the others
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
MOST_PIXELS = 1 << 26

Box = tuple[float, float, float, float]


def load_image_folder(folder: Path, size: int = 224) -> Task:
    """The images in `folder`, or in a folder `imagenet` there; the names of the training classes give the labels.

    >>> load_image_folder(Path("data"))
    Traceback (most recent call last):
    FileNotFoundError: data: expected the folders train and val, each with a folder of images for every class. ...
    """
    place = next((place for place in (folder, folder / "imagenet") if (place / "train").is_dir()), folder)
    train, test = place / "train", place / "val"
    if not train.is_dir() or not test.is_dir():
        raise FileNotFoundError(
            f"{place}: expected the folders train and val, each with a folder of images for every class. Download "
            "ImageNet from https://image-net.org after signing in; unpack it there as train/<class>/*.JPEG and "
            "val/<class>/*.JPEG"
        )
    classes = sorted(entry.name for entry in os.scandir(train) if entry.is_dir())
    strangers = sorted({entry.name for entry in os.scandir(test) if entry.is_dir()} - set(classes))
    if strangers:
        raise ValueError(f"{test / strangers[0]}: a class with no folder in {train}; give both the same classes")
    return Task(
        name="imagenet",
        train=ImageFolderSplit(train, classes, size=size, random_crops=True),
        test=ImageFolderSplit(test, classes, size=size, random_crops=False),
        classes=len(classes),
        input_shape=(3, size, size),
        prepare=unit_scale,
    )


class ImageFolderSplit:
    """Images on disk, decoded batch by batch by several threads (Pillow releases Python's lock).

    A random crop depends only on the seed, the epoch and the image, not on threads, batches or processes.

    Args:
        folder: holds a folder for every class.
        classes: their names; the index in this list is the label.
        size: side of the square output, in pixels.
        random_crops: whether to crop, resize and flip at random, for training; otherwise the centre is taken.
        seed: seed of the random crops.
        threads: number of decoding threads.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "cat").mkdir()
    ...     Image.new("RGB", (30, 20)).save(Path(folder, "cat", "black.png"))
    ...     ImageFolderSplit(Path(folder), ["cat"], size=8).batch(torch.tensor([0]))[0].shape
    torch.Size([1, 3, 8, 8])
    """

    def __init__(
        self,
        folder: Path,
        classes: Sequence[str],
        *,
        size: int = 224,
        random_crops: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        with needs_extra("images"):
            import PIL.Image  # noqa: F401
        self.paths: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            found = _images(folder / name)
            self.paths += found
            labels += [label] * len(found)
        if not self.paths:
            raise FileNotFoundError(f"{folder}: no image in any class; expected <class>/*{{{','.join(SUFFIXES)}}}")
        self.labels = torch.tensor(labels)
        self.size, self.random_crops, self.seed, self.epoch = size, random_crops, seed, 0
        self._pool = ThreadPoolExecutor(threads or min(16, os.cpu_count() or 1), thread_name_prefix="decode")
        self._mean = torch.tensor(MEAN).view(-1, 1, 1) * 255
        self._deviation = torch.tensor(DEVIATION).view(-1, 1, 1) * 255

    def __len__(self) -> int:
        return len(self.paths)

    def set_epoch(self, epoch: int) -> None:
        """Draw the crops of this epoch from now on."""
        self.epoch = epoch

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The decoded, cropped and standardised images at `indices`, and their labels."""
        indices = indices.cpu()
        pixels = torch.stack(list(self._pool.map(self._decode, indices.tolist())))
        inputs = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return inputs.sub_(self._mean).div_(self._deviation), self.labels[indices]

    def _decode(self, index: int) -> Tensor:
        from PIL import Image

        path = self.paths[index]
        try:
            with Image.open(path, formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise ValueError(f"{width} × {height} pixels are more than the {MOST_PIXELS} allowed")
                picture = image.convert("RGB")
        except FileNotFoundError:
            raise
        except Exception as error:  # a damaged image can raise anything
            raise ValueError(
                f"{path}: not an image that can be read ({type(error).__name__}: {error}); replace it or take it out"
            ) from error
        if not self.random_crops:
            return _cut(picture, centre_box(width, height), self.size)
        chance = random.Random(f"{self.seed} {self.epoch} {index}")
        box = random_box(width, height, chance)
        pixels = _cut(picture, box, self.size)
        return pixels.flip(1) if chance.random() < 0.5 else pixels


def random_box(width: int, height: int, chance: random.Random) -> Box:
    """A random window with 8% to 100% of the area and an aspect ratio of 3:4 to 4:3; the centre if none fits.

    >>> left, top, right, bottom = random_box(100, 50, random.Random(0))
    >>> 0 <= left < right <= 100 and 0 <= top < bottom <= 50
    True
    """
    for _ in range(10):
        area = width * height * chance.uniform(0.08, 1.0)
        proportion = math.exp(chance.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
        if 0 < w <= width and 0 < h <= height:
            left, top = chance.randint(0, width - w), chance.randint(0, height - h)
            return left, top, left + w, top + h
    return centre_box(width, height, share=1.0)


def centre_box(width: int, height: int, share: float = 224 / 256) -> Box:
    """The centre square, with `share` of the shorter side: resizing to 256 and cropping 224 in one operation.

    >>> centre_box(512, 256)
    (144.0, 16.0, 368.0, 240.0)
    """
    side = min(width, height) * share
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _cut(picture: "Image", box: Box, size: int) -> Tensor:
    from PIL.Image import Resampling

    resized = picture.resize((size, size), Resampling.BILINEAR, box=box)
    data: Any = bytearray(resized.tobytes())
    return torch.frombuffer(data, dtype=torch.uint8).view(size, size, 3)


def _images(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(SUFFIXES))
