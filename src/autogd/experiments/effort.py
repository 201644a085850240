"""Core-hours of each figure: planned, and spent so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autogd.experiments.cost import cost
from autogd.experiments.meter import spent
from autogd.training import Config, Run

__all__ = ["Effort", "effort", "left"]


@dataclass(frozen=True)
class Effort:
    """A figure's runs, its ended runs, and core-hours: planned for all, planned for the ended runs, and spent."""

    runs: int
    ended: int
    planned: float
    planned_of_ended: float
    spent: float


def effort(figure: str, trials: Mapping[str, Config], folder: Path) -> Effort:
    """The effort of a figure; runs that it takes from another figure are counted there.

    >>> effort("net", {"net/small": Config(epochs=1), "other/small": Config()}, Path("nowhere")).runs
    1
    """
    own = {name: config for name, config in trials.items() if name.startswith(f"{figure}/")}
    ended = [name for name in own if Run(folder / name).summary() is not None]
    return Effort(
        runs=len(own),
        ended=len(ended),
        planned=cost(own.values()).core_hours,
        planned_of_ended=cost(own[name] for name in ended).core_hours,
        spent=sum(spent(Run(folder / name)).get("spent_core_hours", 0.0) for name in own),
    )


def left(config: Config, run: Run) -> float:
    """Core-hours that a run still needs, for the epochs that are not recorded.

    >>> left(Config(), Run(Path("nowhere"))) == cost([Config()]).core_hours
    True
    """
    return cost([config]).core_hours * (1 - len(run.metrics()) / config.epochs)
