"""Text as characters."""

from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from autogd.data.task import Task

__all__ = ["TextSplit", "load_text"]


class TextSplit:
    """Windows of `context` characters at any offset; the label of a character is the next one.

    >>> split = TextSplit(torch.tensor([5, 6, 7, 8]), context=2)
    >>> split.batch(torch.tensor([1]))
    (tensor([[6, 7]]), tensor([[7, 8]]))
    """

    def __init__(self, codes: Tensor, context: int) -> None:
        self.codes, self.context = codes, context

    def __len__(self) -> int:
        return len(self.codes) - self.context

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The windows that start at `indices`, and the same windows one character later."""
        places = indices.to(self.codes.device).unsqueeze(1) + torch.arange(self.context + 1, device=self.codes.device)
        windows = self.codes[places].long()
        return windows[:, :-1], windows[:, 1:]

    def to(self, device: torch.device | str) -> Self:
        """The same text on another device."""
        return type(self)(self.codes.to(device), self.context)


def load_text(path: Path, context: int = 64) -> Task:
    """A UTF-8 file, or all .txt files of a folder in the order of their names; the last tenth is for testing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "sea.txt").write_text("she sells sea shells " * 10)
    ...     task = load_text(Path(folder), context=8)
    >>> task.vocabulary, len(task.train), len(task.test)
    (' aehls', 181, 13)
    """
    if context < 1:
        raise ValueError(f"context: a sample has at least one character, found {context}")
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileNotFoundError(f"{path}: no text there; name a UTF-8 file, or a folder with .txt files")
    # UTF-32 has four bytes per code point, so a large text becomes integers without a loop
    points = torch.cat([_code_points(file) for file in files])
    if len(points) // 10 <= context:
        raise ValueError(
            f"{path}: {len(points)} characters are too few: the last tenth, for the test, must hold more than the "
            f"context of {context}. Take a longer text or a smaller context"
        )
    characters, codes = points.unique(return_inverse=True)
    codes = codes.to(torch.uint8 if len(characters) <= 256 else torch.int32)
    cut = len(codes) - len(codes) // 10
    return Task(
        name="text",
        train=TextSplit(codes[:cut], context),
        test=TextSplit(codes[cut:], context),
        classes=len(characters),
        input_shape=(context,),
        vocabulary="".join(map(chr, characters.tolist())),
    )


def _code_points(file: Path) -> Tensor:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8: {error.reason} at byte {error.start}; convert it first") from error
    if not text:
        return torch.empty(0, dtype=torch.int32)
    return torch.frombuffer(bytearray(text.encode("utf-32-le")), dtype=torch.int32)
