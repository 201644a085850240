"""Write telemetry of every n-th step: as lines of JSON, or for TensorBoard, Weights & Biases or MLflow.

Each is a hook of the optimiser, `optimiser.register_step_post_hook(JSONL("steps.jsonl"))`, so it works in every
framework. It reads from the device only at the steps that it writes. With several processes, register the hook in one
of them.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autogd.optim import AGD

__all__ = ["JSONL", "MLflow", "Telemetry", "TensorBoard", "WandB"]

AT_ONCE = 1000  # MLflow's limit per call


class Telemetry(ABC):
    """Reads the telemetry of every n-th step and passes it to `write`.

    Args:
        every: write each n-th step, starting with the first.
        start: number of earlier steps, if a run is resumed.

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
            raise ValueError(f"every: expected at least 1, found {every}")
        self.every = every
        self.steps = start

    def __call__(self, optimiser: AGD, args: Any = (), kwargs: Any = None) -> None:
        """Count a step; torch calls this after each one."""
        self.steps += 1
        if (self.steps - 1) % self.every == 0:
            self.write(self.steps, _read(optimiser))

    @abstractmethod
    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Write one step's numbers: floats, or dictionaries of floats by parameter; None if not finite."""


class JSONL(Telemetry):
    """Appends one JSON object per line to a file.

    Args:
        path: the file.
        every: write each n-th step, starting with the first.
        start: number of earlier steps, if a run is resumed.

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
        folder: a log folder of TensorBoard, or an open SummaryWriter.
        every: write each n-th step, starting with the first.
        start: number of earlier steps, if a run is resumed.

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
        for name, number in _flat(numbers).items():
            self.writer.add_scalar(name, number, step)
        self.writer.flush()


class WandB(Telemetry):
    """Logs to Weights & Biases, under `autogd/`, with the optimiser's own step count; other metrics keep theirs.

    Args:
        run: an open run; by default the one that `wandb.init()` opened.
        every: write each n-th step, starting with the first.
        start: number of earlier steps, if a run is resumed.

    >>> WandB.__mro__[1].__name__
    'Telemetry'
    """

    def __init__(self, run: Any = None, every: int = 100, start: int = 0) -> None:
        super().__init__(every, start)
        if run is None:
            try:
                import wandb
            except ImportError as error:
                raise ImportError("Weights & Biases is not installed: pip install 'autogd[tracking]'") from error
            run = wandb.run
        if run is None:
            raise ValueError("run: no run of Weights & Biases is open; call wandb.init() first, or pass a run")
        self.run = run
        self.run.define_metric("autogd/step")
        self.run.define_metric("autogd/*", step_metric="autogd/step")

    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Log the points."""
        self.run.log({"autogd/step": step, **{f"autogd/{name}": value for name, value in _flat(numbers).items()}})


class MLflow(Telemetry):
    """Logs to MLflow: to the active run, or to the run with an id.

    Args:
        run_id: the run; by default the active one.
        every: write each n-th step, starting with the first.
        start: number of earlier steps, if a run is resumed.

    >>> MLflow.__mro__[1].__name__
    'Telemetry'
    """

    def __init__(self, run_id: str | None = None, every: int = 100, start: int = 0) -> None:
        super().__init__(every, start)
        try:
            import mlflow
        except ImportError as error:
            raise ImportError("MLflow is not installed: pip install 'autogd[tracking]'") from error
        active = mlflow.active_run()
        if run_id is None and active is None:
            raise ValueError("run_id: no run of MLflow is active; call mlflow.start_run() first, or name a run")
        self.run_id: str = run_id or active.info.run_id
        self.mlflow: Any = mlflow

    def write(self, step: int, numbers: dict[str, Any]) -> None:
        """Log the points in batches of the size that MLflow takes."""
        # MLflow refuses other characters in names
        points = [(re.sub(r"[^\w./ :-]", "_", name), number) for name, number in _flat(numbers).items()]
        for first in range(0, len(points), AT_ONCE):
            self.mlflow.log_metrics(dict(points[first : first + AT_ONCE]), step=step, run_id=self.run_id)


def _flat(numbers: dict[str, Any]) -> dict[str, float]:
    """One name per number, `update_sizes/encoder.weight`; without numbers that are not finite."""
    flat = {}
    for name, value in numbers.items():
        for parameter, number in value.items() if isinstance(value, dict) else [(None, value)]:
            if number is not None:
                flat[f"{name}/{parameter}" if parameter else name] = number
    return flat


def _read(optimiser: AGD) -> dict[str, Any]:
    """All numbers of the last step, read from the device at once."""
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
