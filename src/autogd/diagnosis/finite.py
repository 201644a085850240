"""Find the first value that is not finite: a sample, a weight, a layer's output or the loss."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autogd.diagnosis.finding import Finding, forward_of, loss_of

__all__ = ["bad_gradients", "first_bad_layer", "not_finite"]

KIND = "not finite"


def not_finite(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """The first of batch, weights, layers' outputs and loss that has nan or infinity.

    >>> batch = torch.tensor([[1.0, torch.nan]]), torch.ones(1, 1)
    >>> print(*not_finite(nn.Linear(2, 1), nn.functional.mse_loss, batch))
    not finite: the inputs have 1 value of 2 that is nan or infinite, the first at [0, 1]. Mend or drop these samples.
    """
    names = list(batch) if isinstance(batch, Mapping) else ["the inputs", "the targets"]
    values = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    found = [
        Finding(KIND, f"{name} have {_count(value)}", "Mend or drop these samples")
        for name, value in zip(names, values, strict=False)
        if isinstance(value, Tensor) and not torch.isfinite(value).all()
    ]
    weights = [name for name, each in model.state_dict().items() if not torch.isfinite(each).all()]
    if weights:
        found.append(Finding(KIND, f"{', '.join(weights[:4])} of the model", "Load or initialise these weights again"))
    if found:
        return found
    layer = first_bad_layer(model, lambda: forward_of(model, batch))
    if layer is not None:
        return [Finding(KIND, f"from finite inputs, {layer}", "Look for a division, log or root of zero there")]
    with torch.no_grad():
        loss = loss_of(model, loss_fn, batch)
    if not torch.isfinite(loss):
        seen = f"the model's output is finite, the loss is {float(loss)}"
        return [Finding(KIND, seen, "Look into the loss function")]
    return []


def bad_gradients(model: nn.Module) -> list[Finding]:
    """Gradients that are not finite although the loss is."""
    bad = [name for name, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    if not bad:
        return []
    remedy = "Look for a root or a norm at zero: its slope is infinite"
    return [Finding(KIND, f"the loss is finite, the gradients of {', '.join(bad[:4])} are not", remedy)]


def first_bad_layer(model: nn.Module, forward: Callable[[], Any]) -> str | None:
    """The first layer, in the order of the forward pass, with weights or outputs that are not finite; None if all are.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> _ = nn.init.constant_(model[1].weight, float("nan"))
    >>> first_bad_layer(model, lambda: model(torch.ones(1, 1)))
    '1 (its weight is not finite)'
    """
    found: list[str] = []
    hooks = []

    def inspect(name: str, module: nn.Module, output: Any) -> None:
        if found:
            return
        for leaf, parameter in module.named_parameters(recurse=False):
            if not torch.isfinite(parameter).all():
                found.append(f"{name} (its {leaf} is not finite)")
                return
        if any(not torch.isfinite(each).all() for each in _tensors(output)):
            found.append(f"{name} (its output is not finite)")

    for name, module in model.named_modules():
        # leaf modules, and the model: operations between layers show in its output
        if not list(module.children()) or module is model:
            hooks.append(
                module.register_forward_hook(lambda m, _, out, name=name: inspect(name or "the model", m, out))
            )
    try:
        with torch.no_grad():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return [tensor for value in values for tensor in _tensors(value)]


def _count(value: Tensor) -> str:
    bad = (~torch.isfinite(value)).nonzero()
    many = "values" if len(bad) > 1 else "value"
    are = "are" if len(bad) > 1 else "is"
    return f"{len(bad)} {many} of {value.numel()} that {are} nan or infinite, the first at {bad[0].tolist()}"
