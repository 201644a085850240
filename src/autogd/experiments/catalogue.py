"""Every experiment of the paper by name, and how to run one."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogd.experiments import against_rivals, optimisers_table, sweeps
from autogd.experiments.cost import Meter
from autogd.experiments.trials import Scale, settled
from autogd.training import Config, Run, Watch
from autogd.training.study import run_study

__all__ = ["EXPERIMENTS", "Experiment", "carry_out"]


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of the paper: what it shows, and its runs at a scale."""

    content: str
    trials: Callable[[Scale], dict[str, Config]]


EXPERIMENTS = {
    "showcase": Experiment(
        "a 32-layer network at defaults, ResNet-18 against grids, ResNet-50", against_rivals.showcase
    ),
    "architectures": Experiment("four networks, AGD against tuned Adam", against_rivals.architectures),
    "versus-tuned": Experiment("eight layers, AGD against tuned Adam and tuned SGD", against_rivals.versus_tuned),
    "width-depth": Experiment("AGD at every width and depth, and its two phases", sweeps.width_depth),
    "batch-size": Experiment("AGD at batches from 32 to 4,096", sweeps.batch_size),
    "optimisers-table": Experiment("memory, width and depth scaling, measured", optimisers_table.trials),
    "theories-table": Experiment("which theory handles the loss and which the network", lambda scale: {}),
}


def carry_out(
    trials: Mapping[str, Config],
    folder: Path,
    watch: Callable[[str], Watch] = lambda name: Watch(),
    where: Mapping[str, Any] | None = None,
    only: Sequence[str] | None = None,
) -> Iterator[Run]:
    """Train every trial that is not recorded yet; keep its records, delete its weights and checkpoints.

    cost.json, next to the records, has the planned and the spent core-hours. `only` names the trials to train,
    in order; by default all.

    >>> import tempfile
    >>> trial = {"figure/small": Config(depth=2, width=8, epochs=1)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (run,) = carry_out(trial, Path(folder))
    ...     sorted(file.name for file in run.path.iterdir())
    ['config.json', 'cost.json', 'metrics.jsonl', 'summary.json']
    """
    for name in trials if only is None else only:
        trial = {name: settled(name, trials[name], trials, folder)}
        (run,) = run_study(trial, folder, lambda name: [watch(name), Meter()], where)
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        (run.path / "weights.safetensors").unlink(missing_ok=True)
        yield run
