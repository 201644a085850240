"""The atom of each array of a pytree, from a labelling function of its path.

The catalogue of `autogd.reading` goes by the type of the layer that owns a parameter. A pytree has no layers, only
names, so `NAMES` says which rule of the catalogue each name that Flax or Haiku gives an array stands for. An array with
another name gets its atom from its shape, by the catalogue's own function.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch

from autogd.geometry.atom import Atom
from autogd.jax import atoms
from autogd.reading.others import vectors_by_shape

__all__ = ["NAMES", "Label", "Labelled", "default_label", "read_atoms", "read_leaves"]

Label = Callable[[str, Any], Atom]
"""From the path of an array in its pytree ("Dense_0/kernel") and the array to its atom."""


def _weight(array: Any) -> Atom:
    """The weight of a dense layer has two dimensions, that of a convolution more."""
    return atoms.matrix(array) if len(array.shape) == 2 else atoms.kernel(array)


NAMES: dict[str, Callable[[Any], Atom]] = {
    "kernel": _weight, "w": _weight,
    "bias": atoms.bias, "b": atoms.bias, "offset": atoms.bias,
    "scale": atoms.gain,
    "embedding": atoms.embedding, "embeddings": atoms.embedding,
}  # fmt: skip
"""The rule of each name of an array in Flax and Haiku."""

# weights of three dimensions, by the layer's name within Flax's attention: these are matrices, cut by head
_ATTENTION: dict[str, Callable[[Any], Atom]] = {
    "query": atoms.matrix, "key": atoms.matrix, "value": atoms.matrix, "out": partial(atoms.matrix, inputs=2),
}  # fmt: skip


@dataclass(frozen=True)
class Labelled:
    """An array, its path and its atom; for a bias, also the index of its weight."""

    path: str
    array: jax.Array
    atom: Atom
    own_weight: int | None = None


def default_label(path: str, array: Any) -> Atom:
    """The atom by the names and shapes of Flax and Haiku; raises an error if they are not enough.

    A `kernel` or `w` of two dimensions is a matrix, of more a convolution's kernel (in Flax's attention a matrix), a
    `bias`, `b` or `offset` a bias, a `scale` a gain, an `embedding` or `embeddings` a table. Groups of a convolution
    and packed matrices do not show: label those in your own function, and call this one for the rest.

    >>> default_label("Dense_0/kernel", jnp.zeros((16, 4))).scale
    0.5
    >>> default_label("Conv_0/kernel", jnp.zeros((3, 3, 4, 8))).kind
    'kernel'
    """
    owner, _, name = path.rpartition("/")
    rule, dims = NAMES.get(name), len(array.shape)
    if rule is _weight and dims == 3:
        rule = _ATTENTION.get(owner.rpartition("/")[2], _weight)
    if rule is not None and (rule is not _weight or dims >= 2):
        return rule(array)
    atom = vectors_by_shape(torch.empty(tuple(array.shape), device="meta"))
    if atom is not None:
        return atom
    raise ValueError(
        f"its name and its shape {tuple(array.shape)} do not tell which atom it is; pass label=..., a function of "
        "path and array that returns one of autogd.jax.atoms for it, and default_label(path, array) for the rest"
    )


def read_atoms(params: Any, label: Label = default_label) -> dict[str, Atom]:
    """The atom of every array of a pytree, by path.

    >>> params = {"Dense_0": {"kernel": jnp.zeros((16, 4)), "bias": jnp.zeros(4)}}
    >>> {path: atom.kind for path, atom in read_atoms(params).items()}
    {'Dense_0/bias': 'bias', 'Dense_0/kernel': 'matrix'}
    """
    return {leaf.path: leaf.atom for leaf in read_leaves(params, label)}


def read_leaves(tree: Any, label: Label) -> list[Labelled]:
    """The arrays of a pytree, in order, each with its atom, and a bias with its weight; errors name the array."""
    found = []
    for keys, array in jax.tree_util.tree_leaves_with_path(tree):
        path = _path(keys)
        if not hasattr(array, "dtype") or not jnp.issubdtype(array.dtype, jnp.floating):
            kind = getattr(array, "dtype", type(array).__name__)
            raise ValueError(f"{path}: AGD trains real floating-point arrays, found {kind}; mask it with optax.masked")
        found.append(Labelled(path, array, _atom(path, array, label)))
    return [
        leaf if leaf.atom.kind != "bias" else Labelled(leaf.path, leaf.array, leaf.atom, _weight_of(leaf, found))
        for leaf in found
    ]


def _atom(path: str, array: Any, label: Label) -> Atom:
    try:
        atom = label(path, array)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(atom, Atom):
        raise TypeError(f"{path}: label returned a {type(atom).__name__}; it must return one of autogd.jax.atoms")
    if math.prod(atom.shape) != math.prod(array.shape):
        raise ValueError(f"{path}: label gave an atom of shape {atom.shape} for an array of shape {array.shape}")
    return atom


def _weight_of(bias: Labelled, leaves: Sequence[Labelled]) -> int | None:
    owner = bias.path.rpartition("/")[0]
    beside = (i for i, x in enumerate(leaves) if x.path.rpartition("/")[0] == owner and x.atom.kind != "bias")
    return next(beside, None)


def _path(keys: Sequence[Any]) -> str:
    words = [word for key in keys for word in jax.tree_util.keystr((key,), simple=True).split("/")]
    # flax.nnx wraps every array in a variable, whose attribute is not a layer's name
    return "/".join(words[:-1] if len(words) > 1 and words[-1] == "value" else words)
