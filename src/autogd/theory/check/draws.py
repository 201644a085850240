"""Random networks, data and updates in float64, with or without Prescription 1, for `check`."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from autogd.reading.initialise import semi_orthogonal
from autogd.theory.s1_bregman import directional
from autogd.theory.s1_losses import square
from autogd.theory.s2_linearisation import linearise

__all__ = ["Draw", "draw", "fully_connected", "on_sphere", "opposed", "orthogonal"]


@dataclass(frozen=True)
class Draw:
    """A network of Definition 10, a batch, and an update of relative size η."""

    model: nn.Sequential
    inputs: Tensor
    targets: Tensor
    updates: dict[str, Tensor]
    eta: float

    @property
    def weights(self) -> list[Tensor]:
        """W_1 … W_L."""
        return [parameter.detach() for parameter in self.model.parameters()]

    @property
    def norms(self) -> list[float]:
        """‖W_k‖_* of every layer."""
        return [float(torch.linalg.matrix_norm(w, ord=2)) for w in self.weights]

    @property
    def update_norms(self) -> list[float]:
        """‖ΔW_k‖_* of every layer."""
        return [float(torch.linalg.matrix_norm(u, ord=2)) for u in self.updates.values()]


def fully_connected(widths: list[int]) -> nn.Sequential:
    """Definition 10: linear layers without bias and plain relu between them, in float64.

    >>> len(fully_connected([4, 8, 2]))
    3
    """
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b, bias=False, dtype=torch.float64), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def on_sphere(rows: int, width: int, generator: torch.Generator) -> Tensor:
    """Random vectors of norm √width, the size that Prescription 1 gives inputs and targets.

    >>> on_sphere(1, 4, torch.Generator().manual_seed(0)).norm()
    tensor(2., dtype=torch.float64)
    """
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True) * math.sqrt(width)


def draw(seed: int, *, prescribed: bool = True, deepest: int = 5, widest: int = 8) -> Draw:
    """A random problem: depth, widths, batch, weights, data and update.

    Weights are alternately semi-orthogonal and Gaussian. If `prescribed`, they are scaled to √(d_k/d_(k−1)), and
    updates to η/L of that. Otherwise their sizes, and those of inputs and targets, are between a third and three times
    as large.

    >>> problem = draw(3)
    >>> max(abs(n - math.sqrt(w.shape[0] / w.shape[1])) for n, w in zip(problem.norms, problem.weights)) < 1e-12
    True
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

    depth, batch = 1 + int(uniform(0, deepest)), 1 + int(uniform(0, 6))
    widths = [1 + int(uniform(0, widest)) for _ in range(depth + 1)]
    eta = math.exp(uniform(math.log(0.01), math.log(2.0)))
    model, updates = fully_connected(widths), {}
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        target = math.sqrt(shape[0] / shape[1])
        if seed % 2:
            weight = semi_orthogonal(1, shape[0], shape[1], torch.float64, generator)[0]
        else:
            weight = torch.randn(shape, generator=generator, dtype=torch.float64)
        update = torch.randn(shape, generator=generator, dtype=torch.float64)
        size, step = (target, target * eta / depth) if prescribed else (target * uniform(0.3, 3), uniform(0, eta))
        parameter.data.copy_(weight * (size / torch.linalg.matrix_norm(weight, ord=2)))
        updates[name] = update * (step / torch.linalg.matrix_norm(update, ord=2))
    inputs, targets = on_sphere(batch, widths[0], generator), on_sphere(batch, widths[-1], generator)
    if not prescribed:
        inputs, targets = inputs * uniform(0.3, 3), targets * uniform(0.3, 3)
    return Draw(model, inputs, targets, updates, eta)


def opposed(problem: Draw) -> Draw:
    """The same problem with every target opposite to the output: y = −f √d_L/‖f‖, the worst possible target.

    >>> problem = opposed(draw(3))
    >>> bool(((problem.model(problem.inputs) * problem.targets).sum(1) <= 0).all())
    True
    """
    output = problem.model(problem.inputs).detach()
    norms = output.norm(dim=1, keepdim=True)
    # an output of zero has no opposite: keep its target
    aimed = torch.where(norms > 0, -output / norms * math.sqrt(output.shape[1]), problem.targets)
    return replace(problem, targets=aimed)


def orthogonal(problem: Draw, generator: torch.Generator) -> Draw:
    """The same problem with targets that make Assumption 1 hold exactly, for square loss, each of norm √d_L.

    The residual f − y of every sample is orthogonal to the model's linearisation error on that sample. This needs two
    outputs, and weights at Prescription 1, so that ‖f‖ ≤ √d_L.

    >>> problem = orthogonal(draw(5), torch.Generator().manual_seed(0))
    >>> parts = linearise(problem.model, square, problem.inputs, problem.targets, problem.updates)
    >>> bool(parts.model_terms.abs().max() < 1e-12)
    True
    """
    parts = linearise(problem.model, square, problem.inputs, problem.targets, problem.updates)
    error = parts.delta - _linear_part(problem)
    outputs = parts.output.shape[1]
    if outputs < 2:
        raise ValueError("orthogonal: one output leaves no right angle; draw a problem with more")
    v = torch.randn(parts.output.shape, generator=generator, dtype=torch.float64)
    square_norm = error.square().sum(1, keepdim=True)
    v = v - torch.where(square_norm > 0, (v * error).sum(1, keepdim=True) / square_norm * error, 0)
    v = v / v.norm(dim=1, keepdim=True)
    # ‖f + t v‖² = d_L, the larger root
    along = (parts.output * v).sum(1, keepdim=True)
    rest = outputs - parts.output.square().sum(1, keepdim=True)
    t = -along + (along.square() + rest.clamp(min=0)).sqrt()
    return replace(problem, targets=parts.output + t * v)


def _linear_part(problem: Draw) -> Tensor:
    weights = {name: p.detach() for name, p in problem.model.named_parameters()}
    return directional(
        lambda w: torch.func.functional_call(problem.model, w, (problem.inputs,)), weights, problem.updates
    )[1]
