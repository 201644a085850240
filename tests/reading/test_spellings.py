"""A step is a function of the computation, not of its spelling: pairs of spellings of one network take the same steps.

A spelling is a line in `SPELLINGS`: a Module, and what its parameters are in terms of those of the reference network.
"""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from autogd import AGD, StochasticAGD

D, H, OUT = 6, 8, 3
STEPS = 8


class Reference(nn.Module):
    """Two layers and a readout, as torch has them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in ((D, H), (H, H), (H, OUT))
        )

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Spelt(nn.Module):
    """The same network with raw parameters: `store` makes them of a weight, `apply` is what a layer does with one."""

    def __init__(self, store, apply):
        super().__init__()
        self.apply_ = apply
        reference = reference_network()
        self.weights = nn.ParameterList(
            nn.Parameter(store(layer.weight.detach().clone())) for layer in reference.children()
        )

    def forward(self, x):
        first, second, last = self.weights
        h = torch.tanh(self.apply_(x, first))
        return self.apply_(torch.tanh(self.apply_(h, second)), last)


def reference_network():
    torch.manual_seed(1)
    return Reference()


def same(w):
    return w


def transposed(w):
    return w.T.contiguous()


def shaped_like(w, x):
    """The shape of a weight in a flat buffer, whose input is x."""
    return w.view(-1, x.shape[-1])


# name -> how a weight (out × in) is stored, and applied to x (batch × in)
SPELLINGS = {
    "x @ W": (transposed, lambda x, w: x @ w),
    "W @ x": (same, lambda x, w: (w @ x.T).T),
    "F.linear": (same, F.linear),
    "addmm": (transposed, lambda x, w: torch.addmm(torch.zeros(w.shape[1], dtype=x.dtype), x, w)),
    "mv, row by row": (same, lambda x, w: torch.stack([w @ row for row in x])),
    "einsum bi,io->bo": (transposed, lambda x, w: torch.einsum("bi,io->bo", x, w)),
    "einsum oi,bi->bo": (same, lambda x, w: torch.einsum("oi,bi->bo", w, x)),
    "einsum bi,oi->ob": (same, lambda x, w: torch.einsum("bi,oi->ob", x, w).T),
    "einsum with a letter to spare": (lambda w: w[None], lambda x, w: torch.einsum("bi,eoi->beo", x, w)[:, 0]),
    "tensordot": (transposed, lambda x, w: torch.tensordot(x, w, 1)),
    "einsum with an ellipsis": (same, lambda x, w: torch.einsum("...i,oi->...o", x, w)),
    "einsum with a sum left over": (
        transposed, lambda x, w: torch.einsum("bio->bo", torch.einsum("bi,io->bio", x, w)),
    ),
    "tensordot, other dimensions": (transposed, lambda x, w: torch.tensordot(w, x, dims=([0], [1])).T),
    "multi_dot": (transposed, lambda x, w: torch.linalg.multi_dot([x, w])),
    "addmv, row by row": (
        same, lambda x, w: torch.stack([torch.addmv(torch.zeros(len(w), dtype=x.dtype), w, row) for row in x]),
    ),
    "addbmm": (
        lambda w: w.T.contiguous()[None],
        lambda x, w: torch.addbmm(torch.zeros((), dtype=x.dtype), x[None], w),
    ),
    "vecdot": (same, lambda x, w: torch.linalg.vecdot(x[:, None], w)),
    "vmap": (same, lambda x, w: torch.vmap(lambda row: w @ row)(x)),
    "a transpose made contiguous": (same, lambda x, w: x @ w.t().contiguous()),
    "as_strided": (same, lambda x, w: F.linear(x, torch.as_strided(w, w.shape, w.stride()))),
    "moved and moved back": (same, lambda x, w: F.linear(x, w.movedim(0, -1).swapaxes(0, 1))),
    "unflattened": (same, lambda x, w: torch.einsum("bi,kpi->bkp", x, w.unflatten(0, (1, -1))).flatten(1)),
    "out of a list of one": (lambda w: w[None], lambda x, w: F.linear(x, w[torch.zeros(1, dtype=torch.long)][0])),
    "selected by index": (lambda w: w[None], lambda x, w: F.linear(x, w.index_select(0, torch.tensor([0]))[0])),
    "cat of one": (same, lambda x, w: F.linear(x, torch.cat([w]))),
    "a sum of two halves": (same, lambda x, w: F.linear(x, w / 2) + F.linear(x, w / 2)),
    "halves of the inputs": (same, lambda x, w: x[:, :2] @ w[:, :2].T + x[:, 2:] @ w[:, 2:].T),
    "unfold and matmul": (
        same, lambda x, w: (w @ F.unfold(x[:, :, None, None], 1)).squeeze(-1),
    ),
    "complex and back": (same, lambda x, w: F.linear(x.to(torch.complex128), w.to(torch.complex128)).real),
    "tensordot, named dimensions": (same, lambda x, w: torch.tensordot(x, w, ([1], [1]))),
    "inner": (same, torch.inner),
    "a sum of products": (same, lambda x, w: (x[:, None, :] * w).sum(-1)),
    "a flat buffer, viewed": (lambda w: w.flatten(), lambda x, w: F.linear(x, shaped_like(w, x))),
    "bmm on a stack of one": (lambda w: w.T.contiguous()[None], lambda x, w: torch.bmm(x[None], w)[0]),
    "baddbmm": (
        lambda w: w.T.contiguous()[None],
        lambda x, w: torch.baddbmm(torch.zeros((), dtype=x.dtype), x[None], w)[0],
    ),
    "matmul, broadcast": (same, lambda x, w: (w @ x[:, :, None])[..., 0]),
    "a convolution of one tap": (lambda w: w[:, :, None], lambda x, w: F.conv1d(x[:, :, None], w)[:, :, 0]),
    "a 1 × 1 convolution": (lambda w: w[:, :, None, None], lambda x, w: F.conv2d(x[:, :, None, None], w)[:, :, 0, 0]),
    "a transposed convolution": (
        lambda w: w.T.contiguous()[:, :, None], lambda x, w: F.conv_transpose1d(x[:, :, None], w)[:, :, 0],
    ),
    "a bilinear form with one": (
        lambda w: w[:, :, None], lambda x, w: F.bilinear(x, torch.ones(len(x), 1, dtype=x.dtype), w),
    ),
    "cast and back": (same, lambda x, w: F.linear(x, w.clone().to(torch.float64))),
    "reversed twice": (same, lambda x, w: F.linear(x, w.flip(0).flip(0))),
    "scaled up and down": (same, lambda x, w: F.linear(x, w * 2.0 / 2.0)),
    "in two halves of the batch": (same, lambda x, w: torch.cat([F.linear(half, w) for half in x.chunk(2)])),
    "in two halves of the outputs": (same, lambda x, w: torch.cat([F.linear(x, w)[:, :1], F.linear(x, w)[:, 1:]], 1)),
}  # fmt: skip


def data():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(STEPS, 10, width, dtype=torch.float64, generator=generator) for width in (D, OUT))
    return list(zip(x, y, strict=True))


def train(model, optimiser_class, call=None):
    optimiser = optimiser_class(model)
    for x, y in data():
        optimiser.zero_grad()
        F.mse_loss((call or model)(x), y).backward()
        optimiser.step()
    return model


def outputs(model, call=None):
    return torch.cat([(call or model)(x) for x, _ in data()])


OPTIMISERS = pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])


@OPTIMISERS
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_one_network_takes_the_same_steps(name, optimiser_class):
    spelt = Spelt(*SPELLINGS[name])
    reference = reference_network()
    start = outputs(reference)
    torch.testing.assert_close(outputs(spelt), start, rtol=0, atol=1e-12)
    end = outputs(train(reference, optimiser_class))
    assert (end - start).abs().max() > 0.1
    torch.testing.assert_close(outputs(train(spelt, optimiser_class)), end, rtol=0, atol=1e-10)


class Attention(nn.Module):
    """Attention and a gated layer; `projections` and `gated` say how query, key and value, gate and up are spelt."""

    def __init__(self, projections, gated):
        super().__init__()
        torch.manual_seed(2)
        # below the size at which StochasticAGD holds a hidden matrix: packed maps are held together
        q, k, v, gate, up, last = (torch.randn(D, D, dtype=torch.float64) / math.sqrt(D) / 2 for _ in range(6))
        biases = [torch.zeros(D, dtype=torch.float64) for _ in range(3)]
        self.project, qkv = projections(q, k, v, biases)
        self.gate, pair = gated(gate, up)
        self.qkv = nn.ParameterList(nn.Parameter(p) for p in qkv)
        self.pair = nn.ParameterList(nn.Parameter(p) for p in pair)
        self.norm = nn.LayerNorm(D, dtype=torch.float64)
        self.last = nn.Linear(D, OUT, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.last.weight.copy_(4 * last[:OUT])

    def forward(self, x):
        x = x.view(2, 5, D)
        q, k, v = self.project(self.norm(x), *self.qkv)
        x = x + F.scaled_dot_product_attention(q, k, v)
        gate, up = self.gate(self.norm(x), *self.pair)
        return self.last(F.silu(gate) * up).flatten(0, 1)


def apart(q, k, v, biases):
    return lambda x, *p: [F.linear(x, w, b) for w, b in zip(p[:3], p[3:], strict=True)], [q, k, v, *biases]


def packed(take):
    """Query, key and value in one matrix, and how to take them out of the product."""
    return lambda q, k, v, biases: (lambda x, w, b: take(F.linear(x, w, b)), [torch.cat([q, k, v]), torch.cat(biases)])


def interleaved(q, k, v, biases):
    """Packed within each of three heads of two, as GPT-NeoX stores them."""
    w = torch.stack([m.view(3, 2, D) for m in (q, k, v)], 1).reshape(3 * D, D)
    return (
        lambda x, w, b: [part.flatten(2) for part in F.linear(x, w, b).view(2, 5, 3, 6).chunk(3, -1)],
        [w, torch.cat(biases)],
    )


def gates_apart(gate, up):
    return lambda x, g, u: (F.linear(x, g), F.linear(x, u)), [gate, up]


PROJECTIONS = {
    "split": packed(lambda h: h.split(D, -1)),
    "chunk": packed(lambda h: h.chunk(3, -1)),
    "unbind": packed(lambda h: h.unflatten(-1, (3, D)).unbind(-2)),
    "selects": packed(lambda h: [h.unflatten(-1, (3, D))[..., i, :] for i in range(3)]),
    "slices": packed(lambda h: [h[..., i * D : (i + 1) * D] for i in range(3)]),
    "moved to the front": packed(lambda h: list(h.unflatten(-1, (3, D)).movedim(-2, 0))),
    "bias added afterwards": lambda q, k, v, biases: (
        lambda x, w, b: (x @ w + b).chunk(3, -1), [torch.cat([q, k, v]).T.contiguous(), torch.cat(biases)],
    ),
    "weights split beforehand": lambda q, k, v, biases: (
        lambda x, w, b: [F.linear(x, m, c) for m, c in zip(w.chunk(3), b.chunk(3), strict=True)],
        [torch.cat([q, k, v]), torch.cat(biases)],
    ),
    "weights unbound": lambda q, k, v, biases: (
        lambda x, w, b: [F.linear(x, m, c) for m, c in zip(w.unbind(0), b.unbind(0), strict=True)],
        [torch.stack([q, k, v]), torch.stack(biases)],
    ),
    "within heads": interleaved,
}  # fmt: skip

GATES = {
    "one matrix, chunk": lambda g, u: (lambda x, w: F.linear(x, w).chunk(2, -1), [torch.cat([g, u])]),
    "one matrix, every other row": lambda g, u: (
        lambda x, w: (lambda h: (h[..., ::2], h[..., 1::2]))(F.linear(x, w)), [torch.stack([g, u], 1).flatten(0, 1)],
    ),
    "one einsum": lambda g, u: (
        lambda x, w: torch.einsum("bti,koi->kbto", x, w).unbind(0), [torch.stack([g, u])],
    ),
    "a stack by bmm": lambda g, u: (
        lambda x, w: torch.bmm(x.flatten(0, 1).expand(2, -1, -1), w.mT).view(2, 2, 5, D).unbind(0),
        [torch.stack([g, u])],
    ),
}  # fmt: skip


@OPTIMISERS
@pytest.mark.parametrize(
    ("projections", "gates"),
    [*((p, gates_apart) for p in PROJECTIONS.values()), *((apart, g) for g in GATES.values())],
    ids=[*PROJECTIONS, *GATES],
)
def test_packed_maps_take_the_steps_that_they_would_take_apart(projections, gates, optimiser_class):
    reference, spelt = Attention(apart, gates_apart), Attention(projections, gates)
    start = outputs(reference)
    torch.testing.assert_close(outputs(spelt), start, rtol=0, atol=1e-12)
    end = outputs(train(reference, optimiser_class))
    assert (end - start).abs().max() > 0.01
    torch.testing.assert_close(outputs(train(spelt, optimiser_class)), end, rtol=0, atol=1e-10)


@OPTIMISERS
def test_functional_call_is_read_like_a_call(optimiser_class):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            reference = reference_network()
            self.shell = [Reference()]  # not a child: its own weights are not trained
            self.weights = nn.ParameterDict(
                {name.replace(".", "_"): nn.Parameter(p.detach()) for name, p in reference.named_parameters()}
            )

        def forward(self, x):
            names = [name for name, _ in self.shell[0].named_parameters()]
            return functional_call(self.shell[0], {name: self.weights[name.replace(".", "_")] for name in names}, (x,))

    end = outputs(train(reference_network(), optimiser_class))
    torch.testing.assert_close(outputs(train(Wrapped(), optimiser_class)), end, rtol=0, atol=1e-10)


class Stacked(nn.Module):
    """Two square layers and a readout; `take` says how the two come out of what `store` makes of their weights."""

    def __init__(self, store, take):
        super().__init__()
        torch.manual_seed(3)
        # one below and one above the size at which StochasticAGD holds a hidden matrix: each is held on its own
        weights = [torch.randn(H, H, dtype=torch.float64) / math.sqrt(H) * size for size in (0.5, 1.5)]
        self.weights = nn.ParameterList(nn.Parameter(p) for p in store(*weights))
        self.last = nn.Linear(H, OUT, bias=False, dtype=torch.float64)
        self.take = take

    def forward(self, x):
        first, second = self.take(*self.weights)
        h = torch.tanh(F.linear(F.pad(x, (0, H - D)), first))
        return self.last(torch.tanh(F.linear(h, second)))


STACKS = {
    "a stack, by index": (lambda a, b: [torch.stack([a, b])], lambda w: (w[0], w[1])),
    "a stack, unbound": (lambda a, b: [torch.stack([a, b])], lambda w: w.unbind(0)),
    "one above the other": (lambda a, b: [torch.cat([a, b])], lambda w: w.chunk(2)),
    "a flat buffer, sliced": (
        lambda a, b: [torch.cat([a.flatten(), b.flatten()])],
        lambda w: (w[: H * H].view(H, H), w[H * H :].view(H, H)),
    ),
    "a flat buffer, split": (
        lambda a, b: [torch.cat([a.flatten(), b.flatten()])],
        lambda w: [piece.view(H, H) for piece in w.split(H * H)],
    ),
}


@OPTIMISERS
@pytest.mark.parametrize("name", STACKS)
def test_layers_that_are_stored_in_one_tensor_take_the_steps_that_they_would_take_apart(name, optimiser_class):
    reference, spelt = Stacked(lambda a, b: [a, b], lambda a, b: (a, b)), Stacked(*STACKS[name])
    torch.testing.assert_close(outputs(spelt), outputs(reference), rtol=0, atol=1e-12)
    end = outputs(train(reference, optimiser_class))
    torch.testing.assert_close(outputs(train(spelt, optimiser_class)), end, rtol=0, atol=1e-10)
