"""Rules for functions and modules without parameters: non-linearities, sums, concatenations, reshapes."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from autogd.theory.s4_perturbation.bound import Bound, add, average_pool, concatenate, elementwise

__all__ = ["LIPSCHITZ", "adaptive_window", "apply", "of_module", "windows"]

# largest slope, and value at zero; the slopes of gelu and silu were maximised numerically
LIPSCHITZ: dict[str, tuple[float, float]] = {
    "relu": (1.0, 0.0),
    "relu6": (1.0, 0.0),
    "hardtanh": (1.0, 0.0),
    "leaky_relu": (1.0, 0.0),
    "tanh": (1.0, 0.0),
    "sigmoid": (0.25, 0.5),
    "softplus": (1.0, math.log(2.0)),
    "abs": (1.0, 0.0),
    "sin": (1.0, 0.0),
    "gelu": (1.129, 0.0),
    "silu": (1.09985, 0.0),
    "elu": (1.0, 0.0),
    "identity": (1.0, 0.0),
    "dropout": (1.0, 0.0),
}
"""Elementwise functions at their default settings, by name: Lipschitz constant and value at zero."""

_MODULES = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Identity: "identity",
    nn.Dropout: "dropout",  # in evaluation mode
    nn.Flatten: "identity",
}
_ALIKE = {"relu_": "relu", "absolute": "abs"}
_RESHAPES = {
    "flatten", "reshape", "view", "permute", "transpose", "contiguous", "squeeze", "unsqueeze", "swapaxes",
}  # fmt: skip
_SUMS = {"add", "iadd", "sub", "add_"}
_CATS = {torch.cat, torch.concat, torch.concatenate}


def of_module(module: nn.Module, entries: int) -> Callable[[Bound], Bound]:
    """A module without parameters, by its type.

    >>> from autogd.theory.s4_perturbation.bound import given
    >>> of_module(nn.Sigmoid(), 4)(given(2.0)).size
    1.5
    """
    name = _MODULES.get(type(module))
    if name is None:
        coupled = isinstance(module, nn.modules.batchnorm._BatchNorm)
        why = "it couples the samples of a batch, " if coupled else ""
        raise ValueError(f"{why}no bound is known for {type(module).__name__}")
    return _elementwise(name, entries)


def apply(n: fx.Node, bounds: Mapping[fx.Node, Bound], values: Mapping[fx.Node, Any], value: Tensor) -> Bound:
    """The bound on the value of a function or method call, from the bounds on its arguments."""
    name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
    tensors = [node for node in n.args if isinstance(node, fx.Node) and node in bounds]
    entries = math.prod(value.shape[1:])
    if name in _RESHAPES and tensors:
        if value.shape[0] != values[tensors[0]].shape[0]:
            raise ValueError("it moves the batch dimension")
        return bounds[tensors[0]]
    if n.target in _CATS:
        parts = n.args[0]
        assert isinstance(parts, list | tuple)
        if n.kwargs.get("dim", n.args[1] if len(n.args) > 1 else 0) == 0:
            raise ValueError("it concatenates along the batch dimension")
        return concatenate(*(bounds[node] for node in parts if isinstance(node, fx.Node)))
    if name in _SUMS:
        return _sum(n, bounds, values, value)
    if name in ("mul", "truediv", "imul", "div", "neg") and len(tensors) == 1:
        return elementwise(_factor(n, name))(bounds[tensors[0]])
    if name == "mean" and tensors:
        if value.shape[:1] != values[tensors[0]].shape[:1]:
            raise ValueError("it averages over the batch dimension")
        return average_pool(values[tensors[0]].numel() // value.numel())(bounds[tensors[0]])
    name = _ALIKE.get(name, name)
    if name in LIPSCHITZ and len(tensors) == 1 and _plain(n):
        return _elementwise(name, entries)(bounds[tensors[0]])
    raise ValueError("no bound is known for this function")


def windows(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """The number of entries in a pooling window, and of windows that an entry can lie in.

    >>> windows(nn.AvgPool2d(3, stride=2), (1, 9, 9))
    (9, 4)
    """
    spatial = 1 if isinstance(module, nn.AvgPool1d | nn.MaxPool1d) else 2
    kernel, stride, padding = (_each(getattr(module, key), spatial) for key in ("kernel_size", "stride", "padding"))
    average = isinstance(module, nn.AvgPool1d | nn.AvgPool2d)
    if average and (module.ceil_mode or (any(padding) and not module.count_include_pad)):
        raise ValueError("windows at the border are smaller: use ceil_mode=False and count_include_pad=True")
    if average and getattr(module, "divisor_override", None) is not None:
        raise ValueError("divisor_override makes it another map than an average")
    if not average and any(d != 1 for d in _each(getattr(module, "dilation", 1), spatial)):
        raise ValueError("no bound is known for dilated max-pooling")
    return math.prod(kernel), math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))


def adaptive_window(before: tuple[int, ...], after: tuple[int, ...], spatial: int) -> int:
    """The entries of one window of adaptive average pooling, if the sizes divide.

    >>> adaptive_window((3, 8, 8), (3, 2, 2), 2)
    16
    """
    pairs = list(zip(before[-spatial:], after[-spatial:], strict=True))
    if any(b % a for b, a in pairs):
        raise ValueError(f"windows overlap unevenly ({before[-spatial:]} to {after[-spatial:]})")
    return math.prod(b // a for b, a in pairs)


def _elementwise(name: str, entries: int) -> Callable[[Bound], Bound]:
    slope, at_zero = LIPSCHITZ[name]
    return elementwise(slope, abs(at_zero) * math.sqrt(entries))


def _sum(n: fx.Node, bounds: Mapping[fx.Node, Bound], values: Mapping[fx.Node, Any], value: Tensor) -> Bound:
    if n.kwargs:
        raise ValueError("a sum with further settings")
    terms = []
    for term in n.args:
        if not (isinstance(term, fx.Node) and term in bounds):
            raise ValueError("adds something that is neither a value of the network nor a layer's parameter")
        if values[term].shape != value.shape:
            raise ValueError("adds values of different shapes")
        terms.append(bounds[term])
    return add(*terms)


def _factor(n: fx.Node, name: str) -> float:
    if name == "neg":
        return 1.0
    numbers = [a for a in n.args if isinstance(a, int | float)]
    divides = name in ("truediv", "div")
    if len(numbers) != 1 or n.kwargs or (divides and n.args[0] is numbers[0]):
        raise ValueError("multiplies by something other than a constant")
    return 1 / abs(numbers[0]) if divides else abs(float(numbers[0]))


def _plain(n: fx.Node) -> bool:
    """Whether the function is called at its default settings."""
    if n.target in (F.dropout,):
        return True
    return len(n.args) == 1 and all(key == "inplace" or value is None for key, value in n.kwargs.items())


def _each(value: Any, count: int) -> tuple[int, ...]:
    return tuple(int(operator.index(v)) for v in value) if isinstance(value, tuple | list) else (int(value),) * count
