"""Put every atom at its target size."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from autogd.geometry.atom import Atom
from autogd.geometry.catalogue import read_roles
from autogd.geometry.norms import accumulation_dtype

__all__ = ["initialise_", "semi_orthogonal"]


Model = TypeVar("Model", bound=nn.Module)


def initialise_(model: Model, generator: torch.Generator | None = None) -> Model:
    """Put every parameter at the size of Prescription 1, in place, and return the model.

    Matrices and kernel taps become random semi-orthogonal matrices at their target size. Numbers are drawn on the
    generator's device (the CPU without one), so that a seed gives the same weights whatever device the model is on.
    Skip this when fine-tuning: it overwrites the weights.

    >>> model = initialise_(nn.Linear(8, 2, bias=False))
    >>> bool(torch.allclose(model.weight @ model.weight.T, torch.eye(2) / 4, atol=1e-6))
    True
    """
    with torch.no_grad():
        for role in read_roles(model):
            _start(role.parameter, role.atom, generator)
        for module in model.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0  # what stands for "nothing" stays nothing
    return model


def semi_orthogonal(
    parts: int, fan_out: int, fan_in: int, dtype: torch.dtype, generator: torch.Generator | None
) -> Tensor:
    """A batch of uniformly random matrices whose rows, or columns if those are fewer, are orthonormal.

    >>> q = semi_orthogonal(1, 3, 5, torch.float64, None)[0]
    >>> bool(torch.allclose(q @ q.T, torch.eye(3, dtype=torch.float64)))
    True
    """
    device = "cpu" if generator is None else generator.device
    tall, short = max(fan_out, fan_in), min(fan_out, fan_in)
    normal = torch.randn(parts, tall, short, dtype=dtype, device=device, generator=generator)
    if short == 1:
        q = normal / torch.linalg.vector_norm(normal, dim=1, keepdim=True)
        return q if fan_out >= fan_in else q.mT
    q, r = torch.linalg.qr(normal)
    # QR fixes the signs by convention; taking R's diagonal back out makes Q uniform
    q = q * torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).unsqueeze(-2).to(dtype)
    return q if fan_out >= fan_in else q.mT


def _start(parameter: Tensor, atom: Atom, generator: torch.Generator | None) -> None:
    if hasattr(parameter, "placements"):
        raise ValueError("initialise_ takes whole parameters: call it before fully_shard")
    if parameter.is_meta or atom.start == "as it is":
        return
    if atom.start == "zeros":
        parameter.zero_()
        return
    if atom.start == "ones":
        parameter.fill_(atom.scale / parameter.numel() ** 0.5)  # one, or a row's length
        return
    dtype = accumulation_dtype(parameter.dtype)
    fresh = semi_orthogonal(atom.parts, atom.fan_out, atom.fan_in, dtype, generator) * atom.scale
    atom.cut(parameter).copy_(atom.join(fresh))
