"""Shared by the tests of the paper's statements: random problems, and the network written as matrix products."""

import functools
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from autogd import AGD
from autogd.losses import square_loss

DTYPE = torch.float64


def over_shapes(test=None, *, examples=20, outputs=1):
    """Run a test over depth, width, batch and seed, the same examples on every machine."""
    if test is None:
        return functools.partial(over_shapes, examples=examples, outputs=outputs)
    drawn = given(
        depth=st.integers(1, 6), width=st.integers(outputs, 10), batch=st.integers(1, 6), seed=st.integers(0, 2**16)
    )
    return settings(deadline=None, max_examples=examples, derandomize=True)(drawn(test))


@dataclass
class Problem:
    weights: list[torch.Tensor]
    updates: list[torch.Tensor]
    x: torch.Tensor
    y: torch.Tensor
    eta: float
    generator: torch.Generator

    @property
    def model(self):
        layers = []
        for w in self.weights:
            layer = nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=DTYPE)
            layer.weight.data.copy_(w)
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    @property
    def named_updates(self):
        return {f"{2 * k}.weight": u for k, u in enumerate(self.updates)}

    @property
    def moved(self):
        return [w + u for w, u in zip(self.weights, self.updates, strict=True)]

    @property
    def d_out(self):
        return self.weights[-1].shape[0]


def forward(weights, x):
    """Definition 10, by hand: W_L relu(W_(L-1) … relu(W_1 x))."""
    h = x.T
    for k, w in enumerate(weights):
        h = w @ (h.clamp(min=0) if k else h)
    return h.T


def square(f, y):
    """Example 1, by hand."""
    return sum(float(((a - b) ** 2).sum()) for a, b in zip(f, y, strict=True)) / (2 * f.shape[1] * len(f))


def spectral(matrix):
    """The largest singular value, from numpy's singular value decomposition."""
    return float(np.linalg.svd(matrix.numpy(), compute_uv=False)[0])


def sphere(rows, width, generator):
    x = torch.randn(rows, width, generator=generator, dtype=DTYPE)
    return x / x.norm(dim=1, keepdim=True) * math.sqrt(width)


def make(depth, width, batch, seed, *, prescribed=True, outputs=1):
    """A network of `depth` layers with widths up to `width`; at Prescription 1, or at sizes anywhere around it."""
    g = torch.Generator().manual_seed(seed)
    # at least half as wide: relu layers of width one are mostly dead, and a dead network tests nothing
    widths = [int(torch.randint((width + 1) // 2, width + 1, (), generator=g)) for _ in range(depth)]
    widths.append(int(torch.randint(outputs, width + 1, (), generator=g)))
    eta = float(0.01 + 1.5 * torch.rand((), generator=g))
    weights, updates = [], []
    for d_in, d_out in pairwise(widths):
        w, u = torch.randn(2, d_out, d_in, generator=g, dtype=DTYPE)
        scale = math.sqrt(d_out / d_in)
        size, step = (scale, scale * eta / depth) if prescribed else (3 * torch.rand((), generator=g).item() + 0.1, eta)
        weights.append(w * size / spectral(w))
        updates.append(u * step / spectral(u))
    x, y = sphere(batch, widths[0], g), sphere(batch, widths[-1], g)
    if not prescribed:
        x = x * (0.2 + 2 * torch.rand(batch, 1, generator=g, dtype=DTYPE))
    return Problem(weights, updates, x, y, eta, g)


def aligned(depth, width, eta, seed):
    """Aligned rank-one layers with positive entries: no norm is lost."""
    g = torch.Generator().manual_seed(seed)
    widths = [int(n) for n in torch.randint(1, width + 1, (depth + 1,), generator=g)]
    units = [torch.rand(n, generator=g, dtype=DTYPE) + 0.1 for n in widths]
    units = [u / u.norm() for u in units]
    weights = [math.sqrt(len(b) / len(a)) * torch.outer(b, a) for a, b in pairwise(units)]
    x = (units[0] * math.sqrt(widths[0])).unsqueeze(0)
    y = -(units[-1] * math.sqrt(widths[-1])).unsqueeze(0)  # against the output
    return Problem(weights, [w * eta / depth for w in weights], x, y, eta, g)


def directional(problem, epsilon=1e-6):
    """∇_w f Δw of every sample, by central differences."""
    ahead = forward([w + epsilon * u for w, u in zip(problem.weights, problem.updates, strict=True)], problem.x)
    behind = forward([w - epsilon * u for w, u in zip(problem.weights, problem.updates, strict=True)], problem.x)
    return (ahead - behind) / (2 * epsilon)


def exact_directional(problem):
    """∇_w f Δw by the product rule, layer by layer, for constructions that must be exact."""
    h, dh = problem.x.T, torch.zeros_like(problem.x.T)
    for k, (w, u) in enumerate(zip(problem.weights, problem.updates, strict=True)):
        if k:
            dh, h = dh * (h > 0), h.clamp(min=0)
        dh, h = w @ dh + u @ h, w @ h
    return dh.T


def make_assumption_1_hold(problem):
    """Targets of norm √d_L whose residual is orthogonal to the model's linearisation error, for each sample."""
    f = forward(problem.weights, problem.x)
    error = forward(problem.moved, problem.x) - f - exact_directional(problem)
    targets = []
    for a, e in zip(f, error, strict=True):
        v = torch.randn(len(a), generator=problem.generator, dtype=DTYPE)
        if float(e.norm()) > 0:
            v = v - (v @ e) / (e @ e) * e
        v = v / v.norm()
        b, c = float(a @ v), float(a @ a) - len(a)
        targets.append(a + (-b + math.sqrt(max(b * b - c, 0.0))) * v)
    problem.y = torch.stack(targets)
    return problem


def train(problem, steps):
    """Objective before each step and after the last, and G of each step."""
    model = problem.model
    optimiser = AGD(model)
    objectives, summaries = [], []
    for _ in range(steps):
        optimiser.zero_grad()
        square_loss(model(problem.x), problem.y).backward()
        objectives.append(square(forward([p.detach() for p in model.parameters()], problem.x), problem.y))
        optimiser.step()
        summaries.append(float(optimiser.gradient_summary))
    objectives.append(square(forward([p.detach() for p in model.parameters()], problem.x), problem.y))
    return objectives, summaries
