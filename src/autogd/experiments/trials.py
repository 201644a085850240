"""The trials of the paper's figures: published settings, rivals over a grid, and the choice of a rival's rate.

The settings of the published curves differ from those of the theory. The theory's square loss has a factor ½, and its
networks have plain layers (Definition 10). The published curves use the mean squared error without the ½, targets
√d_L · one-hot, relu(z)·√2 between the layers of fully-connected networks, pad-4 crops and flips, and batches of 128;
Adam and SGD start from torch's initialisation. `Config` has the theory's settings as defaults, `published()` has those
of the curves.

A rival's rate is chosen by the training objective. Choosing it by the test set would be training on the test set.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from autogd.training import Config, Run

__all__ = [
    "END",
    "SCALES",
    "Scale",
    "against",
    "lowest_objective",
    "published",
    "settled",
    "short_then_tuned",
    "with_stochastic_agd",
]

Scale = Literal["smoke", "laptop", "workstation", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "workstation", "paper")


def published(**changes: Any) -> Config:
    """A run with the settings of the published curves, except for `changes`.

    >>> published(depth=8).loss, Config().resolved().loss
    ('mse', 'square')
    """
    settings: dict[str, Any] = {
        "data": "cifar10",
        "model": "fcn",
        "loss": "mse",  # targets have norm √d_L, networks have relu·√2
        "augment": True,
        "batch_size": 128,
        "start": None,  # Prescription 1 for AGD, torch's initialisation for Adam and SGD
        "optimiser": "agd",
    }
    return Config(**{**settings, **changes}).resolved()


def against(prefix: str, task: Config, rivals: Mapping[str, Sequence[float]]) -> dict[str, Config]:
    """AGD, StochasticAGD, and every rival at each of its learning rates, on one task, by folder name.

    >>> list(against("figure/net", published(), {"adam": [1e-3, 1e-4]}))
    ['figure/net-agd', 'figure/net-agd-stochastic', 'figure/net-adam-0.001', 'figure/net-adam-0.0001']
    """
    agd = {f"{prefix}-agd": replace(task, optimiser="agd", lr=None)}
    trials = {**agd, f"{prefix}-agd-stochastic": replace(task, optimiser="agd-stochastic", lr=None)}
    for name, rates in rivals.items():
        trials |= {f"{prefix}-{name}-{rate:g}": replace(task, optimiser=name, lr=rate) for rate in rates}
    return trials


def short_then_tuned(prefix: str, task: Config, rivals: Mapping[str, Sequence[float]], short: int) -> dict[str, Config]:
    """As `against`, but rivals train for `short` epochs at each rate, then for all epochs at the best rate.

    The run `-tuned` has no rate yet: it is chosen from the records of the short runs.

    >>> list(short_then_tuned("figure/net", published(), {"adam": [1e-3]}, short=2))
    ['figure/net-agd', 'figure/net-agd-stochastic', 'figure/net-adam-0.001', 'figure/net-adam-tuned']
    """
    grids = {
        f"{prefix}-{name}-{rate:g}": replace(task, optimiser=name, lr=rate, epochs=short)
        for name, rates in rivals.items()
        for rate in rates
    }
    tuned = {f"{prefix}-{name}-tuned": replace(task, optimiser=name, lr=None) for name in rivals}
    return {**against(prefix, task, {}), **grids, **tuned}


def with_stochastic_agd(trials: Mapping[str, Config], **changes: Any) -> dict[str, Config]:
    """The same trials with StochasticAGD: the second row of a figure.

    >>> list(with_stochastic_agd({"figure/batch32": published()}))
    ['figure/batch32-agd-stochastic']
    """
    return {
        f"{name}-agd-stochastic": replace(trial, optimiser="agd-stochastic", **changes)
        for name, trial in trials.items()
    }


END = "-tuned"
"""The suffix of a trial whose rate is not chosen yet."""


def lowest_objective(runs: Mapping[float, Run]) -> float | None:
    """The rate of the run with the lowest final training objective; None if every run diverged.

    >>> lowest_objective({}) is None
    True
    """
    ends = {}
    for rate, run in runs.items():
        summary = run.summary() or {}
        objective = summary.get("objective")
        if summary.get("status") == "finished" and objective is not None and not math.isnan(objective):
            ends[rate] = objective
    return min(ends, key=lambda rate: ends[rate], default=None)


def settled(name: str, config: Config, trials: Mapping[str, Config], folder: Path) -> Config:
    """A trial with its rate: its own, or the best of its short runs.

    If every short run diverged, the rate is the optimiser's default.

    >>> settled("figure/net-adam-0.1", Config(lr=0.1), {}, Path("nowhere")).lr
    0.1
    """
    if not name.endswith(END):
        return config
    prefix = name.removesuffix(END)
    rates = {c.lr: other for other, c in trials.items() if c.lr is not None and other == f"{prefix}-{c.lr:g}"}
    if not rates:
        raise ValueError(f"{name}: it has no short runs to choose a rate from, only {', '.join(trials)}")
    missing = [other for other in rates.values() if Run(folder / other).summary() is None]
    if missing:
        raise ValueError(f"{name}: its rate is the best of {', '.join(rates.values())}; first train {missing[0]}")
    return replace(config, lr=lowest_objective({rate: Run(folder / other) for rate, other in rates.items()}))
