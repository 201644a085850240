"""A finding, how the model and the loss of a set-up are called, and the checks of the loss."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Finding", "forward_of", "loss_of", "not_scalar", "summed", "taken_twice", "tensor_of"]

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Finding:
    """One problem, the evidence, and the remedy; a harmless one needs none."""

    kind: str
    seen: str
    remedy: str
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.seen}. {self.remedy}."


def forward_of(model: nn.Module, batch: Any) -> Any:
    """The model's output on a batch."""
    return model(**batch) if isinstance(batch, Mapping) else model(batch[0])


def loss_of(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> Tensor:
    """The loss of a batch as one number; the mean if `loss_fn` returns several."""
    output = forward_of(model, batch)
    loss = loss_fn(output) if isinstance(batch, Mapping) else loss_fn(output, batch[1])
    return loss.mean() if loss.dim() else loss


def tensor_of(output: Any) -> Tensor:
    """The first floating-point tensor in a model's output."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, Mapping) else output
    return next(tensor_of(value) for value in values if value is not None)


def not_scalar(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """A loss of more than one number, as with reduction='none'."""
    with torch.no_grad():
        output = forward_of(model, batch)
        loss = loss_fn(output) if isinstance(batch, Mapping) else loss_fn(output, batch[1])
    if loss.dim() == 0:
        return []
    seen = f"it has {loss.numel()} numbers, of shape {tuple(loss.shape)}, and training needs one"
    return [Finding("loss", seen, "Average it: reduction='mean', or loss.mean()")]


def summed(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """A loss that is summed over the batch instead of averaged."""
    if isinstance(batch, Mapping) or len(batch[0]) < 4:
        return []
    trial = copy.deepcopy(model)
    half = len(batch[0]) // 2
    with torch.no_grad():
        whole, *halves = [
            float(loss_of(trial, loss_fn, [part[rows] for part in batch]))
            for rows in (slice(0, 2 * half), slice(0, half), slice(half, 2 * half))
        ]
    if whole == 0 or not abs(sum(halves) / whole - 1) <= 0.2:
        return []
    return [Finding("loss", "it doubles with the size of the batch: it is a sum", "Average it: reduction='mean'")]


@torch.no_grad()
def taken_twice(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """A model that ends in softmax or sigmoid, with a loss that applies it again."""
    if isinstance(batch, Mapping):
        return []
    output = tensor_of(forward_of(model, batch)).detach()
    if not output.is_floating_point() or output.numel() == 0 or output.min() < 0 or output.max() > 1:
        return []
    kind = "softmax twice"
    for dim in {1, output.dim() - 1} if output.dim() > 1 else ():
        if output.shape[dim] > 1 and _near(output.float().sum(dim), 1.0) and _ignores_shift(loss_fn, output, batch[1]):
            seen = "the model's outputs are probabilities (they sum to one), and the loss takes a softmax of them"
            return [Finding(kind, seen, "Leave the softmax out of the model: cross-entropy takes the logits")]
    if _is_logistic(loss_fn, output, batch[1]):
        seen = "the model's outputs lie between 0 and 1, and the loss takes a sigmoid of them"
        return [Finding("sigmoid twice", seen, "Leave the sigmoid out of the model: this loss takes the logits")]
    return []


def _ignores_shift(loss_fn: Callable[..., Tensor], output: Tensor, target: Any) -> bool:
    """Whether adding a constant to all outputs changes nothing, as with a softmax."""
    try:
        before, after = (loss_fn(output + shift, target).mean() for shift in (0.0, 3.0))
    except (ValueError, RuntimeError, TypeError):
        return False
    return bool(before.abs() > TOLERANCE) and bool((after - before).abs() <= TOLERANCE * before.abs())


def _is_logistic(loss_fn: Callable[..., Tensor], output: Tensor, target: Any) -> bool:
    """Whether the loss applies a sigmoid to logits."""
    if not isinstance(target, Tensor) or target.shape != output.shape or not target.is_floating_point():
        return False
    theirs = loss_fn(output, target).mean()
    ours = nn.functional.binary_cross_entropy_with_logits(output, target)
    return bool((theirs - ours).abs() <= TOLERANCE * ours.abs())


def _near(values: Tensor, goal: float) -> bool:
    return bool((values - goal).abs().max() <= TOLERANCE)
