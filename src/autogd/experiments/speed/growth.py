"""How the time and memory of a step grow with the number of weights, and with the number of tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from autogd.experiments.speed.instruments import best_times, peak_bytes
from autogd.experiments.speed.step_cost import CONTENDERS, stepping, with_gradients
from autogd.experiments.speed.tensors import matrices

__all__ = ["TENSORS", "WEIGHTS", "Line", "Point", "fit", "growth"]

WEIGHTS = tuple(10**power for power in range(4, 9))  # in 16 square matrices
TENSORS = tuple(10**power for power in range(5))  # of 10 × 10


@dataclass(frozen=True)
class Point:
    """One optimiser on so many weights in so many tensors; `along` names the number that grows."""

    along: str
    optimiser: str
    weights: int
    tensors: int
    seconds: float
    peak: int  # peak bytes during a step


@dataclass(frozen=True)
class Line:
    """seconds ≈ start + each · n for n weights or tensors, by least squares on the relative error."""

    along: str
    optimiser: str
    start: float
    each: float


def growth(
    optimisers: Sequence[str],
    rounds: int,
    device: torch.device,
    weights: Sequence[int] = WEIGHTS,
    tensors: Sequence[int] = TENSORS,
    tick: Callable[[], object] = int,
) -> list[Point]:
    """Measure a step on 16 matrices of growing size, and on a growing number of tiny ones.

    >>> [point.along for point in growth(["agd"], 1, torch.device("cpu"), weights=[10_000], tensors=[1])]
    ['weights', 'tensors']
    """
    points = []
    for along, counts in (("weights", weights), ("tensors", tensors)):
        for count in counts:
            side = round((count / 16) ** 0.5)
            made = matrices(16, side, side) if along == "weights" else matrices(count, 10, 10)
            model = with_gradients(made, device)
            size, number = sum(p.numel() for p in model.parameters()), len(list(model.parameters()))
            calls = {name: stepping(CONTENDERS[name](model)) for name in optimisers}
            best = best_times(calls, rounds, device, tick)
            for name in optimisers:
                points.append(Point(along, name, size, number, best[name], peak_bytes(calls[name], device)))
    return points


def fit(points: Sequence[Point], along: str, optimiser: str) -> Line:
    """The line through an optimiser's times.

    >>> points = [Point("tensors", "agd", 0, n, 1 + 2 * n, 0) for n in (1, 10)]
    >>> line = fit(points, "tensors", "agd")
    >>> round(line.start, 3), round(line.each, 3)
    (1.0, 2.0)
    """
    chosen = [p for p in points if p.along == along and p.optimiser == optimiser]
    counts = torch.tensor([getattr(p, along) for p in chosen], dtype=torch.float64)
    times = torch.tensor([p.seconds for p in chosen], dtype=torch.float64)
    # relative errors: a microsecond matters only for short steps
    rows = torch.stack([torch.ones_like(counts), counts], dim=1) / times.unsqueeze(1)
    start, each = torch.linalg.lstsq(rows, torch.ones_like(times)).solution.tolist()
    return Line(along, optimiser, start, each)
