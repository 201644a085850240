"""AGD's noise floor: how large rounding makes a gradient that should be zero, and which small gradients are noise.

`rounding` prints, for three biases without effect and three types, the largest gradient seen, relative to that of the
layer's weight, in units of eps. The floor must be above it. `gradients` puts each gradient of the architectures of the
zoo beside the same in float64. It prints every tensor whose dual norm is below 64 eps of the largest, with that share
and the gradient's relative error. Only biases without effect are noise (an error of about 1).
Run: python benchmarks/noise_floor.py rounding | gradients
"""

import copy
import sys

import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.experiments.zoo import ZOO
from autogd.geometry.norms import rounding
from autogd.reading.catalogue import read_roles


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


def show_rounding():
    for name, (make, pick, shape) in CASES.items():
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            floor = rounding(dtype, beside_own_weight=True) / torch.finfo(dtype).eps
            seen = largest_ratio(make, pick, shape, dtype)
            print(f"{name:32} {dtype!s:16} seen {seen:8.3f} eps, floor {floor:g} eps")


EPS = torch.finfo(torch.float32).eps


def norms(role, grad):
    return torch.linalg.vector_norm(role.atom.cut(grad.double()), dim=role.atom.inner).flatten()


def shares_and_errors(model, batch):
    """Of each tensor: its dual norm over the largest tensor's, and the relative error of its gradient."""
    wide = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in batch.items()}
    twin = copy.deepcopy(model).double()
    model(**batch).loss.backward()
    twin(**wide).loss.backward()
    exact = dict(twin.named_parameters())
    found = {}
    for role in read_roles(model):
        grad, true = role.parameter.grad, exact[role.name].grad
        if grad is not None and not grad.is_sparse and grad.any():
            error = float((grad.double() - true).norm() / grad.double().norm())
            found[role.name] = (role.atom.kind, role.atom.scale * float(norms(role, grad).sum()), error)
    largest = max(size for _, size, _ in found.values())
    return {name: (kind, size / largest, error) for name, (kind, size, error) in found.items()}


def show_gradients():
    import transformers

    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    worst = 0.0
    for name in ZOO:
        model, batch = ZOO[name](transformers)
        try:
            rows = shares_and_errors(model.train(), batch)
        except RuntimeError as error:  # not every kernel has a float64 form
            print(f"{name}: {str(error).splitlines()[0]}")
            continue
        for parameter, (kind, share, error) in rows.items():
            if share < 64 * EPS:
                print(f"{name:12} {parameter[-58:]:58} {kind:8} {share:8.1e} of the largest, error {error:.1e}")
                worst = max(worst, error if error < 0.1 else 0.0)
    print(f"largest error of what is no noise: {worst:.1e}")


if __name__ == "__main__":
    {"rounding": show_rounding, "gradients": show_gradients}[sys.argv[1]]()
