"""What the autograd graph of one forward pass says about each parameter."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from autogd.geometry.atoms import embedding, kernel, matrix
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_graph, same_cut

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
ROWS = X.flatten(0, 1)


def raw(*shape):
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) / 2)


def read(function, **parameters):
    reading = read_graph(function(**parameters), parameters)
    return {name: reading.atoms.get(parameter) for name, parameter in parameters.items()}


def cut(atom):
    """How a parameter is cut: the view, its rows, its columns, and how many layers it packs."""
    return atom.shape, atom.rows, atom.columns, atom.stack


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


PRODUCTS = {
    "x @ W": (lambda W: ROWS @ W, (4, 6), ((4, 6), (1,), (0,), 1)),
    "W @ x": (lambda W: W @ ROWS.T, (6, 4), ((6, 4), (0,), (1,), 1)),
    "W @ a batch": (lambda W: W @ X.mT, (6, 4), ((6, 4), (0,), (1,), 1)),
    "W @ a vector": (lambda W: W @ ROWS[0], (6, 4), ((6, 4), (0,), (1,), 1)),
    "a vector, dotted": (lambda W: ROWS @ W, (4,), ((4,), (), (0,), 1)),
    "F.linear": (lambda W: F.linear(X, W), (6, 4), ((6, 4), (0,), (1,), 1)),
    "einsum io": (lambda W: torch.einsum("bi,io->bo", ROWS, W), (4, 6), ((4, 6), (1,), (0,), 1)),
    "einsum oi": (lambda W: torch.einsum("bti,oi->bto", X, W), (6, 4), ((6, 4), (0,), (1,), 1)),
    "einsum to ob": (lambda W: torch.einsum("oi,bi->ob", W, ROWS), (6, 4), ((6, 4), (0,), (1,), 1)),
    "einsum into heads": (lambda W: torch.einsum("bti,ihd->bthd", X, W), (4, 3, 2), ((4, 3, 2), (1, 2), (0,), 1)),
    "einsum out of heads": (
        lambda W: torch.einsum("bthd,hdo->bto", X.view(2, 5, 2, 2), W), (2, 2, 7), ((2, 2, 7), (2,), (0, 1), 1),
    ),
    "tensordot": (lambda W: torch.tensordot(X, W, 1), (4, 6), ((4, 6), (1,), (0,), 1)),
    "by hand": (lambda W: (ROWS[:, None, :] * W).sum(-1), (6, 4), ((6, 4), (0,), (1,), 1)),
    "a flat buffer": (lambda W: F.linear(ROWS, W.view(6, 4)), (24,), ((6, 4), (0,), (1,), 1)),
    "half of the width": (lambda W: ROWS @ W.bfloat16().float(), (4, 6), ((4, 6), (1,), (0,), 1)),
    "a masked matrix": (lambda W: ROWS @ (W * torch.ones(4, 6).triu()), (4, 6), ((4, 6), (1,), (0,), 1)),
    "experts by bmm": (lambda W: torch.bmm(X, W), (2, 4, 6), ((2, 4, 6), (2,), (1,), 1)),
    "experts by einsum": (lambda W: torch.einsum("ebi,eoi->ebo", X, W), (2, 6, 4), ((2, 6, 4), (1,), (2,), 1)),
    "experts by index": (
        lambda W: torch.bmm(W[torch.tensor([0, 2, 1] * 3 + [0])], ROWS[:, :, None]), (3, 6, 4),
        ((3, 6, 4), (1,), (2,), 1),
    ),
    "splines": (lambda W: torch.einsum("bik,oik->bo", X, W), (6, 5, 4), ((6, 5, 4), (0,), (1, 2), 1)),
    "splines by elements": (lambda W: (X[:, None] * W).sum((-1, -2)), (6, 5, 4), ((6, 5, 4), (0,), (1, 2), 1)),
    "complex": (
        lambda W: torch.einsum("bix,iox->box", X.mT.cfloat(), torch.view_as_complex(W)).real, (4, 6, 5, 2),
        ((4, 6, 5, 2), (1, 3), (0,), 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_contracted_dimensions_are_columns_whatever_the_spelling(name):
    function, shape, expected = PRODUCTS[name]
    atom = read(function, W=raw(*shape))["W"]
    assert cut(atom) == expected
    fan_out = math.prod(atom.shape[i] for i in expected[1]) // (2 if atom.complex else 1)
    fan_in = math.prod(atom.shape[i] for i in expected[2])
    assert atom.scale == pytest.approx(math.sqrt(fan_out / fan_in))


def split_in_two(h):
    gate, up = h.chunk(2, -1)
    return F.silu(gate) * up


def rotate_chunks(h):
    a, b = h.view(2, 5, 2, 4).chunk(2, -1)
    return torch.cat([a * 2 - b, b * 2 + a], -1)


def rotate_half(h):
    h = h.view(2, 5, 2, 4)
    return h * 2 + torch.cat([-h[..., 2:], h[..., :2]], -1)


PACKED = {
    "gate and up": (split_in_two, 12, ((4, 2, 6), (2,), (0,), 2)),
    "gate and up, every other": (lambda h: h[..., ::2].exp() * h[..., 1::2], 12, ((4, 6, 2), (1,), (0,), 2)),
    "glu": (lambda h: F.glu(h), 12, ((4, 2, 6), (2,), (0,), 2)),
    "query, key, value by split": (lambda h: attention(*h.split(4, 2)), 12, ((4, 3, 4), (2,), (0,), 3)),
    "by chunk": (lambda h: attention(*h.chunk(3, -1)), 12, ((4, 3, 4), (2,), (0,), 3)),
    "by unbind": (lambda h: attention(*h.view(2, 5, 3, 2, 2).unbind(2)), 12, ((4, 3, 4), (2,), (0,), 3)),
    "within heads": (lambda h: attention(*h.view(2, 5, 2, 6).chunk(3, -1)), 12, ((4, 2, 3, 2), (1, 3), (0,), 3)),
    "by slices": (
        lambda h: attention(h[..., :4], h[..., 4:8], h[..., 8:]), 12, ((4, 3, 4), (2,), (0,), 3),
    ),
    "by selects": (
        lambda h: attention(*(h.view(2, 5, 3, 4)[:, :, i] for i in range(3))), 12, ((4, 3, 4), (2,), (0,), 3),
    ),
    "not if used whole too": (lambda h: split_in_two(h).sum() + h.sum(), 12, ((4, 12), (1,), (0,), 1)),
    "not if joined again": (rotate_chunks, 8, ((4, 8), (1,), (0,), 1)),
    "not rotary halves": (rotate_half, 8, ((4, 8), (1,), (0,), 1)),
    "not unequal parts": (lambda h: h[..., :4].sum() * h[..., 4:].sum(), 10, ((4, 10), (1,), (0,), 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_what_is_split_into_equal_parts_afterwards_was_packed(name):
    function, width, expected = PACKED[name]
    assert cut(read(lambda W: function(X @ W), W=raw(4, width))["W"]) == expected


def test_a_packed_bias_goes_with_its_weight():
    atoms = read(lambda W, b: attention(*F.linear(X, W, b).split(4, 2)), W=raw(12, 4), b=raw(12))
    assert cut(atoms["b"]) == ((3, 4), (1,), (), 3)
    atoms = read(lambda W, b: attention(*(X @ W + b).split(4, 2)), W=raw(4, 12), b=raw(12))
    assert cut(atoms["b"]) == ((3, 4), (1,), (), 3)


def test_weights_that_are_cut_before_use_are_as_many_layers_on_one_input_and_one_on_many():
    h = X.clone().requires_grad_()
    together = read(lambda W: attention(*(h @ w for w in W.unbind(0))), W=raw(3, 4, 4))["W"]
    assert cut(together) == ((3, 4, 4), (2,), (1,), 3)
    beside = read(lambda W: torch.cat([h[0] @ W[0], h[1] @ W[2]]), W=raw(3, 4, 4))["W"]
    assert cut(beside) == ((3, 4, 4), (2,), (1,), 1)
    chain = read(lambda W: (h @ W[0]).relu() @ W[1], W=raw(2, 4, 4))["W"]
    assert chain.stack == 2


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv2d(4, 6, 3, groups=2), torch.randn(1, 4, 5, 5)),
        (nn.Conv2d(4, 8, 3, groups=4), torch.randn(1, 4, 5, 5)),
        (nn.Conv1d(4, 6, 1), torch.randn(1, 4, 5)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), torch.randn(1, 4, 5, 5)),
        (nn.Linear(4, 1), X),
        (nn.Linear(1, 1), X[..., :1]),
        (nn.Bilinear(4, 4, 3), None),
        (nn.Embedding(9, 4), torch.tensor([1, 2])),
        (nn.EmbeddingBag(9, 4), torch.tensor([[1, 2]])),
        (nn.LayerNorm(4), X),
        (nn.RMSNorm(4), X),
        (nn.GroupNorm(2, 4), X.mT),
        (nn.BatchNorm1d(4), X.mT),
        (nn.PReLU(4), X.mT),
        (nn.LSTM(4, 3, 2).double(), X.double()),
        (nn.GRU(4, 3, bidirectional=True), X),
        (nn.GRUCell(4, 3), X[0]),
        (nn.TransformerEncoderLayer(4, 2, 8, 0.0), X),
        (nn.TransformerDecoderLayer(4, 2, 8, 0.0), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_graph_and_catalogue_agree_on_layers_of_torch(layer, x):
    outputs = layer(X.to(next(layer.parameters()).dtype), X) if x is None else layer(x)
    reading = read_graph(outputs, dict(layer.named_parameters()))
    for role in read_roles(layer):
        assert same_cut(reading.atoms[role.parameter], role.atom), role.name


def test_a_tied_table_is_lookup_and_matrix_at_once_and_the_smaller_one_wins():
    table = raw(9, 4)
    atom = read(lambda W: F.embedding(torch.tensor([1, 2]), W) @ W.T, W=table)["W"]
    assert same_cut(atom, matrix(table))
    assert same_cut(read(lambda W: W[torch.tensor([[1, 2]])], W=table)["W"], embedding(table))


def test_vectors_tell_by_what_is_done_with_them():
    atoms = read(
        lambda W, b, g, p, c: torch.cat([c.expand(2, -1, -1), (X @ W + b) * g + p[:5]], 1),
        W=raw(4, 6), b=raw(6), g=raw(6), p=raw(9, 6), c=raw(1, 1, 6),
    )  # fmt: skip
    assert {name: atom.kind for name, atom in atoms.items()} == {
        "W": "matrix", "b": "bias", "g": "gain", "p": "token", "c": "token",
    }  # fmt: skip
    assert cut(atoms["p"]) == ((9, 6), (1,), (), 1)


def test_low_rank_factors_are_read_alike_apart_and_merged():
    factors = {"A": raw(4, 2), "B": raw(2, 6), "W": raw(4, 6)}
    apart = read(lambda A, B, W: ROWS @ A @ B + ROWS @ W, **factors)
    merged = read(lambda A, B, W: ROWS @ (W + 2 * (A @ B)), **factors)
    assert all(same_cut(apart[name], merged[name]) for name in factors)
    assert cut(merged["A"]) == ((4, 2), (1,), (0,), 1)


def test_weight_normalisation_by_hand():
    atoms = read(lambda g, v: F.linear(ROWS, g * v / v.norm(dim=1, keepdim=True)), g=raw(6, 1), v=raw(6, 4))
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6, bias=False))
    length, direction = (role.atom for role in read_roles(layer))
    assert same_cut(atoms["g"], length)
    assert same_cut(atoms["v"], direction)


def test_a_network_that_makes_weights_is_read_like_any_other():
    atoms = read(lambda H, z: F.linear(ROWS, (z @ H).view(6, 4)), H=raw(3, 24), z=raw(3))
    assert cut(atoms["H"]) == ((3, 24), (1,), (0,), 1)


def gru(W, U, b):
    h = torch.zeros(10, 4)
    for _ in range(3):
        r, z, n = (ROWS @ W + b).chunk(3, -1)
        rh, zh, nh = (h @ U).chunk(3, -1)
        r, z = torch.sigmoid(r + rh), torch.sigmoid(z + zh)
        h = (1 - z) * torch.tanh(n + r * nh) + z * h
    return h


def test_a_recurrent_cell_by_hand_has_three_gates_that_are_free():
    atoms = read(gru, W=raw(4, 12), U=raw(4, 12), b=raw(12))
    for name in "WU":
        assert cut(atoms[name]) == ((4, 3, 4), (2,), (0,), 3)
        assert atoms[name].free
    assert cut(atoms["b"]) == ((3, 4), (1,), (), 3)


def test_the_readout_is_the_last_product_and_an_activation_is_no_gate():
    atoms = read(
        lambda last, first: (lambda h: (h * torch.sigmoid(h)) @ last)(ROWS @ first), last=raw(6, 3), first=raw(4, 6)
    )
    assert atoms["last"].free
    assert not atoms["first"].free


def graph_attention(lin, source, target):
    h = ROWS @ lin
    scores = F.leaky_relu(h @ source + (h @ target).T)
    return torch.softmax(scores, -1) @ h


def residual(x, *branches):
    for branch in branches:
        x = x + F.layer_norm(x, (4,)) @ branch
    return x


FREE = {
    "products that are added up": (lambda a, b, c: ROWS @ a + (ROWS @ c).relu() @ b, "ab"),
    "several outputs": (lambda a, b, c: ((ROWS @ c).relu() @ a, {"value": (ROWS @ c).relu() @ b}), "ab"),
    "a hidden state that is returned too": (lambda a, b, c: (lambda h: (h @ a @ b, h))(ROWS @ c), "b"),
    "the end of a residual stream": (lambda a, b, c: residual(ROWS, a, b, c), "c"),
    "a merged update": (lambda a, b, c: (ROWS @ c).relu() @ (a + b), "ab"),
}


@pytest.mark.parametrize("name", FREE)
def test_all_last_products_are_readouts(name):
    function, expected = FREE[name]
    atoms = read(function, a=raw(4, 4), b=raw(4, 4), c=raw(4, 4))
    assert {key for key, atom in atoms.items() if atom.free} == set(expected)


def test_the_scores_of_attention_are_no_readout():
    assert read(graph_attention, lin=raw(4, 6), source=raw(6, 1), target=raw(6, 1))["lin"].free


def test_the_longest_chain_counts_each_layer_once_and_norm_layers_interrupt_it():
    def chain(function, **parameters):
        reading = read_graph(function(**parameters), parameters)
        return reading.chain(reading.atoms)

    square = {"a": raw(4, 4), "b": raw(4, 4), "c": raw(4, 4)}
    assert chain(lambda a, b, c: ((ROWS @ a).relu() @ b).relu() @ c, **square) == 3
    assert chain(lambda a, b, c: F.layer_norm((ROWS @ a).relu() @ b, (4,)) @ c, **square) == 2
    assert chain(lambda a, b, c: ROWS @ a + ROWS @ b + ROWS @ c, **square) == 1
    assert chain(lambda a, b, c: F.normalize((ROWS @ a).relu() @ b) @ c, **square) == 2
    assert chain(lambda a, b, c: (lambda h: h * (h.square().mean(-1, True)).rsqrt())(ROWS @ a @ b) @ c, **square) == 2
    stack = lambda a, b, c: ((ROWS @ a[0]).relu() @ a[1]).relu() @ a[1] + ROWS @ b @ c  # noqa: E731
    assert chain(stack, **{**square, "a": raw(2, 4, 4)}) == 2
    assert chain(gru, W=raw(4, 12), U=raw(4, 12), b=raw(12)) == 2 + 1 / 32


def test_activation_checkpointing_is_read_through_and_runs_nothing_again():
    calls = []

    def block(x, weight):
        calls.append(1)
        return attention(*(x @ weight).split(4, 2))

    weight = raw(4, 12)
    atom = read(lambda W: checkpoint(block, X.requires_grad_(), W, use_reentrant=False), W=weight)["W"]
    assert cut(atom) == ((4, 3, 4), (2,), (0,), 3)
    assert len(calls) == 1


def test_what_no_one_can_look_into_is_left_unread():
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            return x @ weight

        @staticmethod
        def backward(ctx, gradient):
            return gradient, gradient

    assert read(lambda W: Opaque.apply(ROWS, W), W=raw(4, 6)) == {"W": None}


def test_kernels_of_functional_convolutions_are_kernels():
    weight = raw(6, 4, 3)
    assert same_cut(read(lambda W: F.conv1d(X.mT, W), W=weight)["W"], kernel(weight))
