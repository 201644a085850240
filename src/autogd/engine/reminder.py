"""A word to those who evaluate the weights in training although there are averaged ones."""

import warnings
import weakref
from typing import Any

import torch
from torch import nn

__all__ = ["Reminder"]

STEPS = 10  # before so many, the average is not much better


class Reminder:
    """A hook of a Module: warns once if the Module is evaluated, outside of `averaged()`, after it was trained.

    It goes when it has warned, or when the optimiser is asked for its averages. It leaves nothing in copies or files.

    >>> model = nn.Linear(2, 1)
    >>> reminder = Reminder(model)
    >>> reminder.steps = 10
    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     _ = model.eval()(torch.ones(1, 2)), model(torch.ones(1, 2))
    >>> len(caught)
    1
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        self.steps = 0
        self._handle = None if module is None else module.register_forward_pre_hook(_Hook(self))

    def dismiss(self) -> None:
        """Take the hook off."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class _Hook:
    """Holds the reminder weakly, and nothing in a copy."""

    def __init__(self, reminder: Reminder | None = None) -> None:
        self.reminder = None if reminder is None else weakref.ref(reminder)

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        reminder = None if self.reminder is None else self.reminder()
        if module.training or torch.compiler.is_compiling() or reminder is None or reminder.steps < STEPS:
            return
        reminder.dismiss()
        warnings.warn(
            "the model is evaluated with the weights in training; the averaged ones are better: evaluate and save "
            "inside `with optimiser.averaged():`, or between optimiser.eval() and optimiser.train()",
            stacklevel=5,
        )

    def __deepcopy__(self, memo: Any) -> "_Hook":
        return _Hook()

    def __reduce__(self) -> Any:
        return _Hook, ()
