"""Where a parameter's own dimensions are, in a tensor that was made from it by views.

A dimension of such a tensor is a product of factors. A factor is a run of one of the parameter's dimensions (`dim`),
counted in steps of `stride`, or something else that a broadcast or a product brought in. So a flat buffer viewed as a
matrix, or heads that were merged into a width, are still known number by number.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "BATCH", "OTHER", "Axes", "Factor", "Picked", "aligned", "axes_of", "expanded", "own", "peeled", "permuted",
    "shape_of", "sliced", "viewed",
]  # fmt: skip

BATCH = -1  # a copy for each sample: from an expand or a repeat
OTHER = -2  # from another tensor


class Factor(NamedTuple):
    """`size` entries of the parameter's dimension `dim`, `stride` apart; of `whole` entries if the run is uneven."""

    size: int
    dim: int
    stride: int = 1
    whole: int = 0

    @property
    def extent(self) -> int:
        """How many entries of the parameter the run stands for."""
        return self.whole or self.size


Axes = tuple[tuple[Factor, ...], ...]


class Picked(NamedTuple):
    """One entry, number `entry`, of the run of entries `of` the parameter; -1 for all of them, side by side."""

    of: Factor
    entry: int


def axes_of(shape: Sequence[int]) -> Axes:
    """The axes of the parameter itself; a dimension of one number has no factors.

    >>> axes_of((3, 1))
    ((Factor(size=3, dim=0, stride=1, whole=0),), ())
    """
    return tuple((Factor(n, i),) if n > 1 else () for i, n in enumerate(shape))


def shape_of(axes: Axes) -> tuple[int, ...]:
    """The tensor's shape."""
    return tuple(math.prod(f.size for f in dim) for dim in axes)


def own(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors that are of the parameter."""
    return tuple(f for f in factors if f.dim >= 0)


def peeled(dim: Sequence[Factor], count: int) -> tuple[tuple[Factor, ...], tuple[Factor, ...]] | None:
    """Split a dimension into `count` × the rest; None if it does not split so.

    >>> peeled((Factor(6, 0),), 3)
    ((Factor(size=3, dim=0, stride=2, whole=0),), (Factor(size=2, dim=0, stride=1, whole=0),))
    """
    head: list[Factor] = []
    rest = list(dim)
    while count > 1:
        if not rest:
            return None
        first = rest.pop(0)
        if count % first.size == 0:
            head.append(first)
            count //= first.size
        elif first.size % count == 0 and not first.whole:
            inner = first.size // count
            head.append(Factor(count, first.dim, first.stride * inner))
            rest.insert(0, Factor(inner, first.dim, first.stride))
            count = 1
        else:
            return None
    return tuple(head), tuple(rest)


def viewed(axes: Axes, shape: Sequence[int]) -> Axes | None:
    """The axes after a reshape; None if it mixes dimensions so that no factor is left whole.

    >>> viewed(axes_of((6,)), (3, 2))
    ((Factor(size=3, dim=0, stride=2, whole=0),), (Factor(size=2, dim=0, stride=1, whole=0),))
    """
    if math.prod(shape) == 0:
        return None
    rest: tuple[Factor, ...] = tuple(f for dim in axes for f in dim)
    result = []
    for size in shape:
        split = peeled(rest, size)
        if split is None:
            return None
        head, rest = split
        result.append(head)
    return None if rest else tuple(result)


def permuted(axes: Axes, order: Sequence[int]) -> Axes:
    """The axes after a permute or a transpose."""
    return tuple(axes[i] for i in order)


def expanded(axes: Axes, shape: Sequence[int], brought: int = BATCH) -> Axes:
    """The axes after a broadcast to `shape`; what is new in it is a factor `brought`."""
    added = len(shape) - len(axes)
    dims = ((),) * added + axes
    return tuple(dim or ((Factor(n, brought),) if n > 1 else ()) for dim, n in zip(dims, shape, strict=True))


def aligned(axes: Axes, shape: Sequence[int]) -> Axes:
    """The axes in a result of `shape`, after an operation by elements with another tensor."""
    return expanded(axes, shape, OTHER)


def sliced(axes: Axes, dim: int, start: int, step: int, size: int) -> tuple[Axes, tuple[Picked, ...]] | None:
    """The axes after a slice, and what was picked if the slice is one of equal parts.

    >>> sliced(axes_of((6, 4)), 0, start=2, step=1, size=2)[1]
    (Picked(of=Factor(size=3, dim=0, stride=2, whole=0), entry=1),)
    """
    before = math.prod(f.size for f in axes[dim])
    if size == before:
        return axes, ()
    kept: tuple[Factor, ...] | None = None
    picked: tuple[Factor, ...] = ()
    index = 0
    if step == 1 and before % size == 0 and start % size == 0:
        split = peeled(axes[dim], before // size)
        if split is not None:
            (picked, kept), index = split, start // size
    elif step > 1 and size * step == before and start < step:
        split = peeled(axes[dim], size)
        if split is not None:
            (kept, picked), index = split, start
    if kept is None:
        if len(axes[dim]) != 1:
            return None
        (f,) = axes[dim]
        # an uneven part, in units that still divide it: two of three matrices
        unit = math.gcd(before, size, start) if step == 1 and not f.whole else 1
        many = Factor(size // unit, f.dim, f.stride * unit, f.extent // unit if f.dim >= 0 else 0)
        kept, picked = (many, *((Factor(unit, f.dim, f.stride),) if unit > 1 else ())), ()
    # of several picked factors one index cannot be told apart; they stand for one
    return (*axes[:dim], kept, *axes[dim + 1 :]), tuple(Picked(f, index) for f in own(picked))
