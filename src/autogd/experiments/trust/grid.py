"""The runs: ours with nothing to set, Adam at three rates, each with five seeds."""

from collections.abc import Iterable, Iterator

from autogd.experiments.quality import grid as quality
from autogd.experiments.trust.cell import Run

__all__ = ["OPTIMISERS", "OURS", "RATES", "REFERENCE", "SEEDS", "runs"]

SEEDS = (0, 1, 2, 3, 4)
OURS = "agd-stochastic"
"""What is judged."""
REFERENCE = "adam"
"""The reference, at the best of three rates."""
RATES = (3e-4, 1e-3, 3e-3)
OPTIMISERS = (*quality.OURS, *quality.UNTUNED, REFERENCE)
"""The optimisers: those with nothing to set, and the reference."""


def runs(cells: Iterable[str], optimisers: Iterable[str], seeds: Iterable[int] = SEEDS) -> Iterator[Run]:
    """Every cell with every optimiser and every seed; the reference at three rates.

    >>> [run.lr for run in runs(["bandit"], ["agd-stochastic", "adam"], [0])]
    [None, 0.0003, 0.001, 0.003]
    """
    optimisers, seeds = tuple(optimisers), tuple(seeds)
    for cell in cells:
        for optimiser in optimisers:
            for lr in RATES if optimiser == REFERENCE else (None,):
                for seed in seeds:
                    yield Run(cell, optimiser, lr, seed)
