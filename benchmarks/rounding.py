"""How large does rounding make a gradient that should be zero, relative to its layer's weight?

Prints the largest ratio seen, in units of eps, for three biases without effect and three types. AGD's noise floor must
be above it. Run: python benchmarks/rounding.py
"""

import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.geometry.norms import rounding


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def convolutional(width):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 4, 3))


def dense(width):
    return nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 4))


CASES = {
    "bias before batch norm, dense": (dense, lambda m: (m[0].bias, slice(None)), (256, 16)),
    "bias before batch norm, conv": (convolutional, lambda m: (m[0].bias, slice(None)), (32, 3, 16, 16)),
    "key bias of attention": (Attention, lambda m: (m.attention.in_proj_bias, slice(64, 128)), (16, 32, 64)),
}


def largest_ratio(make, pick, shape, dtype, steps=100, width=64):
    torch.manual_seed(0)
    model = initialise_(make(width).to(dtype))
    optimiser = AGD(model)
    worst = 0.0
    for _ in range(steps):
        optimiser.zero_grad()
        out = model(torch.randn(shape).to(dtype))
        (out - torch.randn(out.shape).to(dtype)).float().square().mean().backward()
        parameter, part = pick(model)
        weight = optimiser._architecture.weights[parameter]
        sizes = [optimiser._architecture.atoms[p].scale for p in (parameter, weight)]
        # the matching part: the same rows of a packed tensor, otherwise the whole tensor
        beside = weight.grad.double()[part] if weight.shape[0] == parameter.shape[0] else weight.grad.double()
        noise = sizes[0] * parameter.grad.double()[part].norm() / (sizes[1] * beside.norm())
        worst = max(worst, float(noise))
        optimiser.step()
    return worst / torch.finfo(dtype).eps


if __name__ == "__main__":
    for name, (make, pick, shape) in CASES.items():
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            floor = rounding(dtype, beside_own_weight=True) / torch.finfo(dtype).eps
            seen = largest_ratio(make, pick, shape, dtype)
            print(f"{name:32} {dtype!s:16} seen {seen:8.3f} eps, floor {floor:g} eps")
