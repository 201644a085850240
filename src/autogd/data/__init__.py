"""Data sets, each as a `Task`: a training and a test split that give batches by index, scaled to Prescription 1."""

from autogd.data.load import NAMES, load
from autogd.data.own import as_task
from autogd.data.task import Split, Task, TensorSplit, ahead, first_samples

__all__ = ["NAMES", "Split", "Task", "TensorSplit", "ahead", "as_task", "first_samples", "load"]
