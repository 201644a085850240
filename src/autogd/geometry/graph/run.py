"""Run a Module once to read it, and leave it as it was."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from autogd.geometry.graph.reading import Reading, read_graph

__all__ = ["call", "read_model"]


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
