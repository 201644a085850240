"""The route of an accelerator, on the CPU: float32 matrices travel in bfloat16, and are multiplied in float16."""

from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch

from autogd.geometry.polar import orthogonalise


@contextmanager
def accelerator(dtype=torch.float16):
    """Inside, one process and many take the route that they would take on an accelerator."""
    products = partial(orthogonalise, products=dtype)
    with (
        mock.patch("autogd.engine.distributed.spread.wire_dtype", return_value=torch.bfloat16),
        mock.patch("autogd.geometry.direction.orthogonalise", products),
        mock.patch("autogd.geometry.polar.orthogonalise", products),
        mock.patch("autogd.engine.distributed.dtensor.is_native", return_value=False),
        mock.patch("autogd.engine.steps.takes", return_value=False),
    ):
        yield
