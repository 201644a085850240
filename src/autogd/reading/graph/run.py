"""Run a Module once to read it, and leave it as it was."""

import copy
import logging
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import Function, FunctionCtx
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import CheckpointFunction

from autogd.reading.graph.reading import Reading, read_graph

__all__ = ["call", "guessed_reading", "read_model", "read_without_numbers", "without_numbers"]


def call(model: nn.Module, batch: Any) -> Any:
    """The model's output on a batch: keyword arguments, a tuple that begins with the input, or the input itself."""
    args, kwargs = _arguments(batch)
    return model(*args, **kwargs)


def _arguments(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        return (), batch
    return (batch[0] if isinstance(batch, list | tuple) else batch,), {}


def read_model(model: nn.Module, batch: Any) -> Reading:
    """Read one forward pass on a batch; what it leaves in the Module, and the random numbers' state, are put back.

    >>> layer = nn.Linear(2, 3)
    >>> sorted(atom.kind for atom in read_model(layer, torch.ones(4, 2)).atoms.values())
    ['bias', 'matrix']
    """
    if _is_lazy(model):  # its first pass makes the weights, and they stay
        with torch.random.fork_rng(), torch.no_grad():
            call(model, batch)
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        with _unchanged(model), torch.random.fork_rng(), torch.enable_grad():
            reading = read_graph(call(model, batch), dict(model.named_parameters()))
    finally:
        with torch.no_grad():
            for buffer, before in buffers.items():
                buffer.copy_(before)
    inside = read_without_numbers(model, *_arguments(batch)) if reading.hides else None
    return reading if inside is None else inside


def read_without_numbers(model: nn.Module, args: Any, kwargs: Any) -> Reading | None:
    """Read a forward pass on tensors that have shapes and no numbers; None if the Module does not run so.

    Nothing is computed, and the Module is left as it was. What autograd shows as one function, with nothing of its
    inside, is run uncompiled, without checkpoints, and without a backward of its own.

    >>> reading = read_without_numbers(nn.Linear(2, 3), (torch.ones(4, 2),), {})
    >>> len(reading.atoms)
    2
    """
    while isinstance(model, DistributedDataParallel) or hasattr(model, "_orig_mod"):  # a compiled Module
        model = model.module if isinstance(model, DistributedDataParallel) else model._orig_mod  # type: ignore[assignment]
    if any(hasattr(parameter, "placements") for parameter in model.parameters()):
        return None  # a pass of a sharded model communicates
    try:
        with without_numbers(model), _opened():
            return read_graph(model.forward(*args, **kwargs), dict(model.named_parameters()))
    except Exception:  # a Module may raise anything: then there is nothing to read
        return None


def _is_lazy(model: nn.Module) -> bool:
    return any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters())


@contextmanager
def _opened() -> Iterator[None]:
    """Show the inside of compiled code, of checkpointed layers, and of functions with a backward of their own."""
    closed = vars(Function)["apply"]

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is CheckpointFunction:
            run, _, *args = args  # type: ignore[assignment]
            return run(*args)
        context: Any = FunctionCtx()
        context.needs_input_grad = (True,) * len(args)
        alone = function.setup_context is not Function.setup_context  # its forward takes no context
        return function.forward(*args, **kwargs) if alone else function.forward(context, *args, **kwargs)

    Function.apply = classmethod(apply)  # type: ignore[assignment]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        Function.apply = closed  # type: ignore[method-assign]


@contextmanager
def without_numbers(model: nn.Module) -> Iterator[None]:
    """Run a Module on tensors without numbers, with gradients; it raises if a choice depends on numbers.

    The Module is left as it was: no number of a tensor from outside is read or written, also not by the address of its
    memory. Of its hooks only torch's own are called (weight normalisation is one).

    >>> model = nn.Linear(3, 4)
    >>> with without_numbers(model):
    ...     made = model(torch.ones(2, 3))
    >>> made.shape
    torch.Size([2, 4])
    """
    if _is_lazy(model):
        raise ValueError("it is lazy: run it once, so that it has weights")
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True  # an operation that does not run so is no error here
    try:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        mode._allow_unsafe_data_ptr_access = False  # else the address of a tensor is 0, and native code reads there
        with _unchanged(model), mode, _Converting(mode), torch.enable_grad(), torch.random.fork_rng([]):
            for part in model.modules():
                for kind in ("_forward_pre_hooks", "_forward_hooks"):
                    hooks = vars(part)[kind].items()
                    vars(part)[kind] = OrderedDict((key, hook) for key, hook in hooks if _is_torchs(hook))
            yield
    finally:
        log.disabled = before


def _is_torchs(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("torch.")


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Put back what a pass leaves in a Module: attributes, and what is in lists, dicts and sets."""
    own = [vars(part) for part in model.modules()]
    before: dict[int, tuple[Any, Any]] = {id(attributes): (attributes, attributes.copy()) for attributes in own}
    # a hook that took itself off stays off
    stack = [value for attributes in own for name, value in attributes.items() if not name.endswith("_hooks")]
    while stack:
        held = stack.pop()
        if type(held) is tuple:
            stack += held
        elif type(held) in (list, dict, set, deque, OrderedDict, defaultdict) and id(held) not in before:
            before[id(held)] = held, copy.copy(held)
            stack += held.values() if isinstance(held, dict) else held
    try:
        yield
    finally:
        for held, content in before.values():
            held.clear()
            (held.extend if isinstance(held, list | deque) else held.update)(content)


class _Converting(TorchDispatchMode):
    """Takes the numbers of every tensor away before `FakeTensorMode` gets it.

    That mode computes an operation on a real tensor and a Python number with the numbers, and so changes the tensor if
    the operation is in place.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mode = mode

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in _LIFTS:  # a new constant keeps its numbers
            args, kwargs = tree_map_only(Tensor, self._converted, (args, kwargs))
        return function(*args, **kwargs)

    def _converted(self, tensor: Tensor) -> Tensor:
        plain = type(tensor) in (Tensor, nn.Parameter)
        return self.mode.fake_tensor_converter.from_real_tensor(self.mode, tensor) if plain else tensor


_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift.default)


def guessed_reading(model: nn.Module) -> Reading | None:
    """Read a Module on a guess of what it takes: tokens, vectors or images, by its first layer; None if wrong.

    >>> len(guessed_reading(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))).atoms)
    3
    """
    first = next((layer for layer in model.modules() if isinstance(layer, _FIRST)), None)
    if first is None or any(parameter.is_meta for parameter in model.parameters()):
        return None
    device = next(model.parameters()).device
    x: Tensor
    if isinstance(first, nn.Embedding):
        x = torch.zeros(2, 8, dtype=torch.long, device=device)
    elif isinstance(first, nn.Linear):
        x = torch.zeros(2, first.in_features, dtype=first.weight.dtype, device=device)
    else:
        sides = [32] * (first.weight.dim() - 2)
        x = torch.zeros(2, first.in_channels, *sides, dtype=first.weight.dtype, device=device)
    return read_without_numbers(model, (x,), {})


_FIRST = (nn.Embedding, nn.Linear, nn.modules.conv._ConvNd)
