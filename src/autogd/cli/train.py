"""The command `autogd train`."""

import dataclasses
import json
import os
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogd.cli.output import check_folder
from autogd.cli.progress import TensorBoard, TrainingProgress, on_test_set
from autogd.training import Config, Run, Stopped, Watch, train
from autogd.training.distributed import session
from autogd.training.records import under_way, write_whole
from autogd.training.tryout import check_config

__all__ = ["Train"]

# settings of the machine: they may change when a run is resumed
FREE = ("device", "compile", "shard", "data_dir", "checkpoint_seconds", "checkpoints", "threads")


@dataclass(frozen=True)
class Train(Config):
    """Train a network on a data set and record every epoch; a stopped run can be resumed.

    Without any option: handwritten digits, in seconds. Under torchrun: on many devices.

    For your own network and data, name a factory that returns a Module, and a loader that returns (train, test), each a
    pair of inputs and labels, a data set or a DataLoader.

    example: autogd train --data cifar10 --model fcn --depth 2 --width 64

    example: autogd train --model my_package.models:make --data my_package.data:load
    """

    out: str | None = None
    """the run's folder; default: a new one under runs/"""
    resume: str | None = None
    """resume the run in this folder, as configured; with --epochs, train up to that many in total"""
    epochs: int | None = None  # type: ignore[assignment]  # None if left out: --resume then keeps the run's
    """passes over the training set; default: 20"""
    tensorboard: bool = False
    """also write TensorBoard files to the run's folder"""
    json: bool = False
    """print the summary as JSON and nothing else"""

    def config(self) -> Config:
        """The run's part of the options."""
        given = {name: value for name, value in self.as_dict().items() if name != "epochs" or value is not None}
        return Config.from_dict(given).resolved()

    def run(self) -> int:
        """Train or resume; then print the result and draw the figure."""
        with session(self.device) as place, ExitStack() as settings:
            first = place.rank == 0
            if first and self.tensorboard:
                _require_tensorboard()
            # the first process finds or creates the folder for all
            record = settings.enter_context(_find(self)) if first else Run(Path())
            record = Run(Path(place.tell(str(record.path))))
            watches: list[Watch] = [] if self.json else [TrainingProgress()]
            if self.tensorboard and first:
                watches.append(TensorBoard(record.path))
            try:
                summary = train(record, watches, _config(self, record))
            except Stopped as stopped:
                if first:
                    print(f"autogd train: {stopped}", file=sys.stderr)
                return 128 + stopped.signal_number
            if first:
                _tell(self, record, summary)
        return 0


def _find(options: Train) -> AbstractContextManager[Run]:
    """The run to train: a new one, the one to resume, or, after a restart by torchrun, the unfinished one."""
    if options.resume is not None:
        if options.out is not None:
            raise ValueError(f"--out: --resume continues in {options.resume}; leave --out out")
        run = Run.open(Path(options.resume))
        _config(options, run)  # refuse other settings before anything changes
        if options.epochs is not None and options.epochs != run.config().epochs:
            run.extend(options.epochs)
        return nullcontext(run)
    config = options.config()
    check_config(config)
    path = None if options.out is None else check_folder("--out", options.out)
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    known = under_way(config, path) if restarted else None
    return Run.created(config, path) if known is None else nullcontext(known)


def _require_tensorboard() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError("--tensorboard: it is not installed: pip install 'autogd[tensorboard]'") from error


def _config(options: Train, record: Run) -> Config:
    """The run's config, with the settings of the machine taken from the options."""
    asked, defaults, saved = options.as_dict(), Config().as_dict(), record.config()
    asked.pop("epochs")  # the run has it already
    given = {name: value for name, value in asked.items() if options.resume and value != defaults[name]}
    for name, value in given.items():
        if name not in FREE and value != getattr(saved, name):
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag}: {record.path} was started with {getattr(saved, name)}, and --resume keeps that; "
                "leave the option out, or start another run"
            )
    return dataclasses.replace(saved, **{name: given[name] for name in FREE if name in given})


def _tell(options: Train, record: Run, summary: dict[str, Any]) -> None:
    from autogd.report.figures import draw
    from autogd.report.tables import group_runs

    figure = record.path / "figure.png"
    write_whole(figure, draw(group_runs([record]), "png"))
    if options.json:
        print(json.dumps({"run": str(record.path), **summary}))
    else:
        quantity = "test objective" if summary["test_accuracy"] is None else "test accuracy"
        print(f"{quantity} {on_test_set(summary, 2)}, objective {summary['objective']:.4g}")
        print(f"the run is in {record.path}, its figure in {figure}")
