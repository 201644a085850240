"""Write every number of an epoch's line to TensorBoard."""

from pathlib import Path
from typing import Any

from autogd.training.loop import Watch

__all__ = ["TensorBoard"]


class TensorBoard(Watch):
    """Writes each epoch's numbers to the folder `tensorboard` of the run.

    >>> TensorBoard.__mro__[1].__name__
    'Watch'
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("--tensorboard: it is not installed: pip install 'autogd[tensorboard]'") from error
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def epoch(self, record: dict[str, Any]) -> None:
        """Write an epoch's numbers, by name."""
        for name, value in record.items():
            if name != "epoch" and value is not None:
                self.writer.add_scalar(name, value, record["epoch"])
        self.writer.flush()
