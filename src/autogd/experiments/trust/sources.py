"""The benchmark's data: those of the quality benchmark, and some with wrong labels."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from autogd.experiments.quality import sources as quality
from autogd.experiments.quality.sources import Source
from autogd.training.seeds import generator

__all__ = ["SOURCES", "TUMOURS"]

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
        draws = generator("trust", "label noise")
        random = torch.randint(CLASSES, labels.shape, generator=draws)
        return torch.where(torch.rand(labels.shape, generator=draws) < 0.5, random, labels)

    return _relabelled(half_random, lambda labels: labels)


def _permuted(data_dir: str | None) -> Source:
    def next_class(labels: Tensor) -> Tensor:
        return (labels + 1) % CLASSES  # a permutation that changes every label

    return _relabelled(next_class, next_class)


def _tumours(data_dir: str | None) -> Source:
    """Thirty measurements of a tumour, standardised; is it benign?"""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    inputs, labels = torch.tensor(data.data).float(), torch.tensor(data.target)
    order = torch.randperm(len(inputs), generator=generator("trust", "tumours"))
    train, test = order[:TUMOURS], order[TUMOURS:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    return Source(lambda i: (inputs[train[i]], labels[train[i]]), TUMOURS, (inputs[test], labels[test]))


SOURCES: dict[str, Callable[[str | None], Source]] = {
    **quality.SOURCES,
    "digits, half of the labels random": lru_cache(_noisy),
    "digits, every label moved by one": lru_cache(_permuted),
    "tumours": lru_cache(_tumours),
}
"""How each is read from a data folder."""
