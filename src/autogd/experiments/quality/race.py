"""One optimiser at one setting and seed on one workload."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from autogd import baselines
from autogd.experiments.quality.sources import SOURCES, Batch, Source
from autogd.experiments.quality.workloads import WORKLOADS, Workload
from autogd.experiments.stepping import take_step
from autogd.geometry.initialise import initialise_
from autogd.training import seeds

__all__ = ["POINTS", "Cell", "Outcome", "race"]

POINTS = 10  # how often a run is judged
BEFORE = 300  # steps on the data that come first, where there are such
Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class Cell:
    """What is run."""

    workload: str
    optimiser: str
    lr: float | None = None
    schedule: Schedule = "constant"
    seed: int = 0
    stretch: int = 1  # times the budget


@dataclass(frozen=True)
class Outcome:
    """What came out: the validation loss and accuracy, and the training loss, at equally spaced points.

    Args:
        loss: infinite from where the run was lost.
        accuracy: nan where there are no classes.
        train: means over the steps since the last point.
        rate: the optimiser's learning rate there.
        seconds: of the processor, for all training steps; judging is left out.
    """

    cell: Cell
    steps: int
    loss: list[float]
    accuracy: list[float]
    train: list[float]
    rate: list[float]
    seconds: float


def race(cell: Cell, data_dir: str | None = None, watch: Callable[[int, int], None] | None = None) -> Outcome:
    """Train and judge; a run whose loss is not finite ends there.

    >>> outcome = race(Cell("diabetes", "adam", lr=1e-3))
    >>> bool(outcome.loss[-1] < outcome.loss[0])
    True
    """
    workload = WORKLOADS[cell.workload]
    source = SOURCES[workload.data](data_dir)
    model = _start(cell, workload, data_dir)
    optimiser = baselines.build(cell.optimiser, model, cell.lr)
    steps = workload.steps * cell.stretch
    base = [group["lr"] for group in optimiser.param_groups]
    loss, accuracy, train, rate = [], [], [], []
    seconds, since = 0.0, []
    draws = seeds.generator(cell.seed, cell.workload, "order")
    model.train()
    for step in range(steps):
        batch = source.batch(torch.randint(source.samples, (workload.batch,), generator=draws))
        if cell.schedule == "cosine":
            for group, start in zip(optimiser.param_groups, base, strict=True):
                group["lr"] = start * (1 + math.cos(math.pi * step / steps)) / 2
        begin = time.process_time()
        value = _step(model, optimiser, workload, batch)
        seconds += time.process_time() - begin
        since.append(value)
        if not math.isfinite(value):
            break
        if (step + 1) * POINTS // steps > step * POINTS // steps:
            with baselines.averaged(optimiser):
                if baselines.entry(cell.optimiser).averages:
                    _renew_statistics(model, source, workload, draws.initial_seed())
                here, hits = _judge(model, workload, source.held_out)
            loss.append(here)
            accuracy.append(hits)
            train.append(sum(since) / len(since))
            rate.append(float(baselines.learning_rate(optimiser)))
            since = []
            if watch:
                watch(step + 1, steps)
    lost = POINTS - len(loss)
    for values in (loss, train):
        values.extend([math.inf] * lost)
    for values in (accuracy, rate):
        values.extend([math.nan] * lost)
    return Outcome(cell, steps, loss, accuracy, train, rate, seconds)


def _start(cell: Cell, workload: Workload, data_dir: str | None) -> nn.Module:
    if workload.before:
        model = copy.deepcopy(_before(cell.workload, data_dir, cell.seed))
    else:
        seeds.plant(torch.device("cpu"), cell.seed, cell.workload, "start")
        model = workload.model()
        if baselines.entry(cell.optimiser).start == "dimensional":
            initialise_(model)
    return model


@lru_cache(maxsize=1)
def _before(name: str, data_dir: str | None, seed: int) -> nn.Module:
    workload = WORKLOADS[name]
    seeds.plant(torch.device("cpu"), seed, name, "start")
    model = workload.model()
    assert workload.before
    source = SOURCES[workload.before](data_dir)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    draws = seeds.generator(seed, name, "before")
    for _ in range(BEFORE):
        indices = torch.randint(source.samples, (workload.batch,), generator=draws)
        _step(model, optimiser, workload, source.batch(indices))
    head = model.get_submodule("head")
    assert isinstance(head, nn.Linear)
    head.reset_parameters()
    return model


def _step(model: nn.Module, optimiser: baselines.Optimiser, workload: Workload, batch: Batch) -> float:
    return take_step(model, optimiser, lambda: workload.loss(model(batch[0]), batch[1]))


def _judge(model: nn.Module, workload: Workload, held_out: Batch) -> tuple[float, float]:
    model.eval()
    with torch.no_grad():
        output = model(held_out[0])
        loss = float(workload.loss(output, held_out[1]))
        labelled = not held_out[1].is_floating_point()
        hits = float((output.argmax(-1) == held_out[1]).float().mean()) if labelled else math.nan
    model.train()
    return loss if math.isfinite(loss) else math.inf, hits


def _renew_statistics(model: nn.Module, source: Source, workload: Workload, seed: int) -> None:
    """Averaged weights need batch-norm statistics of their own."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        draws = torch.Generator().manual_seed(seed)
        indices = [torch.randint(source.samples, (workload.batch,), generator=draws) for _ in range(10)]
        update_bn((source.batch(index)[0] for index in indices), model)
