"""The runs of the benchmark: optimisers with nothing to set, and Adam at three rates, each with five seeds."""

import math
import time
from collections.abc import Iterable, Iterator

import torch

from autogd.experiments.quality import grid as quality
from autogd.experiments.trust.cell import Outcome, Run, Score, Setting
from autogd.experiments.trust.cells import CELLS

__all__ = ["OPTIMISERS", "OURS", "RATES", "REFERENCE", "SEEDS", "attempt", "runs"]

SEEDS = (0, 1, 2, 3, 4)
OURS = "agd-stochastic"
"""The optimiser that is judged."""
REFERENCE = "adam"
"""The reference, at the best of three rates."""
RATES = (3e-4, 1e-3, 3e-3)
OPTIMISERS = (*quality.OURS, *quality.UNTUNED, REFERENCE)
"""Those with nothing to set, and the reference."""


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


def attempt(run: Run, data_dir: str | None = None) -> Outcome:
    """Train and evaluate on one torch thread; a run is lost if its loss is not finite.

    >>> attempt(Run("mlp-16", "adam", lr=1e-3)).steps
    100
    """
    cell = CELLS[run.cell]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    begin = time.process_time()
    try:
        score = cell.train(Setting(run.optimiser, run.lr, run.seed, data_dir))
    except FloatingPointError:
        score = Score(math.inf)
    finally:
        torch.set_num_threads(threads)
    loss = score.loss if math.isfinite(score.loss) else math.inf
    return Outcome(run, cell.steps, loss, score.logit, time.process_time() - begin)
