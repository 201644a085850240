"""StochasticAGD in NumPy, float64, from docs/derivation.md: its steps are the optimiser's, early and late."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from autogd import StochasticAGD

KEEP = 0.9  # of the momentum
NOISE = 64 * np.finfo(np.float64).eps  # what rounding can leave of a bias's gradient, beside its weight's
POLYNOMIALS = (
    (8.350735, -24.635874, 18.253652), (3.992759, -2.975826, 0.565457),
    (3.365907, -2.523794, 0.514049), (2.343450, -1.707047, 0.422939),
)  # fmt: skip


def size_of(w):
    """Prescription 1: √(d_out/d_in); a bias acts on the constant 1."""
    return np.sqrt(w.shape[0] / (w.shape[1] if w.ndim == 2 else 1))


def shares_of(weights):
    """A layer is 1 of the depth; the bias after it is one more of its inputs, and a thirty-second at least."""
    return [1.0 if w.ndim == 2 else max(1 / 32, 1 / weights[i - 1].shape[1]) for i, w in enumerate(weights)]


def norm(x):
    return np.sqrt(np.sum(np.square(x, dtype=np.float64)))


def direction(x):
    """A vector over its norm; UVᵀ of a matrix, as near as four polynomials of its singular values bring it."""
    if x.ndim == 1:
        return x / norm(x)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    s = s / np.sum(s**8) ** (1 / 8)
    for a, b, c in POLYNOMIALS:
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ vt


class Oracle:
    """The weights, and everything that a step remembers. The last matrix is the readout."""

    def __init__(self, weights, gain=1.0, weight_decay=0.0):
        self.weights = [np.array(w) for w in weights]
        self.averages = [np.array(w) for w in weights]
        self.momenta = [np.zeros(w.shape, np.float64) for w in weights]
        self.steps, self.typical, self.gain, self.decay = 0, 0.0, gain, weight_decay
        self.recent, self.alike = [], 1.0  # the sizes of the last three

    def step(self, grads):
        shares, sizes = shares_of(self.weights), [size_of(w) for w in self.weights]
        depth = sum(shares)
        duals = [share * size * norm(g) for share, size, g in zip(shares, sizes, grads, strict=True)]
        # a bias whose gradient is rounding, beside its weight's, neither counts nor moves
        beside = [z * norm(g) for z, g in zip(sizes, grads, strict=True)]
        moves = [w.ndim == 2 or beside[i] > NOISE * beside[i - 1] for i, w in enumerate(self.weights)]
        G = sum(dual for dual, moving in zip(duals, moves, strict=True) if moving) / depth
        # the momentum before this batch, in typical gradients, as if it had not started from zero
        held = sum(s * z * norm(m) for s, z, m in zip(shares, sizes, self.momenta, strict=True)) / depth
        M = held / (1 - KEEP**self.steps) if self.steps else 1.0
        # the typical size: a mean of squares with weights s³, over no more steps than the momentum remembers
        before = self.typical if self.steps else G
        self.steps += 1
        ratio = min(G / before, 1 / (1 - KEEP))  # a batch counts for ten at most
        share = max(4 / (self.steps + 3), 1 - KEEP)
        self.typical = np.sqrt((1 - share) * before**2 + share * (ratio * before) ** 2)
        # how alike batches are: a mean over fifty of 2xy/(x² + y²), of its size and the nearest of the last three
        if len(self.recent) == 3:
            likeness = max(2 * G * y / (G**2 + y**2) for y in self.recent)
            self.alike += max(4 / (self.steps + 3), 1 / 50) * (likeness - self.alike)
        self.recent = [G, *self.recent][:3]
        # the law; all layers compound, since no norm layer is among them
        noise = (1 - min(max(M**2, 1 / 19), 1)) * 19 / 18  # the share of the momentum's square that is noise
        share = 1 - noise * (1 - np.exp((1 - self.alike**-6) * 29 / 12))
        mu = min(max(share * min(2 * M, 1 / 4), 1 / 40), np.sqrt(2) / depth)
        eta = np.log(1 + depth * mu / np.sqrt(self.steps))
        mean = min(1.0, 7 / (self.steps + 6))
        matrices = [i for i, w in enumerate(self.weights) if w.ndim == 2]
        for i, (w, g) in enumerate(zip(self.weights, grads, strict=True)):
            fresh = g * (ratio * before / G / self.typical)
            momentum = KEEP * self.momenta[i] + (1 - KEEP) * fresh
            ahead = KEEP * momentum + (1 - KEEP) * fresh
            self.momenta[i] = momentum
            move = self.gain * eta * shares[i] / depth
            keep = 1.0
            if i in matrices[:-1]:  # hidden: held at Prescription 1's size, by no more than a step
                most = sizes[i] * np.sqrt(min(w.shape))
                keep = max(min(1.0, most / norm(w)), 1 - move)
            w[...] = keep * max(0.0, 1 - move * self.decay) * w - moves[i] * move * sizes[i] * direction(ahead)
            self.averages[i] += mean * (w - self.averages[i])
        return eta, G


@pytest.mark.parametrize("settings", [{}, {"gain": 0.7, "weight_decay": 0.8}])
@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize(("layers", "taken"), [(3, 0), (9, 0), (3, 250)])
def test_the_steps_are_the_oracles(settings, foreach, layers, taken):
    widths = [6, *[9] * (layers - 1), 4]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths))).double()
    with torch.no_grad():
        model[1].weight.mul_(9)  # above Prescription 1's size by far, and a little
        model[-2].weight.mul_(1.02 * 3 / model[-2].weight.norm())
    optimiser = StochasticAGD(model, foreach=foreach, **settings)
    oracle = Oracle([p.detach().numpy() for p in model.parameters()], **settings)
    if taken:  # late in a run, means reach as far back as they ever do
        oracle.steps, oracle.typical, oracle.recent, oracle.alike = taken, 2.0, [1.5, 2.5, 0.5], 0.9
        optimiser.param_groups[0]["rate"] = torch.tensor([taken, 2.0, 1.5, 2.5, 0.5, 0.9], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    # an outlier and a fading stretch; at the end signs alternate, so that the momentum is small
    for i, size in enumerate([1.0, 2.0, 5000.0, 1.0, 1e-3, 1e-5, 1e-7, 3.0, -3.0, 3.0, -3.0, 3.0]):
        if i < 8:
            drawn = [torch.randn(p.shape, dtype=torch.float64, generator=generator) for p in model.parameters()]
        for p, g in zip(model.parameters(), drawn, strict=True):
            p.grad = size * g
        if i in (3, 4):  # rounding, and a gradient that counts however small it is
            model[1].bias.grad.mul_(1e-16)
            model[0].bias.grad.mul_(1e-12)
        eta, G = oracle.step([p.grad.numpy() for p in model.parameters()])
        optimiser.step()
        assert float(optimiser.learning_rate) == pytest.approx(eta, rel=1e-10)
        assert float(optimiser.gradient_summary) == pytest.approx(G, rel=1e-10)
        for p, w in zip(model.parameters(), oracle.weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-10)
    with optimiser.averaged():
        for p, w in zip(model.parameters(), oracle.averages, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-10)
