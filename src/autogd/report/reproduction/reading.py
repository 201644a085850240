"""Read the records of an experiment: final values, the best of a grid, and a run's budget as text."""

import math
from collections.abc import Mapping
from typing import Any

from autogd.experiments.trials import END, lowest_objective
from autogd.training import Config, Run

__all__ = ["LEVEL", "Runs", "best", "budget", "final", "moving", "over_grid", "percent", "point", "tuning"]

Runs = Mapping[str, Run]
"""Runs by the name of their trial."""
LEVEL = 0.01  # with one seed, smaller differences of accuracy or objective may be luck

_SETS = {"digits": "digits", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
_NETS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "vgg16": "VGG-16"}
_ALL = {"digits": 1437, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}


def final(run: Run, name: str) -> float:
    """A quantity after a run's last epoch; nan if the run diverged.

    >>> from pathlib import Path
    >>> final(Run(Path("nowhere")), "objective")
    nan
    """
    metrics = run.metrics()
    diverged = (run.summary() or {}).get("status") == "diverged"
    return math.nan if diverged or not metrics else float(metrics[-1][name])


def moving(*runs: Run, what: str = "test_accuracy") -> bool:
    """Whether any run still changes: whether its last fifth of epochs moved the value by more than a point.

    >>> from pathlib import Path
    >>> moving(Run(Path("nowhere")))
    False
    """
    for run in runs:
        values = [float(row[what]) for row in run.metrics()]
        fifth = max(1, len(values) // 5)
        last, before = values[-fifth:], values[-2 * fifth : -fifth]
        if before and abs(sum(last) - sum(before)) / fifth > LEVEL:
            return True
    return False


def over_grid(runs: Runs, prefix: str) -> dict[float, Run]:
    """The runs of one rival by their learning rate, smallest first.

    >>> over_grid({}, "showcase/resnet18-adam")
    {}
    """
    found = {}
    for name, run in runs.items():
        head, _, rate = name.rpartition("-")
        if head.endswith("e"):  # 1e-05 contains a dash
            head, _, mantissa = head.rpartition("-")
            rate = f"{mantissa}-{rate}"
        if head == prefix and f"-{rate}" != END:
            found[float(rate)] = run
    return dict(sorted(found.items()))


def best(runs: Runs, prefix: str) -> tuple[float, Run] | None:
    """A rival's best learning rate (lowest training objective) and its run; None if every rate diverged.

    If the grid was trained for a few epochs only, the run is the long one at the grid's best rate.

    >>> best({}, "showcase/resnet18-adam") is None
    True
    """
    grid = over_grid(runs, prefix)
    long = runs.get(f"{prefix}{END}")
    if long is not None:
        rate = long.config().lr
        return None if rate is None or math.isnan(final(long, "objective")) else (rate, long)
    rate = lowest_objective(grid)
    return None if rate is None else (rate, grid[rate])


def tuning(runs: Runs, prefix: str) -> str:
    """How many epochs a rival's grid had, as text, if its best run had more.

    >>> tuning({}, "showcase/resnet18-adam")
    ''
    """
    grid = over_grid(runs, prefix)
    if f"{prefix}{END}" not in runs or not grid:
        return ""
    return f"; rates chosen after {next(iter(grid.values())).config().epochs} epochs"


def percent(share: float) -> str:
    """A fraction as a percentage.

    >>> percent(0.5273)
    '52.7%'
    """
    return "diverged" if math.isnan(share) else f"{100 * share:.1f}%"


def point(run: Run, what: str = "test_accuracy") -> str:
    """A final accuracy as a percentage.

    >>> from pathlib import Path
    >>> point(Run(Path("nowhere")))
    'diverged'
    """
    return percent(final(run, what))


def budget(config: Config, **leave: Any) -> str:
    """A run's task and budget as text, without the settings named in `leave`.

    >>> budget(Config(depth=8, width=256, epochs=5, data="cifar10", limit=12800, loss="mse"))
    'FCN depth 8, width 256; CIFAR-10, 5 epochs of 12,800 of its 50,000 samples; batch 128'
    """
    kind = _NETS.get(config.model or "", "FCN")
    sizes = [f"{name} {getattr(config, name)}" for name in ("depth", "width") if getattr(config, name)]
    sizes = [size for size in sizes if size.split()[0] not in leave]
    every = _ALL.get(config.data, 0)
    samples = f"{config.limit:,} of its {every:,}" if config.limit and config.limit < every else f"{every:,}"
    loss = {"mse": "", "square": "; square loss", "cross-entropy": "; cross-entropy"}[config.loss or "square"]
    batch = "" if "batch_size" in leave else f"; batch {config.batch_size}"
    plain = "" if config.augment or config.data == "digits" else ", not augmented"
    task = f"{_SETS.get(config.data, config.data)}, {config.epochs} epochs of {samples} samples{plain}"
    return f"{kind} {', '.join(sizes)}".strip() + f"; {task}{loss}{batch}"
