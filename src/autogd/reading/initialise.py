"""The size of every atom: put it at its target, or measure the one that it has."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from autogd.geometry.atom import Atom
from autogd.geometry.complex import to_rows
from autogd.geometry.norms import accumulation_dtype, operator_norm
from autogd.reading.agreement import merged
from autogd.reading.catalogue import Role, read_roles, weight_of
from autogd.reading.graph import Reading, guessed_reading, read_model, streams_of

__all__ = ["initialise_", "measured_sizes", "semi_orthogonal"]


Model = TypeVar("Model", bound=nn.Module)


def initialise_(model: Model, batch: Any = None, generator: torch.Generator | None = None) -> Model:
    """Start every parameter at the size that keeps activations at unit root-mean-square, in place; returns the model.

    Matrices and kernel taps become random semi-orthogonal matrices at the size of Prescription 1. A table that is tied
    to the readout is at the readout's size, its rows in random directions. Tables that are added to such a table start
    at its size, and so do the branches of a residual stream that begins with it: a forward pass on the batch, or on a
    guess of its shape, shows them. An unrecognised parameter keeps its values.

    Numbers are drawn on the generator's device (the CPU without one), so that a seed gives the same weights whatever
    device the model is on. Skip this when fine-tuning: it overwrites the weights.

    Args:
        model: any Module.
        batch: an input, a tuple that begins with one, or a mapping of keyword arguments.
        generator: of the random numbers.

    >>> model = initialise_(nn.Linear(8, 2, bias=False))
    >>> bool(torch.allclose(model.weight @ model.weight.T, torch.eye(2) / 4, atol=1e-6))
    True
    """
    if isinstance(batch, torch.Generator):
        batch, generator = None, batch
    reading = guessed_reading(model) if batch is None else read_model(model, batch)
    roles = read_roles(model, readout=False)
    if reading is not None:
        roles = merged(roles, reading)
    tied = {role.parameter for role in roles if _is_tied_table(role, reading)}
    with torch.no_grad():
        for role in roles:
            if role.parameter in tied:
                _start_rows(role.parameter, role.atom, generator)
            elif role.source != "graph" or role.parameter.is_meta or role.parameter.any():  # your zeros stay
                _start(role.parameter, role.atom, generator)
        if reading is not None:
            _share(reading, tied)
        for module in model.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0  # the padding row stays zero
    return model


def _is_tied_table(role: Role, reading: Reading | None) -> bool:
    """Whether a parameter is both looked up and a matrix."""
    kinds = {atom.kind for atom in reading.candidates.get(role.parameter, ())} if reading is not None else set()
    return {"matrix", "embedding"} <= kinds


def _share(reading: Reading, tied: set[Tensor]) -> None:
    """Scale what is added to a tied table, and the branches of its stream, to its size.

    A tied table's rows are at the readout's size, far below one. Positions and residual branches of unit size would
    drown them.
    """
    done: set[Tensor] = set()
    for stream in streams_of(reading):
        size = max((_root_mean_square(table) for table in stream.tables if table in tied), default=None)
        if size is None:
            continue
        for table in stream.tables:
            if table not in tied and table not in done and _root_mean_square(table) > size:
                table.mul_(size / _root_mean_square(table))
        total = size * math.sqrt(len(stream.tables))
        for end in stream.ends if total < 1 else ():
            if end not in done and end not in tied:
                end.mul_(total)
        done.update(stream.tables, stream.ends)


def _root_mean_square(tensor: Tensor) -> float:
    return float(tensor.abs().float().square().mean().sqrt())


def _start_rows(parameter: Tensor, atom: Atom, generator: torch.Generator | None) -> None:
    """Rows in random directions, as long as those of a semi-orthogonal matrix are on average."""
    if hasattr(parameter, "placements"):
        raise ValueError("initialise_ takes whole parameters: call it before fully_shard")
    if parameter.is_meta:
        return
    length = atom.scale * math.sqrt(min(atom.fan_out, atom.fan_in) / atom.fan_out)
    rows = semi_orthogonal(atom.parts * atom.fan_out, 1, atom.fan_in, _drawn_in(parameter, atom), generator)
    _put(parameter, atom, rows.view(atom.parts, atom.fan_out, atom.fan_in) * length)


def _drawn_in(parameter: Tensor, atom: Atom) -> torch.dtype:
    dtype = accumulation_dtype(parameter.dtype)
    return dtype.to_complex() if atom.complex else dtype


def _put(parameter: Tensor, atom: Atom, matrices: Tensor) -> None:
    atom.cut(parameter).copy_(atom.join(to_rows(matrices) if atom.complex else matrices))


def semi_orthogonal(
    parts: int, fan_out: int, fan_in: int, dtype: torch.dtype, generator: torch.Generator | None
) -> Tensor:
    """A batch of uniformly random matrices, real or complex, whose rows, or columns if fewer, are orthonormal.

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
    signs = torch.sgn(r.diagonal(dim1=-2, dim2=-1))
    q = q * torch.where(signs == 0, 1, signs).unsqueeze(-2)
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
    fresh = semi_orthogonal(atom.parts, atom.fan_out, atom.fan_in, _drawn_in(parameter, atom), generator)
    _put(parameter, atom, fresh * atom.scale)


def measured_sizes(roles: Sequence[Role]) -> dict[Tensor, float]:
    """For each parameter, the operator norm of its parts (their root mean square), instead of the target.

    Steps on weights that are already trained are relative to it.

    A bias is relative to its layer's output, so it takes the ratio of measured to target size from its layer's weight.
    A zero tensor has no size and keeps its target: the factor B of a LoRA pair, a fresh token.

    >>> from torch import nn
    >>> from autogd.reading.catalogue import read_roles
    >>> layer = nn.Linear(4, 4, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 0.5)
    >>> [round(size, 6) for size in measured_sizes(read_roles(layer)).values()]
    [2.0]
    """
    sizes: dict[Tensor, float] = {}
    for role in roles:
        size = float(operator_norm(role.parameter, role.atom).square().mean().sqrt())
        sizes[role.parameter] = size if size > 0 else role.atom.scale
    for parameter, weight in weight_of(roles).items():
        atom = next(role.atom for role in roles if role.parameter is parameter)
        sizes[parameter] = atom.scale * sizes[weight.parameter] / weight.atom.scale
    return sizes
