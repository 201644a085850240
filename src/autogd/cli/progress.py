"""Show the progress of a run: in the terminal, and in TensorBoard."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from autogd.training import Run, Watch

__all__ = ["TensorBoard", "TrainingProgress", "epoch_line", "on_test_set"]


class TrainingProgress(Watch):
    """A live bar, and one line per epoch above it.

    >>> watch = TrainingProgress(Console(quiet=True))
    >>> watch.step(1)
    """

    def __init__(self, console: Console | None = None) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console or Console(stderr=True), transient=True)
        self.task: TaskID | None = None
        self.steps = 0

    def start(self, run: Run, step: int, steps: int) -> None:
        """Show the bar."""
        self.steps = steps
        self.progress.start()
        self.task = self.progress.add_task("steps", completed=step, total=steps)

    def step(self, step: int) -> None:
        """Move the bar."""
        if self.task is not None:
            self.progress.update(self.task, completed=step)

    def epoch(self, record: dict[str, Any]) -> None:
        """Write the epoch's line."""
        self.progress.console.print(epoch_line(record), highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Remove the bar."""
        self.progress.stop()


def epoch_line(record: dict[str, Any]) -> str:
    """An epoch as one line.

    >>> numbers = {"objective": 0.25, "train_accuracy": 0.5, "test_accuracy": 0.4, "learning_rate_mean": 0.1}
    >>> epoch_line({"epoch": 3, **numbers, "seconds": 2.0})
    'epoch   3  objective 0.2500  train 50.0%  test 40.0%  η 0.1  2.0 s'
    """
    train = "" if record["train_accuracy"] is None else f"train {record['train_accuracy']:.1%}  "
    return (
        f"epoch {record['epoch']:3d}  objective {record['objective']:.4f}  {train}test {on_test_set(record, 1)}  "
        f"η {record['learning_rate_mean']:.3g}  {record['seconds']:.1f} s"
    )


def on_test_set(record: dict[str, Any], digits: int) -> str:
    """The accuracy on the test set in percent; in a regression, the objective.

    >>> on_test_set({"test_accuracy": 0.5, "test_objective": 0.1}, 1)
    '50.0%'
    >>> on_test_set({"test_accuracy": None, "test_objective": 0.1}, 1)
    '0.1000'
    """
    found = record["test_accuracy"]
    return f"{record['test_objective']:.4f}" if found is None else f"{found:.{digits}%}"


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
