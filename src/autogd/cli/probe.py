"""Learning rates for those who must stay with SGD, AdamW or Muon: a short run of StochasticAGD, then parameter groups.

example: autogd probe my_package.models:make digits --batch-size 64
"""

import json as jsonlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import tyro
from torch import Tensor

from autogd import data, losses
from autogd.cli.explain import build
from autogd.cli.place import call
from autogd.diagnosis import probe
from autogd.training import seeds
from autogd.training.setup import objective

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd probe` takes."""

    model: tyro.conf.Positional[str]
    """package.module:factory, a callable without arguments that returns a Module with the weights to start from"""
    data: tyro.conf.Positional[str]
    """a data set by name (digits, cifar10, text, …), or package.module:callable, which returns batches of a pair"""
    data_dir: str | None = None
    """where the data set's files are; for text, the file itself"""
    context: int = 64
    """characters a sample, for text"""
    loss: Literal["cross-entropy", "square"] = "cross-entropy"
    """what is trained on"""
    batch_size: int = 64
    """samples a step, as many as the training will have"""
    steps: int = 50
    """how long a run"""
    seed: int = 0
    """for the weights and the order of the data"""
    json: bool = False
    """print JSON instead of text"""


def run(options: Options) -> int:
    """Print the recommendation."""
    for name in ("batch_size", "steps"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name}: expected at least 1, found {getattr(options, name)}")
    torch.manual_seed(seeds.derive(options.seed, "model"))
    model = build(options.model)
    batches, loss = _own(options) if ":" in options.data else _named(options)
    recommendation = probe(model, loss, batches, steps=options.steps)
    print(jsonlib.dumps(recommendation.as_dict(), indent=1) if options.json else recommendation)
    return 0


def _named(options: Options) -> tuple[Iterator[tuple[Tensor, Tensor]], Callable[[Tensor, Tensor], Tensor]]:
    task = data.load(options.data, options.data_dir, context=options.context)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        epoch = 0
        while True:
            generator = seeds.generator(options.seed, "order", epoch)
            for indices in torch.randperm(len(task.train), generator=generator).split(options.batch_size):
                inputs, labels = task.train.batch(indices)
                if task.augment is not None:
                    inputs = task.augment(inputs, generator)
                yield task.prepare(inputs), labels
            epoch += 1

    return batches(), objective(options.loss, task.classes)


def _own(options: Options) -> tuple[Iterable[Any], Callable[[Tensor, Tensor], Tensor]]:
    batches = call(options.data, "batches of inputs and targets")
    if not isinstance(batches, Iterable):
        raise ValueError(f"{options.data}: expected an iterable of batches, found a {type(batches).__name__}")
    return batches, losses.square_loss if options.loss == "square" else objective(options.loss, 0)
