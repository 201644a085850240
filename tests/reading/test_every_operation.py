"""No operation of torch breaks the reading of a graph: all that torch tests, on complex numbers where it takes them."""

from contextlib import suppress
from itertools import islice

import pytest
import torch

from autogd.reading.graph import read_graph
from autogd.reading.graph.computation import tensors_in
from torchs_tables import operations


def leaves(sample):
    every = tensors_in((sample.input, sample.args, sample.kwargs))
    return {str(i): tensor for i, tensor in enumerate(every) if tensor.requires_grad and tensor.is_leaf}


def after(result):
    """What often follows a weight: a product whose result is split, and a gate."""
    product = torch.ones(3, result.shape[-min(result.dim(), 2)], dtype=result.dtype) @ result
    return [*product.chunk(2, -1), torch.sigmoid(product) * product.sin()]


@pytest.mark.slow
def test_every_graph_is_read(monkeypatch):
    # for each sample, torch would search the whole stack for a test case of its own: there is none
    for place in ("common_utils", "opinfo.core"):
        monkeypatch.setattr(f"torch.testing._internal.{place}.extract_test_fn", lambda: None, raising=False)
    read, wrong = 0, []
    for operation in operations():
        taken = operation.supported_dtypes("cpu") if operation.supports_autograd else ()
        dtype = next((dtype for dtype in (torch.complex64, torch.float64) if dtype in taken), None)
        try:
            (sample,) = islice(operation.sample_inputs("cpu", dtype, requires_grad=True), 1)
            result = operation(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # torch's sample does not run here
            continue
        outputs = [result]
        with suppress(Exception):  # not every result can be multiplied
            outputs.append(after(next(tensors_in(result))))
        parameters = leaves(sample)
        try:
            reading = read_graph(outputs, parameters)
            assert reading.chain(reading.atoms) >= 0
            assert set(reading.readouts) <= set(parameters.values())
            for parameter, atom in reading.atoms.items():
                assert atom.cut(parameter.detach()).shape == atom.shape
            read += 1
        except Exception as error:
            wrong.append(f"{operation.name}, {dtype}: {type(error).__name__}: {error}")
    assert not wrong
    assert read > 300
