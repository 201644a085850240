"""Hooks on a user's Module: `Watch` reads its first forward pass, `Reminder` warns of evaluation without averages."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from autogd.reading.graph import Roots, roots_of

__all__ = ["Reminder", "Watch", "WeakHook"]

STEPS = 10  # after fewer steps, the average is not much better


class WeakHook:
    """A hook that calls a method and holds its owner weakly; a copy of the hook calls nothing."""

    def __init__(self, owner: object = None, method: str = "") -> None:
        self.owner = None if owner is None else weakref.ref(owner)  # not a WeakMethod, which torch.compile cannot trace
        self.method = method

    def __call__(self, module: nn.Module, *call: Any) -> None:
        """Call the method, if its owner still lives."""
        owner = None if self.owner is None else self.owner()
        if owner is not None:
            getattr(owner, self.method)(module, *call)

    def __reduce__(self) -> tuple[Any, ...]:
        return WeakHook, ()


class Watch:
    """Hooks on a Module that hand the first forward pass with gradients to `read`.

    A trainer may call a method of the module instead of its forward. `finish`, before the first step, then reads the
    last outputs of its parts. The hooks hold no optimiser, and no tensors but the arguments of the last compiled pass.
    In a copy of the Module, and in one that was saved whole, they do nothing.

    Args:
        model: to watch.
        read: called with the model, the roots of its output, and its arguments.

    >>> found = []
    >>> model = nn.Linear(2, 1)
    >>> class Reader:
    ...     def read(self, model, roots, call):
    ...         found.append(len(roots))
    >>> reader = Reader()
    >>> watch = Watch(model, reader.read)
    >>> _ = model(torch.ones(1, 2)), model(torch.ones(1, 2))
    >>> found
    [1]
    """

    def __init__(self, model: nn.Module, read: Callable[[nn.Module, Roots, Any], None]) -> None:
        self._model = weakref.ref(model)
        self._read = weakref.WeakMethod(read)
        self._parts: dict[int, Roots] = {}
        self._call: Any = None  # the arguments of a compiled pass
        hooks = [(model, "whole_passed"), *((part, "part_passed") for part in _parts_of(model))]
        self._handles: list[RemovableHandle] = [
            part.register_forward_hook(WeakHook(self, passed), with_kwargs=True) for part, passed in hooks
        ]

    def whole_passed(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """A forward pass of the model is over."""
        if torch.compiler.is_compiling():
            self._call = args, kwargs  # compiled code sets it in every pass
        elif roots := _readable(output):
            self._done(roots, (args, kwargs))

    def part_passed(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """A forward pass of a part of the model is over."""
        if roots := _readable(output):
            self._parts[id(module)] = roots

    def finish(self) -> None:
        """Read the parts, if the model itself was not called, or what is behind a compiled pass.

        After a compiled pass the hooks stay: without them, it would be compiled anew.
        """
        model, read = self._model(), self._read()
        if self._parts:
            self._done(Roots(root for roots in reversed(self._parts.values()) for root in roots), None)
        elif self._call is not None and model is not None and read is not None:
            read(model, Roots(), self._call)
            self._call = None

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parts.clear()
        self._call = None

    def _done(self, roots: Roots, call: Any) -> None:
        model, read = self._model(), self._read()
        self.remove()
        if model is not None and read is not None:
            read(model, roots, call)


class Reminder:
    """A hook of a Module: warns once if the Module is evaluated, outside of `averaged()`, after it was trained.

    It is removed once it has warned, or once the averages are used. It leaves nothing in copies or files.

    >>> model = nn.Linear(2, 1)
    >>> reminder = Reminder(model)
    >>> reminder.steps = 10
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     _ = model.eval()(torch.ones(1, 2)), model(torch.ones(1, 2))
    >>> len(caught)
    1
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        self.steps = 0
        self._handle = None if module is None else module.register_forward_pre_hook(WeakHook(self, "evaluated"))

    def dismiss(self) -> None:
        """Take the hook off."""
        if self._handle is not None:
            self._handle.remove()

    def evaluated(self, module: nn.Module, inputs: Any) -> None:
        """Called with the module: warn if this is an evaluation after enough steps."""
        if module.training or torch.compiler.is_compiling() or self.steps < STEPS:
            return
        self.dismiss()
        warnings.warn(
            "the model is evaluated with the weights in training; the averaged ones are better: evaluate and save "
            "inside `with optimiser.averaged():`, or between optimiser.eval() and optimiser.train()",
            stacklevel=6,
        )


def _readable(output: Any) -> Roots | None:
    """The roots of an output that has a graph to read; none while torch compiles."""
    return None if torch.compiler.is_compiling() or not torch.is_grad_enabled() else roots_of(output)


def _parts_of(model: nn.Module) -> Iterator[nn.Module]:
    """The parts that have a forward of their own: children, and what lists of them hold."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts_of(child)
        elif any(True for _ in child.parameters()):
            yield child
