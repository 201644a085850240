"""The rate of a long run, chosen from the records of short ones.

It is chosen by the training objective. Choosing by the test set would be training on it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autogd.training import Config, Run

__all__ = ["END", "lowest_objective", "settled"]

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

    If every short run diverged, it is the optimiser's default.

    >>> settled("figure/net-adam-0.1", Config(lr=0.1), {}, Path("nowhere")).lr
    0.1
    """
    if not name.endswith(END):
        return config
    prefix = name.removesuffix(END)
    rates = {c.lr: other for other, c in trials.items() if c.lr is not None and other == f"{prefix}-{c.lr:g}"}
    if not rates:
        raise ValueError(f"{name}: no trial at a rate of its own is among {', '.join(trials)}")
    missing = [other for other in rates.values() if Run(folder / other).summary() is None]
    if missing:
        raise ValueError(f"{name}: its rate is the best of {', '.join(rates.values())}; first train {missing[0]}")
    return replace(config, lr=lowest_objective({rate: Run(folder / other) for rate, other in rates.items()}))
