"""Training: a config, the loop, and a run's records and checkpoints, on one device or many."""

from autogd.training.config import Config
from autogd.training.loop import Watch, train
from autogd.training.process import Stopped
from autogd.training.records import Run, find_runs
from autogd.training.step import Diverged

__all__ = ["Config", "Diverged", "Run", "Stopped", "Watch", "find_runs", "train"]
