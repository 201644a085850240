"""Run a Module once to read it, and leave it as it was."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import Function, FunctionCtx
from torch.nn.parallel import DistributedDataParallel
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
    """Read one forward pass on a batch; buffers and the state of the random numbers are put back.

    >>> layer = nn.Linear(2, 3)
    >>> sorted(atom.kind for atom in read_model(layer, torch.ones(4, 2)).atoms.values())
    ['bias', 'matrix']
    """
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        with torch.random.fork_rng(), torch.enable_grad():
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
    parts = [(vars(part), vars(part).copy()) for part in model.modules()]
    buffers = [(part._buffers, part._buffers.copy()) for part in model.modules()]
    try:
        with without_numbers(), _opened():
            return read_graph(model.forward(*args, **kwargs), dict(model.named_parameters()))
    except Exception:  # a Module may raise anything: then there is nothing to read
        return None
    finally:
        for held, before in parts + buffers:  # a Module may keep tensors of the pass, and these have no numbers
            held.clear()
            held.update(before)


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
def without_numbers() -> Iterator[None]:
    """Run what is inside on tensors without numbers, with gradients; it raises if a choice depends on numbers.

    >>> with without_numbers():
    ...     made = torch.ones(2, 3) @ torch.ones(3, 4)
    >>> made.shape
    torch.Size([2, 4])
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True  # an operation that does not run so is no error here
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), torch.random.fork_rng([]):
            yield
    finally:
        log.disabled = before


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
