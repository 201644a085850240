"""The size that each atom has now, for steps relative to weights that are already trained."""

from collections.abc import Sequence

from torch import Tensor

from autogd.geometry.norms import operator_norm
from autogd.reading.catalogue import Role, weight_of

__all__ = ["measured_sizes"]


def measured_sizes(roles: Sequence[Role]) -> dict[Tensor, float]:
    """For each parameter, the operator norm of its parts (their root mean square), instead of the target.

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
