"""How many layers compound: the longest run of layers without a norm layer among them."""

from collections.abc import Sequence

from torch import nn

from autogd.geometry.catalogue import Role

__all__ = ["chain_of"]


def chain_of(model: nn.Module, roles: Sequence[Role]) -> float:
    """D, the longest run of layers, in the order of registration, that no norm layer interrupts.

    In a plain chain relative changes multiply (deep relative trust). A norm layer brings its input back to its size, so
    what came before it does not multiply with what comes after. Packed maps stand side by side and are one layer here.

    >>> from autogd.geometry.catalogue import read_roles
    >>> plain = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    >>> normed = nn.Sequential(*plain, nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
    >>> [chain_of(model, read_roles(model)) for model in (plain, normed)]
    [3.0, 3.0]
    """
    shares = {role.parameter: role.atom.depth_share for role in roles}
    longest = run = 0.0
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            run = 0.0
            continue
        run += sum(shares.get(parameter, 0.0) for parameter in module.parameters(recurse=False))
        longest = max(longest, run)
    return longest
