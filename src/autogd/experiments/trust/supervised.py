"""Cells that learn from labelled samples: small batches, bad starts, spikes, wrong labels, a change of task."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from autogd import baselines
from autogd.experiments.quality import sources as quality
from autogd.experiments.quality.sources import Batch, Source
from autogd.experiments.quality.workloads import entropy
from autogd.experiments.trust.cell import Score, Setting, Start, descend, started
from autogd.training import seeds

__all__ = ["SOURCES", "TUMOURS", "Disturbance", "Supervised", "at_first", "judged", "spikes", "undisturbed"]

Disturbance = Callable[[int], tuple[float, float]]
"""The factors of a step's inputs and of its loss."""


def undisturbed(step: int) -> tuple[float, float]:
    """No disturbance.

    >>> undisturbed(0)
    (1.0, 1.0)
    """
    return 1.0, 1.0


def at_first(inputs: float = 1.0, loss: float = 1.0) -> Disturbance:
    """Disturb only the first batch.

    >>> at_first(loss=10.0)(0), at_first(loss=10.0)(1)
    ((1.0, 10.0), (1.0, 1.0))
    """
    return lambda step: (inputs, loss) if step == 0 else (1.0, 1.0)


def spikes(loss: float, every: int = 0, at: int = 0) -> Disturbance:
    """Disturb the loss of every n-th batch, or of one.

    >>> [spikes(9.0, every=2)(step)[1] for step in range(4)], spikes(9.0, at=7)(7)
    ([1.0, 9.0, 1.0, 9.0], (1.0, 9.0))
    """
    return lambda step: (1.0, loss if ((step + 1) % every == 0 if every else step == at) else 1.0)


@dataclass(frozen=True)
class Supervised:
    """Train a classifier with cross-entropy, and evaluate it on held-out samples.

    Args:
        data: a name in `SOURCES`.
        model: builds the network, with torch's initialisation.
        batch: samples in a batch, drawn with replacement.
        steps: the budget.
        start: the initialisation; by default the one that `baselines` has for the optimiser.
        size: multiplies all initial weights.
        disturbance: the factors of each step's inputs and loss.
        then: the data of the second half and of the evaluation; None for no change.
        averaged: whether to evaluate the averaged weights, or the weights in training.

    >>> task = Supervised("tumours", lambda: nn.Linear(30, 2), batch=32, steps=50)
    >>> task(Setting("adam", lr=0.01)).loss < 0.69
    True
    """

    data: str
    model: Callable[[], nn.Module]
    batch: int
    steps: int
    start: Start | None = None
    size: float = 1.0
    disturbance: Disturbance = undisturbed
    then: str | None = None
    averaged: bool = True

    def __call__(self, setting: Setting) -> Score:
        """Train and evaluate."""
        first = SOURCES[self.data](setting.data_dir)
        second = SOURCES[self.then or self.data](setting.data_dir)
        model = started(self.model, setting, self.data, self.start, self.size)
        optimiser = setting.build(model)
        draws = seeds.generator(setting.seed, "trust", self.data, "order")
        for step in range(self.steps):
            source = first if 2 * step < self.steps else second
            inputs, labels = source.batch(torch.randint(source.samples, (self.batch,), generator=draws))
            times, factor = self.disturbance(step)
            if times != 1:  # characters cannot be multiplied
                inputs = inputs * times
            descend(model, optimiser, partial(_times_entropy, factor, model, inputs, labels))
        with baselines.averaged(optimiser) if self.averaged else nullcontext():
            return judged(model, second.held_out)


def judged(model: nn.Module, held_out: Batch) -> Score:
    """The cross-entropy and the largest logit on held-out samples."""
    with torch.no_grad():
        output = model(held_out[0])
        return Score(float(entropy(output, held_out[1])), float(output.abs().max()))


def _times_entropy(factor: float, model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return factor * entropy(model(inputs), labels)


TUMOURS = 455  # training rows, of 569
CLASSES = 10


def _relabelled(change: Callable[[Tensor], Tensor], held_out: Callable[[Tensor], Tensor]) -> Source:
    """The digits with other labels."""
    whole = quality.SOURCES["digits"](None)
    inputs, labels = whole.batch(torch.arange(whole.samples))
    labels = change(labels)
    return Source(lambda i: (inputs[i], labels[i]), whole.samples, (whole.held_out[0], held_out(whole.held_out[1])))


def _noisy(data_dir: str | None) -> Source:
    def half_random(labels: Tensor) -> Tensor:
        draws = seeds.generator("trust", "label noise")
        random = torch.randint(CLASSES, labels.shape, generator=draws)
        return torch.where(torch.rand(labels.shape, generator=draws) < 0.5, random, labels)

    return _relabelled(half_random, lambda labels: labels)


def _permuted(data_dir: str | None) -> Source:
    def next_class(labels: Tensor) -> Tensor:
        return (labels + 1) % CLASSES  # a permutation that changes every label

    return _relabelled(next_class, next_class)


def _tumours(data_dir: str | None) -> Source:
    """Thirty measurements of a tumour, standardised; predict whether it is benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    inputs, labels = torch.tensor(data.data).float(), torch.tensor(data.target)
    order = torch.randperm(len(inputs), generator=seeds.generator("trust", "tumours"))
    train, test = order[:TUMOURS], order[TUMOURS:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    return Source(lambda i: (inputs[train[i]], labels[train[i]]), TUMOURS, (inputs[test], labels[test]))


SOURCES: dict[str, Callable[[str | None], Source]] = {
    **quality.SOURCES,
    "digits, half of the labels random": lru_cache(_noisy),
    "digits, every label moved by one": lru_cache(_permuted),
    "tumours": lru_cache(_tumours),
}
"""By name: how to read it from a data folder; the data of the quality benchmark, and some with wrong labels."""
