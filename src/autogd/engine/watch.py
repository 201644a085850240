"""Watch a Module until a forward pass with gradients can be read, then be gone."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from autogd.reading.graph import Roots, roots_of

__all__ = ["Watch"]


class Watch:
    """Hooks on a Module that hand the first forward pass with gradients to `read`.

    A module whose own forward is not called, as a trainer may call a method of it instead, is read from the last
    outputs of its parts: `finish` does that, before the first step. The hooks hold no tensors and no optimiser, and a
    copy of the Module, or one saved whole, has none that do anything.

    Args:
        model: to watch.
        read: what to do with the pass: takes the model, the roots of its output, and its arguments.

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
        hooks = [(model, _Hook(self, whole=True)), *((part, _Hook(self, whole=False)) for part in _parts_of(model))]
        self._handles: list[RemovableHandle] = [
            part.register_forward_hook(hook, with_kwargs=True) for part, hook in hooks
        ]

    def passed(self, module: nn.Module, call: Any, output: Any, whole: bool) -> None:
        """A forward pass is over, of the model or of a part of it."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        roots = roots_of(output)
        if not roots:
            return
        if whole:
            self._done(roots, call)
        else:
            self._parts[id(module)] = roots

    def finish(self) -> None:
        """Read what there is: the parts, if the model itself was not called."""
        if self._parts:
            self._done(Roots(root for roots in reversed(self._parts.values()) for root in roots), None)

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parts.clear()

    def _done(self, roots: Roots, call: Any) -> None:
        model, read = self._model(), self._read()
        self.remove()
        if model is not None and read is not None:
            read(model, roots, call)


class _Hook:
    def __init__(self, watch: Watch | None, whole: bool) -> None:
        self.watch = None if watch is None else weakref.ref(watch)
        self.whole = whole

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        watch = None if self.watch is None else self.watch()
        if watch is not None:
            watch.passed(module, (args, kwargs), output, self.whole)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (None, self.whole)


def _parts_of(model: nn.Module) -> Iterator[nn.Module]:
    """The parts that have a forward of their own: children, and what lists of them hold."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts_of(child)
        elif any(True for _ in child.parameters()):
            yield child
