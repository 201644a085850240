"""The loss of a batch, and its accuracy if the labels are classes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from autogd import losses
from autogd.data import Task
from autogd.training.config import Config

__all__ = ["Objective", "accuracy", "choose", "classes_last", "objective"]

Objective = Callable[[Tensor, Tensor], Tensor]
"""From outputs and labels to a loss, averaged over the batch."""


def choose(config: Config, task: Task) -> str:
    """The name of the loss: as configured, or the square loss for float labels and cross-entropy for integers.

    >>> from autogd.data import as_task
    >>> pair = torch.randn(6, 4), torch.randn(6)
    >>> choose(Config(data="mine:load"), as_task("mine:load", (pair, pair)))
    'square'
    """
    numbers = task.test.batch(torch.tensor([0]))[1].is_floating_point()
    if numbers and config.loss == "cross-entropy":
        raise ValueError(f"loss: cross-entropy needs integer labels, and those of {config.data} are floats; use square")
    return config.loss or ("square" if numbers else "cross-entropy")


def objective(loss: str, classes: int) -> Objective:
    """The loss of that name, a function of outputs and labels.

    >>> float(objective("square", 4)(torch.zeros(1, 4), torch.tensor([0])))
    0.5
    >>> float(objective("square", 1)(torch.zeros(1, 1), torch.tensor([2.0])))
    2.0
    """
    if loss in ("square", "mse"):
        factor = {"square": 1.0, "mse": 2.0}[loss]  # the published curves lack the ½ of Example 1

        def square(output: Tensor, labels: Tensor) -> Tensor:
            if labels.is_floating_point():
                output, target = output.flatten(1), labels.view(len(output), -1)
            else:
                output, target = classes_last(output, labels), losses.one_hot(labels, classes)
            return factor * losses.square_loss(_wide(output), target.to(_wide(output)))

        return square
    return lambda output, labels: nn.functional.cross_entropy(
        _wide(classes_last(output, labels)).flatten(0, -2), labels.flatten()
    )


def accuracy(output: Tensor, labels: Tensor) -> Tensor:
    """The share of labels that the largest output names; nan in a regression.

    >>> accuracy(torch.eye(2), torch.tensor([0, 0]))
    tensor(0.5000)
    """
    if labels.is_floating_point():
        return torch.tensor(math.nan, device=labels.device)
    return (classes_last(output, labels).argmax(-1) == labels).float().mean()


def classes_last(output: Tensor, labels: Tensor) -> Tensor:
    """The output with its classes in the last dimension; torch's losses have them in the second.

    >>> classes_last(torch.zeros(2, 5, 8, 8), torch.zeros(2, 8, 8)).shape
    torch.Size([2, 8, 8, 5])
    """
    return output if output.shape[:-1] == labels.shape or output.dim() < 2 else output.movedim(1, -1)


def _wide(output: Tensor) -> Tensor:
    return output if output.dtype == torch.float64 else output.float()
