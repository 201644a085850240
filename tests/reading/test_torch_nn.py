"""Every class of torch.nn that has parameters is covered, or stands in a list with the reason."""

import inspect
from contextlib import suppress
from itertools import islice

import pytest
import torch
from torch import nn

from autogd import AGD, explain, initialise_
from autogd.reading.graph import read_graph
from autogd.reading.graph.computation import tensors_in

# how to build the classes that need arguments
ARGUMENTS = {
    "Linear": (3, 4), "Bilinear": (2, 3, 4), "Embedding": (5, 4), "EmbeddingBag": (5, 4), "LayerNorm": (4,),
    "RMSNorm": (4,), "GroupNorm": (2, 4), "MultiheadAttention": (8, 2), "Transformer": (8, 2, 1, 1, 16),
    "TransformerEncoderLayer": (8, 2, 16), "TransformerDecoderLayer": (8, 2, 16),
    "AdaptiveLogSoftmaxWithLoss": (64, 20, [5, 10]), "PReLU": (), "LinearCrossEntropyLoss": (4, 5),
    **{f"Conv{n}d": (2, 4, 3) for n in (1, 2, 3)}, **{f"ConvTranspose{n}d": (2, 4, 3) for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": (4,) for n in (1, 2, 3)}, "SyncBatchNorm": (4,),
    **dict.fromkeys(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell", "RNNCellBase", "RNNBase"), (3, 4)),
}  # fmt: skip
EXTRA = {**{f"InstanceNorm{n}d": ((4,), {"affine": True}) for n in (1, 2, 3)}}
# no atom, and why
LEFT_OUT = {
    "RNNBase": "abstract: LSTM, GRU and RNN are covered",
    "RNNCellBase": "abstract: the cells are covered",
    "UninitializedParameter": "not a layer",
    "Container": "deprecated, holds modules",
    "ParameterList": "raw parameters without a role: a vector is read by its shape, the rest are overridden by name",
    "ParameterDict": "raw parameters without a role: a vector is read by its shape, the rest are overridden by name",
    "TransformerEncoder": "a container of layers that are covered",
    "TransformerDecoder": "a container of layers that are covered",
}


def modules():
    return {n: c for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module) and c is not nn.Module}


def build(name, cls):
    """An instance with parameters, None if the class has none; a class that cannot be built so must be listed."""
    args, kwargs = EXTRA.get(name, (ARGUMENTS.get(name, ()), {}))
    module = cls(*args, **kwargs)
    return module if any(True for _ in module.parameters()) else None


@pytest.mark.filterwarnings("ignore:.*(enable_nested_tensor|has been deprecated)")
@pytest.mark.parametrize("name", sorted(modules()))
def test_every_layer_of_torch_is_covered_or_listed(name):
    if name in LEFT_OUT or name.startswith("Lazy"):
        return
    try:
        module = build(name, modules()[name])
    except TypeError:
        # a class that wants arguments: it has none of the parameters that this test is about if it is a loss, an
        # activation or a reshaping, all of which are built in one of these ways
        for args in ((1,), (1, 1), ([1],), ((1,), 1), ("0", (1,)), (2, 2, 2), (nn.Identity(), 1)):
            try:
                module = modules()[name](*args)
            except Exception:
                continue
            assert not list(module.parameters()), f"{name} has parameters: say in ARGUMENTS how to build it"
            return
        pytest.fail(f"{name} is new: say in ARGUMENTS how to build it, or in LEFT_OUT why not")
    if module is None:
        return
    explanation = explain(initialise_(module))
    assert len(explanation.rows) == len(list(module.parameters()))
    optimiser = AGD(module)
    before = [p.detach().clone() for p in module.parameters()]
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()
    assert all(
        torch.isfinite(p).all() and not torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True)
    )


def test_the_list_of_what_is_left_out_names_nothing_that_is_gone():
    gone = [name for name in LEFT_OUT if not hasattr(nn, name) and name not in ("RNNBase", "RNNCellBase", "Container")]
    assert not gone


def leaves_of(sample):
    every = tensors_in((sample.input, sample.args, sample.kwargs))
    return {str(i): tensor for i, tensor in enumerate(every) if tensor.requires_grad and tensor.is_leaf}


def what_follows(result):
    """What often follows a weight: a product whose result is split, and a gate."""
    product = torch.ones(3, result.shape[-min(result.dim(), 2)], dtype=result.dtype) @ result
    return [*product.chunk(2, -1), torch.sigmoid(product) * product.sin()]


@pytest.mark.slow
def test_every_graph_is_read(monkeypatch):
    from torchs_tables import operations  # skips without torch's own tables

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
            outputs.append(what_follows(next(tensors_in(result))))
        parameters = leaves_of(sample)
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
