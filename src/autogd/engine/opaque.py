"""Forward passes that autograd cannot show as they are: compiled ones, and those on gathered shards."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from autogd.reading.graph import Reading, read_without_numbers

__all__ = ["is_opaque", "read_uncompiled", "unsharded"]


def is_opaque(reading: Reading, parameters: Iterable[Tensor]) -> bool:
    """Whether none of the parameters was seen in an operation that tells: the graph is one compiled function."""
    return not reading.atoms and any(parameter.requires_grad for parameter in parameters)


def read_uncompiled(model: nn.Module, call: Any) -> Reading | None:
    """Read the Module behind a compiled one on tensors without numbers; None if it does not run so."""
    args, kwargs = call
    return read_without_numbers(getattr(model, "_orig_mod", model), args, kwargs)


def unsharded(model: nn.Module) -> dict[Tensor, Tensor]:
    """Under FSDP2, the gathered parameters that a forward pass used, each with the sharded one that is trained."""
    found: dict[Tensor, Tensor] = {}
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", None)
        groups = (
            getattr(state(), "_fsdp_param_groups", None) or [getattr(state(), "_fsdp_param_group", None)]
            if state
            else []
        )
        for shard in (shard for group in groups if group is not None for shard in group.fsdp_params):
            whole = getattr(shard, "_unsharded_param", None)
            if whole is not None:
                found[whole] = shard.sharded_param
    return found
