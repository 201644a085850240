"""FSDP2's all-gathered weights, without importing its package."""

from collections.abc import Iterable

from torch import Tensor, nn

__all__ = ["reshard", "unsharded"]


def reshard(modules: Iterable[nn.Module]) -> None:
    """Free the weights that FSDP2 has all-gathered: they are stale."""
    for module in modules:
        for each in module.modules():
            if hasattr(each, "set_reshard_after_forward"):  # an FSDPModule
                each.reshard()  # type: ignore[operator]


def unsharded(model: nn.Module) -> dict[Tensor, Tensor]:
    """The gathered parameters that a forward pass used, each with the sharded one that is trained.

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
