"""η where tools look for a learning rate: `scheduler.get_last_lr()`."""

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from autogd.integrations.shipping import rates_taken

__all__ = ["DerivedRate"]


class DerivedRate(LRScheduler):
    """A scheduler that changes nothing, and returns the derived learning rate from `get_last_lr()`.

    Hugging Face's Trainer makes a schedule of its own if it gets none, and logs the rate of its scheduler.

    >>> import torch
    >>> from autogd import AGD
    >>> model = torch.nn.Linear(2, 1)
    >>> optimiser = AGD(model)
    >>> scheduler = DerivedRate(optimiser)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimiser.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr() == [optimiser.learning_rate.item()]
    True
    """

    def __init__(self, optimiser: Optimizer) -> None:
        super().__init__(optimiser)

    def get_lr(self) -> list[float | Tensor]:
        """The groups' multipliers, unchanged."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float | Tensor]:
        """The rate of each group's last step."""
        return [float(rate) for rate in rates_taken(self.optimizer)]
