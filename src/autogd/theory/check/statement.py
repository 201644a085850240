"""The class of a statement, and helpers that several statements use."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from autogd.theory.check.draws import Draw, draw, orthogonal
from autogd.theory.s1_losses import square
from autogd.theory.s2_linearisation import Linearisation, linearise

__all__ = ["ROUNDING", "Sides", "Statement", "about", "assuming", "equal", "parts_of", "seeded", "statement"]

ROUNDING = 1e-9
"""Tolerance for float64 rounding; the largest error seen is a hundred times smaller."""


@dataclass(frozen=True)
class Sides:
    """Both sides on one draw, and the draw as text."""

    left: float
    right: float
    drawn: str


@dataclass(frozen=True)
class Statement:
    """One claim: left ≤ right on every draw, if it `holds`.

    Args:
        name: the paper's name, and the form.
        claim: in short.
        observe: from a seed to both sides.
        holds: whether it is expected to hold.
        share: fraction of the draws to use; less than 1 for claims about whole runs.
    """

    name: str
    claim: str
    observe: Callable[[int], Sides]
    holds: bool = True
    share: float = 1.0


def statement(
    name: str, claim: str, *, holds: bool = True, share: float = 1.0
) -> Callable[[Callable[[int], Sides]], Statement]:
    """Decorator that makes a function a statement.

    >>> @statement("Even", "2 seed ≤ 2 seed")
    ... def even(seed):
    ...     return Sides(2 * seed, 2 * seed, "nothing drawn")
    >>> even.observe(3).left
    6
    """
    return lambda observe: Statement(name, claim, observe, holds, share)


def about(problem: Draw, seed: int) -> str:
    """A draw as text.

    >>> about(draw(1), 1).startswith("seed 1: widths")
    True
    """
    widths = [problem.weights[0].shape[1], *(w.shape[0] for w in problem.weights)]
    return f"seed {seed}: widths {'-'.join(map(str, widths))}, batch {len(problem.inputs)}, eta {problem.eta:.3g}"


def equal(a: Tensor, b: Tensor, drawn: str) -> Sides:
    """a = b up to rounding, as two sides.

    >>> equal(torch.ones(2), torch.ones(2), "ones").left
    0.0
    """
    scale = 1 + float(torch.maximum(a.abs().max(), b.abs().max()))
    return Sides(float((a - b).abs().max()) / scale, ROUNDING, drawn)


def parts_of(problem: Draw) -> Linearisation:
    """Proposition 1 on a draw, with square loss.

    >>> float(parts_of(draw(1)).before) > 0
    True
    """
    return linearise(problem.model, square, problem.inputs, problem.targets, problem.updates)


def assuming(seed: int) -> tuple[Draw, Linearisation]:
    """A draw at Prescription 1 on which Assumption 1 holds exactly.

    >>> bool(assuming(1)[1].model_term.abs() < 1e-12)
    True
    """
    problem = draw(seed)
    while problem.targets.shape[1] < 2:
        seed += 100_003
        problem = draw(seed)
    problem = orthogonal(problem, seeded(seed))
    return problem, parts_of(problem)


def seeded(seed: int) -> torch.Generator:
    """A random generator with this seed.

    >>> seeded(3).initial_seed()
    3
    """
    return torch.Generator().manual_seed(seed)
