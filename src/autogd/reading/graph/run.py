"""Run a Module once to read it, and leave it as it was."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from autogd.reading.graph.reading import Reading, read_graph

__all__ = ["call", "guessed_reading", "read_model", "read_without_numbers"]


def call(model: nn.Module, batch: Any) -> Any:
    """The model's output on a batch: keyword arguments, a tuple that begins with the input, or the input itself."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch[0] if isinstance(batch, list | tuple) else batch)


def read_model(model: nn.Module, batch: Any) -> Reading:
    """Read one forward pass on a batch; buffers and the state of the random numbers are put back.

    >>> layer = nn.Linear(2, 3)
    >>> sorted(atom.kind for atom in read_model(layer, torch.ones(4, 2)).atoms.values())
    ['bias', 'matrix']
    """
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            return read_graph(call(model, batch), dict(model.named_parameters()))
    finally:
        with torch.no_grad():
            for buffer, before in buffers.items():
                buffer.copy_(before)


def read_without_numbers(model: nn.Module, args: Any, kwargs: Any) -> Reading | None:
    """Read a forward pass on tensors that have shapes and no numbers; None if the Module does not run so.

    Nothing is computed, and no buffer changes.

    >>> reading = read_without_numbers(nn.Linear(2, 3), (torch.ones(4, 2),), {})
    >>> len(reading.atoms)
    2
    """
    try:
        with _unlogged(), FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), torch.random.fork_rng([]):
            return read_graph(model.forward(*args, **kwargs), dict(model.named_parameters()))
    except Exception:  # a Module may raise anything: then there is nothing to read
        return None


@contextmanager
def _unlogged() -> Iterator[None]:
    """Silence torch's log of operations that do not run on such tensors: here that is no error."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def guessed_reading(model: nn.Module) -> Reading | None:
    """Read a Module on a guess of what it takes: tokens, vectors or images, by its first layer; None if it is wrong.

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
