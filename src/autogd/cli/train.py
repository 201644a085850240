"""Train a network on a data set, record every epoch, and survive being stopped.

Without any option: handwritten digits, in seconds. Under torchrun, on many devices.

example: autogd train --data cifar10 --model fcn --depth 2 --width 64
"""

import dataclasses
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogd.cli.progress import TrainingProgress
from autogd.training import Config, Run, Stopped, Watch, train
from autogd.training.distributed import session
from autogd.training.records import under_way, write_whole

__all__ = ["Options", "run"]

# these say where and how to run, not what: they may differ from the run that is resumed
FREE = ("device", "compile", "shard", "data_dir", "checkpoint_seconds")


@dataclass(frozen=True)
class Options(Config):
    """What `autogd train` takes."""

    out: str | None = None
    """the run's folder; left out, a new one under runs/"""
    resume: str | None = None
    """go on with the run in this folder, as it was configured"""
    tensorboard: bool = False
    """also write TensorBoard's files into the run's folder"""
    json: bool = False
    """print the summary as JSON and nothing else"""

    def config(self) -> Config:
        """The run's part of the options."""
        return Config.from_dict(self.as_dict()).resolved()


def run(options: Options) -> int:
    """Train, or go on training; then say what came of it and draw the figure."""
    with session(options.device) as place:
        first = place.rank == 0
        # the first process finds or makes the folder, and tells the others
        record = Run(Path(place.tell(str(_find(options).path) if first else "")))
        watches: list[Watch] = [] if options.json else [TrainingProgress()]
        if options.tensorboard and first:
            from autogd.training.tensorboard import TensorBoard

            watches.append(TensorBoard(record.path))
        try:
            summary = train(record, watches, _config(options, record))
        except Stopped as stopped:
            if first:
                print(f"autogd train: {stopped}", file=sys.stderr)
            return 128 + stopped.signal_number
        if first:
            _tell(options, record, summary)
    return 0


def _find(options: Options) -> Run:
    """The run to train: a new one, the one to resume, or, after a restart by torchrun, the one that was under way."""
    if options.resume is not None:
        if options.out is not None:
            raise ValueError(f"--out: --resume goes on in {options.resume}; leave --out out")
        return Run.open(Path(options.resume))
    config = options.config()
    path = None if options.out is None else Path(options.out)
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return (restarted and under_way(config, path)) or Run.create(config, path)


def _config(options: Options, record: Run) -> Config:
    """The run's own config, with what may be changed on the way changed as asked."""
    asked, defaults, saved = options.as_dict(), Config().as_dict(), record.config()
    given = {name: value for name, value in asked.items() if options.resume and value != defaults[name]}
    for name, value in given.items():
        if name not in FREE and value != getattr(saved, name):
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag}: {record.path} was started with {getattr(saved, name)}, and --resume goes on as it was; "
                "leave the option out, or start another run"
            )
    return dataclasses.replace(saved, **{name: given[name] for name in FREE if name in given})


def _tell(options: Options, record: Run, summary: dict[str, Any]) -> None:
    from autogd.report.figures import draw
    from autogd.report.tables import group_runs

    figure = record.path / "figure.png"
    write_whole(figure, draw(group_runs([record]), "png"))
    if options.json:
        print(json.dumps({"run": str(record.path), **summary}))
    else:
        print(f"test accuracy {summary['test_accuracy']:.2%}, objective {summary['objective']:.4g}")
        print(f"the run is in {record.path}, its figure in {figure}")
