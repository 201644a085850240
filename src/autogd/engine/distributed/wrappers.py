"""Torch's wrappers of a model: FSDP2's all-gathered weights; FSDP1 and ZeroRedundancyOptimizer are refused by name.

None of their packages is imported here.
"""

import sys
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

__all__ = ["refuse_flat", "refuse_zero_redundancy", "reshard", "unsharded"]


def reshard(modules: Iterable[nn.Module]) -> None:
    """Free the weights that FSDP2 has all-gathered: they are stale."""
    for module in modules:
        for each in module.modules():
            if hasattr(each, "set_reshard_after_forward"):  # an FSDPModule
                each.reshard()  # type: ignore[operator]


def unsharded(model: nn.Module) -> dict[Tensor, Tensor]:
    """The all-gathered parameters that a forward pass used, each with the sharded one that is trained.

    >>> unsharded(nn.Linear(2, 1))
    {}
    """
    found: dict[Tensor, Tensor] = {}
    for module in model.modules():
        if (state := getattr(module, "_get_fsdp_state", None)) is None:
            continue
        groups = getattr(state(), "_fsdp_param_groups", None) or [getattr(state(), "_fsdp_param_group", None)]
        for shard in (shard for group in groups if group is not None for shard in group.fsdp_params):
            whole = getattr(shard, "_unsharded_param", None)
            if whole is not None:
                found[whole] = shard.sharded_param
    return found


def refuse_flat(named: Mapping[str, Tensor], owner: str) -> None:
    """FSDP1 keeps flat pieces of several parameters; norms of matrices cannot be told from them."""
    for name, parameter in named.items():
        if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
            raise ValueError(
                f"{name}: FullyShardedDataParallel (FSDP1) has flattened this parameter, and {owner} needs its shape. "
                "Use FSDP2 instead: torch.distributed.fsdp.fully_shard(model)"
            )


def refuse_zero_redundancy(owner: str) -> None:
    """ZeroRedundancyOptimizer gives every rank other parameters; each would get a learning rate of its own."""
    name = "torch.distributed.optim.zero_redundancy_optimizer"
    if name not in sys.modules:
        return
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == name:
            raise ValueError(
                f"{owner} inside ZeroRedundancyOptimizer: every rank would see a part of the model and get a learning "
                "rate of its own. Use FSDP2 instead: torch.distributed.fsdp.fully_shard(model), then "
                f"{owner}(model); the optimiser's state is then a share on each rank, too"
            )
        frame = frame.f_back  # type: ignore[assignment]
