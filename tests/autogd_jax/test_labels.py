"""Which array is which atom: the names of real Flax and Haiku networks, layouts, and errors that name the array."""

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

import autogd
from autogd.jax import agd, atoms, default_label, read_atoms


class Network(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 8)(tokens)
        x = nn.LayerNorm()(x + self.param("positions", nn.initializers.zeros, (1, 6, 8)))
        x = x + nn.MultiHeadDotProductAttention(2)(x)
        x = nn.Conv(16, (3,))(x)
        x = nn.BatchNorm(use_running_average=False)(x)
        x = nn.ConvTranspose(4, (2,))(nn.PReLU()(x))
        return nn.Dense(5)(x.reshape(len(x), -1))


def kinds(params):
    return {path: (atom.kind, atom.parts, round(atom.scale, 4)) for path, atom in read_atoms(params).items()}


def test_flax_networks_are_read_by_name():
    found = kinds(jax.eval_shape(Network().init, jax.random.key(0), jnp.zeros((2, 6), jnp.int32))["params"])
    attention = "MultiHeadDotProductAttention_0"
    assert found == {
        "BatchNorm_0/bias": ("bias", 1, 4.0),
        "BatchNorm_0/scale": ("gain", 1, 4.0),
        "ConvTranspose_0/bias": ("bias", 1, 2.0),
        "ConvTranspose_0/kernel": ("kernel", 2, 0.3536),
        "Conv_0/bias": ("bias", 1, 4.0),
        "Conv_0/kernel": ("kernel", 3, 0.8165),
        "Dense_0/bias": ("bias", 1, 2.2361),
        "Dense_0/kernel": ("matrix", 1, 0.4564),
        "Embed_0/embedding": ("embedding", 11, 2.8284),
        "LayerNorm_0/bias": ("bias", 1, 2.8284),
        "LayerNorm_0/scale": ("gain", 1, 2.8284),
        **{f"{attention}/{name}/bias": ("bias", 1, 2.8284) for name in ("query", "key", "value", "out")},
        **{f"{attention}/{name}/kernel": ("matrix", 1, 1.0) for name in ("query", "key", "value", "out")},
        "PReLU_0/negative_slope": ("scalars", 1, 1.0),
        "positions": ("token", 6, 2.8284),
    }


def test_flax_nnx_networks_are_read_by_name():
    layer = nnx.Linear(16, 4, rngs=nnx.Rngs(0))
    assert kinds(nnx.state(layer, nnx.Param)) == {"bias": ("bias", 1, 2.0), "kernel": ("matrix", 1, 0.5)}


def test_haiku_networks_are_read_by_name():
    def forward(tokens):
        x = hk.LayerNorm(-1, create_scale=True, create_offset=True)(hk.Embed(11, 16)(tokens))
        return hk.Linear(4)(hk.Conv1D(16, 3)(x))

    params = jax.eval_shape(hk.transform(forward).init, jax.random.key(0), jnp.zeros((2, 6), jnp.int32))
    assert kinds(params) == {
        "conv1_d/b": ("bias", 1, 4.0),
        "conv1_d/w": ("kernel", 3, 0.5774),
        "embed/embeddings": ("embedding", 11, 4.0),
        "layer_norm/offset": ("bias", 1, 4.0),
        "layer_norm/scale": ("gain", 1, 4.0),
        "linear/b": ("bias", 1, 2.0),
        "linear/w": ("matrix", 1, 0.5),
    }


def test_outputs_first_is_the_layout_of_torch():
    conv = torch.nn.Conv2d(4, 8, (3, 2), groups=2)
    mine = atoms.kernel(jnp.zeros(conv.weight.shape), groups=2, outputs="first")
    assert mine == autogd.atoms.kernel(conv.weight, conv)
    assert atoms.matrix(jnp.zeros((12, 5)), stack=3, outputs="first") == autogd.atoms.matrix(
        torch.zeros(12, 5), stack=3
    )
    assert atoms.matrix(jnp.zeros((2, 3, 5)), outputs="first").fan_in == 5


def test_a_group_of_a_kernel_is_a_matrix_of_its_own():
    atom = atoms.kernel(jnp.zeros((3, 3, 1, 8)), groups=8)
    assert (atom.parts, atom.fan_out, atom.fan_in, atom.scale) == (72, 1, 1, 1 / 3)


@pytest.mark.parametrize(
    ("params", "label", "message"),
    [
        ({"mix": {"weight": jnp.zeros((4, 4))}}, default_label, "mix/weight: its name and its shape .* pass label="),
        ({"a": {"steps": jnp.zeros(2, jnp.int32)}}, default_label, "a/steps: .* found int32"),
        ({"a": {"w": jnp.zeros(2, jnp.complex64)}}, default_label, "a/w: .* found complex64"),
        ({"a": {"embedding": jnp.zeros(2)}}, default_label, "a/embedding: an embedding has rows and columns"),
        ({"a": {"w": jnp.zeros((4, 4))}}, lambda p, x: atoms.matrix(x, stack=3), "a/w: .* cannot be cut into 3"),
        ({"a": {"w": jnp.zeros(4)}}, lambda p, x: atoms.matrix(x), r"a/w: a matrix needs .* found the shape \(4,\)"),
        ({"a": {"w": jnp.zeros((4, 4))}}, lambda p, x: atoms.kernel(x), "a/w: a kernel has taps"),
        ({"a": {"w": jnp.zeros((4, 4))}}, lambda p, x: atoms.bias(jnp.zeros(3)), "a/w: label gave an atom of shape"),
        ({}, default_label, "has no arrays"),
    ],
)
def test_an_error_names_the_array(params, label, message):
    with pytest.raises(ValueError, match=message):
        agd(label=label).init(params)


def test_a_label_that_returns_no_atom_is_named():
    with pytest.raises(TypeError, match="a/w: label returned a NoneType"):
        agd(label=lambda path, array: None).init({"a": {"w": jnp.zeros((4, 4))}})
