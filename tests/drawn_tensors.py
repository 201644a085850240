"""Tensors of every atom, in every layout, for hypothesis to draw."""

import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from autogd.engine.library import library
from autogd.geometry.atoms import (
    Atom,
    Rule,
    bias,
    bilinear,
    embedding,
    gain,
    kernel,
    matrix,
    on_real_view,
    scalars,
    token,
)

needs_library = pytest.mark.skipif(library() is None, reason="the passes in C are not compiled here")
small = st.integers(1, 5)
LAYOUTS = ("contiguous", "channels last", "reversed", "gaps", "mixed")


def convolution(groups: int, transposed: bool) -> nn.Module:
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    return make(groups, groups, 1, groups=groups)


def _complex(rule: Rule, *shape: int) -> Atom:
    weight = torch.zeros(shape, dtype=torch.complex64)
    return on_real_view(rule(weight, None), weight)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[tuple[int, ...], Atom]:
    a, b, c, d, stack = (draw(small) for _ in range(5))
    empty = torch.zeros
    return draw(
        st.sampled_from(
            [
                ((a, b), matrix(empty(a, b))),
                ((300, 41), matrix(empty(300, 41))),  # large enough to be measured on its own
                ((stack * a, b), matrix(empty(stack * a, b), stack=stack)),
                ((a, stack * b), matrix(empty(a, stack * b), stack=stack, transposed=True)),
                ((a, b), matrix(empty(a, b), transposed=True)),
                ((a, b, c, d), kernel(empty(a, b, c, d))),
                ((64, 80, 5, c), kernel(empty(64, 80, 5, c))),  # large enough for several pieces
                ((stack * a, b, c, d), kernel(empty(stack * a, b, c, d), convolution(stack, False))),
                ((stack * a, b, c, d), kernel(empty(stack * a, b, c, d), convolution(stack, True))),
                ((a, b, c), kernel(empty(a, b, c))),
                ((a, b, c, d, 2), kernel(empty(a, b, c, d, 2))),
                ((a, b, c), bilinear(empty(a, b, c))),
                ((a, b), embedding(empty(a, b))),
                ((1, a, b), token(empty(1, a, b))),
                ((a,), bias(empty(a))),
                ((stack * a,), bias(empty(stack * a), stack=stack)),
                ((a, b), gain(empty(a, b))),
                ((), scalars(torch.tensor(1.0))),
                ((a, b, 2), _complex(matrix, a, b)),
                ((a, b, c, 2), _complex(kernel, a, b, c)),
                ((a, 2), _complex(bias, a)),
            ]
        )
    )


def laid_out(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(shape, dtype=torch.float64).to(dtype)
    if layout == "channels last" and len(shape) == 4:
        return values.to(memory_format=torch.channels_last)
    if layout == "reversed":
        back = tuple(reversed(range(len(shape))))
        return values.permute(back).contiguous().permute(back)
    if layout == "gaps" and shape:
        return torch.stack([values, values], dim=-1)[..., 0]
    return values


def viewable(tensor: torch.Tensor, atom: Atom) -> bool:
    try:
        atom.cut(tensor)
    except RuntimeError:
        return False
    return True
