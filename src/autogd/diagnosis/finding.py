"""A finding, and how the model and the loss of a set-up are called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["Finding", "forward_of", "loss_of", "tensor_of"]


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
