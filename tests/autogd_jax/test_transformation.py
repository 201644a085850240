"""A good citizen of optax: jit, scan, masks, other types of numbers, bad gradients; it reads arrays by name."""

import sys

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import autogd
from autogd.jax import agd, atoms, default_label, initialise, read_atoms, stochastic_agd
from autogd.jax.parts import matrices
from patience import run_child

SHAPES = {
    "Embed_0": {"embedding": (11, 8)},
    "Conv_0": {"kernel": (3, 8, 16), "bias": (16,)},
    "LayerNorm_0": {"scale": (16,), "bias": (16,)},
    "Dense_0": {"kernel": (16, 4), "bias": (4,)},
}


def tree(seed=0, dtype=jnp.float32):
    draw = np.random.default_rng(seed)
    return {
        owner: {name: jnp.asarray(draw.standard_normal(shape), dtype) for name, shape in arrays.items()}
        for owner, arrays in SHAPES.items()
    }


def test_it_runs_under_scan_without_a_look_at_a_number():
    optimiser = agd()
    params = tree()

    def step(carry, seed):
        params, state = carry
        # a transfer to the host would be an error here
        updates, state = optimiser.update(jax.tree.map(lambda p: p * seed, params), state)
        return (optax.apply_updates(params, updates), state), state.learning_rate

    (moved, state), rates = jax.lax.scan(step, (params, optimiser.init(params)), jnp.arange(1.0, 4.0))
    assert (rates > 0).all()
    assert state.skipped_steps == 0
    assert all((a != b).any() for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(params), strict=True))


def test_every_part_moves_by_its_share_of_the_step():
    updates, state = agd().update(tree(), agd().init(tree()))
    depth = 2 + 1 / 4 + 4 / 32
    for (path, atom), update in zip(read_atoms(updates).items(), jax.tree.leaves(updates), strict=True):
        sizes = np.linalg.norm(np.asarray(matrices(update, atom)), axis=(1, 2))
        expected = state.learning_rate / depth * atom.depth_share * atom.scale
        np.testing.assert_allclose(sizes, expected, rtol=1e-5, err_msg=path)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_gradient_that_is_not_finite_moves_nothing_and_is_counted(bad):
    optimiser, grads = agd(), tree()
    grads["Conv_0"]["kernel"] = grads["Conv_0"]["kernel"].at[0, 0, 0].set(bad)
    updates, state = jax.jit(optimiser.update)(grads, optimiser.init(tree()))
    assert all((update == 0).all() for update in jax.tree.leaves(updates))
    assert (state.skipped_steps, state.learning_rate) == (1, 0)
    _, state = jax.jit(optimiser.update)(tree(), state)
    assert (state.skipped_steps, bool(state.learning_rate > 0)) == (1, True)


def test_no_gradient_at_all_moves_nothing():
    updates, state = agd().update(jax.tree.map(jnp.zeros_like, tree()), agd().init(tree()))
    assert all((update == 0).all() for update in jax.tree.leaves(updates))
    assert (state.learning_rate, state.skipped_steps) == (0, 0)


def test_rounding_is_not_blown_up_to_a_step():
    grads = tree()
    grads["Dense_0"]["bias"] = grads["Dense_0"]["bias"] * 1e-8
    updates, _ = agd().update(grads, agd().init(grads))
    assert (updates["Dense_0"]["bias"] == 0).all()


def test_half_precision_is_measured_in_single():
    grads = tree(dtype=jnp.bfloat16)
    updates, state = agd().update(grads, agd().init(grads))
    assert {update.dtype for update in jax.tree.leaves(updates)} == {jnp.dtype(jnp.bfloat16)}
    _, wide = agd().update(jax.tree.map(lambda g: g.astype(jnp.float32), grads), state)
    assert state.learning_rate == wide.learning_rate
    assert state.learning_rate.dtype == jnp.float32


def test_what_is_masked_counts_neither_for_G_nor_for_the_depth():
    params = tree()
    mask = {owner: jax.tree.map(lambda _, owner=owner: owner == "Dense_0", arrays) for owner, arrays in params.items()}
    masked = optax.masked(agd(), mask)
    updates, _ = masked.update(params, masked.init(params))
    alone, _ = agd().update({"Dense_0": params["Dense_0"]}, agd().init({"Dense_0": params["Dense_0"]}))
    np.testing.assert_array_equal(updates["Dense_0"]["kernel"], alone["Dense_0"]["kernel"])


def test_it_chains_with_a_schedule():
    halved = optax.chain(agd(), optax.scale(0.5))
    mine, _ = halved.update(tree(), halved.init(tree()))
    theirs, _ = agd(gain=0.5).update(tree(), agd(gain=0.5).init(tree()))
    np.testing.assert_allclose(mine["Dense_0"]["kernel"], theirs["Dense_0"]["kernel"], rtol=1e-6)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="gain: expected a finite number > 0, found 0"):
        agd(gain=0)
    with pytest.raises(ValueError, match="update needs them"):
        agd(weight_decay=0.1).update(tree(), agd().init(tree()))


def test_initialise_puts_every_part_at_its_target():
    params = initialise(tree(), jax.random.key(0))
    for (path, atom), array in zip(read_atoms(params).items(), jax.tree.leaves(params), strict=True):
        singular = np.linalg.svd(np.asarray(matrices(array, atom)), compute_uv=False)
        if atom.kind == "gain":
            np.testing.assert_array_equal(array, 1)
        else:
            np.testing.assert_allclose(singular, atom.target, atol=1e-5, err_msg=path)
    again = initialise(tree(1), jax.random.key(0))
    np.testing.assert_array_equal(params["Conv_0"]["kernel"], again["Conv_0"]["kernel"])
    other = initialise(tree(), jax.random.key(1))
    assert (params["Conv_0"]["kernel"] != other["Conv_0"]["kernel"]).any()


def test_without_jax_the_error_says_what_to_install():
    script = "import sys; sys.modules['jax'] = None; import autogd; print('autogd is there'); import autogd.jax"
    out = run_child([sys.executable, "-c", script])
    assert out.stdout == "autogd is there\n"
    assert "autogd.jax needs the extra 'jax': pip install 'autogd[jax]'" in out.stderr


def test_a_hidden_matrix_above_its_size_is_not_pulled_back_without_a_gradient():
    params = {
        "a": {"kernel": 20 * jnp.ones((4, 4))},
        "b": {"kernel": 20 * jnp.ones((4, 4))},
        "c": {"w": jnp.ones((4, 2))},
    }
    grads = {"a": {"kernel": jnp.zeros((4, 4))}, "b": {"kernel": jnp.eye(4)}, "c": {"w": jnp.ones((4, 2))}}
    optimiser = stochastic_agd()
    updates, _ = optimiser.update(grads, optimiser.init(params), params)
    assert not updates["a"]["kernel"].any()
    assert updates["b"]["kernel"].sum() < 0


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
