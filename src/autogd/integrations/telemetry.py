"""What steps do, written down every so often: as lines of JSON, or for TensorBoard.

Both are hooks of the optimiser, `optimiser.register_step_post_hook(JSONL("steps.jsonl"))`, and so work in every
framework. Between the steps that they write they read nothing, and nothing waits for the device. With several
processes, register on one of them.
"""

import json
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autogd.optim import AGD

__all__ = ["JSONL", "Telemetry", "TensorBoard"]


class Telemetry(ABC):
    """Reads every so many steps what the step did, and hands it to `write`.

    Args:
        every: steps from one line to the next; the first step is written.
        start: steps taken before, where a run goes on.

    >>> class Show(Telemetry):
    ...     def write(self, step, numbers):
    ...         print(step, sorted(numbers), sorted(numbers["update_sizes"]))
    >>> model = torch.nn.Linear(2, 1)
    >>> optimiser = AGD(model)
    >>> handle = optimiser.register_step_post_hook(Show(every=2))
    >>> for _ in range(4):
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimiser.step()
    1 ['dual_norms', 'gradient_summary', 'learning_rate', 'update_sizes'] ['bias', 'weight']
    3 ['dual_norms', 'gradient_summary', 'learning_rate', 'update_sizes'] ['bias', 'weight']
    """

    def __init__(self, every: int = 100, start: int = 0) -> None:
        if every < 1:
            raise ValueError(f"every: {every} steps from one line to the next is not possible; use 1 or more")
        self.every = every
        self.steps = start

    def __call__(self, optimiser: AGD, args: Any = (), kwargs: Any = None) -> None:
        """Count a step; torch calls this after each."""
        self.steps += 1
        if (self.steps - 1) % self.every == 0:
            self.write(self.steps, _read(optimiser))

    @abstractmethod
    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Write one step's numbers: floats, or a dictionary of them by parameter; None for what is not finite."""


class JSONL(Telemetry):
    """Appends an object a line to a file.

    Args:
        path: the file.
        every: steps from one line to the next; the first step is written.
        start: steps taken before, where a run goes on.

    >>> import tempfile
    >>> model = torch.nn.Linear(2, 1)
    >>> optimiser = AGD(model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     handle = optimiser.register_step_post_hook(JSONL(Path(folder) / "steps.jsonl"))
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimiser.step()
    ...     line = json.loads((Path(folder) / "steps.jsonl").read_text())
    >>> line["step"], line["learning_rate"] > 0
    (1, True)
    """

    def __init__(self, path: str | Path, every: int = 100, start: int = 0) -> None:
        super().__init__(every, start)
        self.path = Path(path)

    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Append the line."""
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **numbers}, allow_nan=False) + "\n")


class TensorBoard(Telemetry):
    """Writes to a folder for TensorBoard: `learning_rate`, `gradient_summary`, `dual_norms/NAME`, `update_sizes/NAME`.

    Args:
        folder: where TensorBoard looks; or a SummaryWriter that is open already.
        every: steps from one point to the next; the first step is written.
        start: steps taken before, where a run goes on.

    >>> TensorBoard.__mro__[1].__name__
    'Telemetry'
    """

    def __init__(self, folder: Any, every: int = 100, start: int = 0) -> None:
        super().__init__(every, start)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install 'autogd[tensorboard]'") from error
        self.writer: Any = SummaryWriter(str(folder)) if isinstance(folder, str | Path) else folder

    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Write the points."""
        for name, value in numbers.items():
            for parameter, number in value.items() if isinstance(value, dict) else [(None, value)]:
                if number is not None:
                    self.writer.add_scalar(f"{name}/{parameter}" if parameter else name, number, step)
        self.writer.flush()


def _read(optimiser: AGD) -> dict[str, Any]:
    """All numbers of the last step, brought from the device in one go."""
    last = optimiser.last_step
    tensors: dict[tuple[str, str], Tensor] = {
        ("learning_rate", ""): optimiser.learning_rate,
        ("gradient_summary", ""): optimiser.gradient_summary,
    }
    if last is not None:
        tensors |= {("dual_norms", name): value for name, value in last.dual_norms.items()}
        tensors |= {("update_sizes", name): value for name, value in last.update_sizes.items()}
    numbers = torch.stack([value.to(optimiser.learning_rate) for value in tensors.values()]).tolist()
    read: dict[str, Any] = {}
    for (name, parameter), number in zip(tensors, numbers, strict=True):
        number = number if math.isfinite(number) else None
        if parameter:
            read.setdefault(name, {})[parameter] = number
        else:
            read[name] = number
    return read
