"""Run one optimiser on one cell."""

import math
import time

import torch

from autogd.experiments.trust.cell import Outcome, Run, Score, Setting
from autogd.experiments.trust.cells import CELLS

__all__ = ["attempt"]


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
