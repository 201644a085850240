"""A loss that is not finite: stop, and name the step, the batch and the layer."""

import torch
from torch import Tensor, nn

__all__ = ["Diverged", "first_bad_layer"]


class Diverged(ValueError):  # noqa: N818 - what happened, not whose fault
    """A loss, a gradient or a weight is no longer finite."""


def first_bad_layer(model: nn.Module, inputs: Tensor) -> str | None:
    """The first layer whose weights or outputs are not finite, in the order in which they are used; None if all are.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> _ = nn.init.constant_(model[1].weight, float("nan"))
    >>> first_bad_layer(model, torch.ones(1, 1))
    '1 (its weight is not finite)'
    """
    found: list[str] = []
    hooks = []

    def look(name: str, module: nn.Module, output: object) -> None:
        if found:
            return
        for leaf, parameter in module.named_parameters(recurse=False):
            if not torch.isfinite(parameter).all():
                found.append(f"{name} (its {leaf} is not finite)")
                return
        if isinstance(output, Tensor) and not torch.isfinite(output).all():
            found.append(f"{name} (its output is not finite)")

    for name, module in model.named_modules():
        if not list(module.children()):
            hooks.append(module.register_forward_hook(lambda m, _, out, name=name: look(name or "the model", m, out)))
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
