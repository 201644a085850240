"""How many layers compound: the longest run of layers without a norm layer among them."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from autogd.reading.catalogue import Role

__all__ = ["Runs", "joined", "runs_of"]


class Runs(NamedTuple):
    """Runs of layers without a norm layer among them: before the first norm layer, the longest, after the last."""

    first: float
    longest: float
    last: float
    broken: bool  # whether there is a norm layer


def runs_of(model: nn.Module, roles: Sequence[Role]) -> Runs:
    """The runs of a model, which may be one stage of several, in the order of registration.

    D is the longest. In a plain chain relative changes multiply (deep relative trust). A norm layer brings its input
    back to its size, so what came before it does not multiply with what comes after. Packed maps are one layer here.

    >>> from autogd.reading.catalogue import read_roles
    >>> plain = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    >>> normed = nn.Sequential(*plain, nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
    >>> [runs_of(model, read_roles(model)).longest for model in (plain, normed)]
    [3.0, 3.0]
    """
    shares = {role.parameter: role.atom.depth_share for role in roles}
    runs = [0.0]
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            runs.append(0.0)
            continue
        runs[-1] += sum(shares.get(parameter, 0.0) for parameter in module.parameters(recurse=False))
    return Runs(runs[0], max(runs), runs[-1], len(runs) > 1)


def joined(stages: Sequence[Runs]) -> float:
    """D of stages one after the other: a run may go on from one to the next.

    >>> joined([Runs(1, 2, 2, True), Runs(3, 3, 3, False), Runs(1, 4, 1, True)])
    6
    """
    longest = run = 0.0
    for stage in stages:
        run += stage.first
        longest = max(longest, run, stage.longest)
        run = stage.last if stage.broken else run
    return longest
