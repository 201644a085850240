"""One run: one optimiser, at one setting and seed, on one workload."""

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from autogd import baselines
from autogd.experiments.quality.recipe import RIVALS, Recipe
from autogd.experiments.quality.sources import SOURCES, Batch, Source
from autogd.experiments.quality.workloads import EVERY, Workload
from autogd.reading.initialise import initialise_
from autogd.training import seeds

__all__ = ["POINTS", "Cell", "Outcome", "race", "take_step"]


POINTS = 10  # validations per run
STATISTICS = 50  # batches for new batch-norm statistics; with ten, the loss has 0.5% noise
PIECE = 200  # samples per validation batch: larger tensors are slower
BEFORE = 300  # steps of pre-training, for a workload that has it
Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class Cell:
    """An optimiser, its setting and its seed, on a workload."""

    workload: str
    optimiser: str
    lr: float | None = None
    schedule: Schedule = "constant"
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of a run: validation loss, accuracy and training loss, at equally spaced points.

    Args:
        loss: infinite from the point where the run diverged.
        accuracy: nan if there are no classes.
        train: means over the steps since the last point.
        rate: the optimiser's learning rate at each point.
        seconds: processor time of all training steps, without validation.
        data: a hash of the data, if they depend on the machine.
    """

    cell: Cell
    steps: int
    loss: list[float]
    accuracy: list[float]
    train: list[float]
    rate: list[float]
    seconds: float
    data: str = ""


def race(cell: Cell, data_dir: str | None = None, watch: Callable[[int, int], None] | None = None) -> Outcome:
    """Train and validate; a run ends if its loss is not finite.

    >>> outcome = race(Cell("diabetes", "adam", lr=1e-3))
    >>> bool(outcome.loss[-1] < outcome.loss[0])
    True
    """
    workload = EVERY[cell.workload]
    source = SOURCES[workload.data](data_dir)
    model = _start(cell, workload, data_dir)
    recipe = workload.recipe if cell.optimiser in RIVALS else None
    optimiser = (recipe or baselines).build(cell.optimiser, model, cell.lr)
    steps = workload.steps
    base = [group["lr"] for group in optimiser.param_groups]
    loss, accuracy, train, rate = [], [], [], []
    seconds, since = 0.0, []
    draws = seeds.generator(cell.seed, cell.workload, "order")
    if workload.own_start:
        draws.manual_seed(cell.seed)
    samples = _samples(source, workload, draws)
    model.train()
    for step in range(steps):
        batch = source.drawn(next(samples), draws)
        if cell.schedule == "cosine":
            share = recipe.share(step, steps) if recipe else (1 + math.cos(math.pi * step / steps)) / 2
            for group, start in zip(optimiser.param_groups, base, strict=True):
                group["lr"] = start * share
        begin = time.process_time()
        value = _step(model, optimiser, workload, batch, recipe)
        seconds += time.process_time() - begin
        since.append(value)
        if not math.isfinite(value):
            break
        if (step + 1) * POINTS // steps > step * POINTS // steps:
            with baselines.averaged(optimiser):
                if baselines.entry(cell.optimiser).averages:
                    _renew_statistics(model, source, workload, draws.initial_seed())
                here, hits = _validate(model, workload, source.held_out)
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
    return Outcome(cell, steps, loss, accuracy, train, rate, seconds, source.digest)


def take_step(
    model: nn.Module, optimiser: baselines.Optimiser, loss: Callable[[], Tensor], clip: float | None = None
) -> float:
    """Take a step and return the loss before it; infinite if the optimiser rejects a gradient that is not finite.

    Args:
        model: its gradients are cleared first.
        optimiser: any of `baselines`.
        loss: the loss of a batch.
        clip: the largest norm of the gradients; None for no clipping.

    >>> model = nn.Linear(1, 1)
    >>> take_step(model, torch.optim.SGD(model.parameters()), lambda: model(torch.ones(1, 1)).sum() * 0 + 2)
    2.0
    """

    def closure() -> Tensor:
        if torch.is_grad_enabled():
            model.zero_grad(set_to_none=True)
        value = loss()
        if torch.is_grad_enabled():
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
        return value

    try:
        return float(optimiser.step(closure).detach())
    except ValueError as error:
        if "no weight was changed" not in str(error):
            raise
        return math.inf


def _start(cell: Cell, workload: Workload, data_dir: str | None) -> nn.Module:
    if workload.before:
        model = copy.deepcopy(_pretrained(cell.workload, data_dir, cell.seed))
    else:
        seeds.plant(torch.device("cpu"), cell.seed, cell.workload, "start")
        if workload.own_start:
            torch.default_generator.manual_seed(cell.seed)
        model = workload.model()
        if not workload.own_start and baselines.entry(cell.optimiser).start == "dimensional":
            initialise_(model)
    return model


@lru_cache(maxsize=1)
def _pretrained(name: str, data_dir: str | None, seed: int) -> nn.Module:
    workload = EVERY[name]
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


def _samples(source: Source, workload: Workload, draws: torch.Generator) -> Iterator[Tensor]:
    """The samples of each batch; a pass drops the last, incomplete batch."""
    while True:
        if workload.passes:
            order = torch.randperm(source.samples, generator=draws)
            yield from order[: len(order) - len(order) % workload.batch].split(workload.batch)
        else:
            yield torch.randint(source.samples, (workload.batch,), generator=draws)


def _step(
    model: nn.Module, optimiser: baselines.Optimiser, workload: Workload, batch: Batch, recipe: Recipe | None = None
) -> float:
    return take_step(
        model, optimiser, lambda: workload.loss(model(batch[0]), batch[1]), recipe.clip if recipe else None
    )


def _validate(model: nn.Module, workload: Workload, held_out: Batch) -> tuple[float, float]:
    model.eval()
    loss, hits = 0.0, 0.0
    with torch.no_grad():
        for inputs, targets in zip(*(part.split(PIECE) for part in held_out), strict=True):
            output, share = model(inputs), len(inputs) / len(held_out[0])
            loss += share * float(workload.loss(output, targets))
            labelled = not targets.is_floating_point()
            hits += share * float((output.argmax(-1) == targets).float().mean()) if labelled else math.nan
    model.train()
    return loss if math.isfinite(loss) else math.inf, hits


def _renew_statistics(model: nn.Module, source: Source, workload: Workload, seed: int) -> None:
    """Compute new batch-norm statistics, for averaged weights."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        draws = torch.Generator().manual_seed(seed)
        indices = [torch.randint(source.samples, (workload.batch,), generator=draws) for _ in range(STATISTICS)]
        update_bn((source.drawn(index, draws)[0] for index in indices), model)
