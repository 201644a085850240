"""Unregistered modules: every parameter is read from the forward pass, and the loss goes down."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from autogd import AGD, StochasticAGD, explain

D, H = 6, 8


def raw(*shape):
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


class Net(nn.Module):
    """Raw parameters by name, and a forward that is told."""

    def __init__(self, forward, **parameters):
        super().__init__()
        self.parameters_ = nn.ParameterDict(parameters)
        self.forward_ = forward

    def forward(self, x):
        return self.forward_(x, **self.parameters_)


def recurrent(x, W, U, b, out):
    h = x.new_zeros(len(x), H)
    for _ in range(3):
        r, z, n = (x @ W + b).chunk(3, -1)
        rh, zh, nh = (h @ U).chunk(3, -1)
        r, z = torch.sigmoid(r + rh), torch.sigmoid(z + zh)
        h = (1 - z) * torch.tanh(n + r * nh) + z * h
    return h @ out


def experts_by_index(x, router, up, down):
    chosen = (x @ router).argmax(-1)
    weight = torch.softmax(x @ router, -1).gather(1, chosen[:, None])
    h = F.relu(torch.bmm(up[chosen], x[:, :, None]))
    return torch.bmm(down[chosen], h)[..., 0] * weight


def experts_by_loop(x, up, down):
    out = torch.zeros(len(x), D)
    for i in range(len(up)):
        rows = torch.arange(len(x)) % len(up) == i
        out = out.index_add(0, rows.nonzero()[:, 0], F.relu(x[rows] @ up[i]) @ down[i])
    return out


def fourier(x, lift, spectral, out):
    modes = torch.fft.rfft((x @ lift).view(len(x), 2, -1))
    spectral = spectral if spectral.is_complex() else torch.view_as_complex(spectral)
    mixed = torch.einsum("bcx,cdx->bdx", modes, spectral)
    return torch.fft.irfft(mixed).flatten(1) @ out


def splines(x, coefficients, out):
    centres = torch.linspace(-2, 2, 5)
    basis = torch.exp(-((x[..., None] - centres) ** 2))
    return (basis[:, None] * coefficients).sum((-1, -2)) @ out


def graph_network(x, own, neighbours, out):
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    messages = torch.zeros(len(x), H).index_add(0, edges[1], (x @ neighbours)[edges[0]])
    return F.relu(x @ own + messages) @ out


def sparse_graph_network(x, first, out):
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(5), (len(x), len(x)), check_invariants=True)
    return F.relu(torch.sparse.mm(adjacency, x @ first)) @ out


def weight_normed(x, g, v, out):
    return F.relu(F.linear(x, g * v / v.norm(dim=1, keepdim=True))) @ out


def hypernetwork(x, z, make, out):
    return F.relu(F.linear(x, torch.tanh(z @ make).view(H, D))) @ out


def functional(x, weight, bias, out):
    return F.relu(functional_call(nn.Linear(D, H), {"weight": weight, "bias": bias}, (x,))) @ out


# the network, and of each parameter its kind and its matrices
UNREGISTERED = {
    "x @ W": (Net(lambda x, W, V: F.relu(x @ W) @ V, W=raw(D, H), V=raw(H, D)), {
        "W": ("matrix", f"1 of {H} × {D}"), "V": ("matrix", f"1 of {D} × {H}"),
    }),
    "W @ x": (Net(lambda x, W, V: (V @ F.relu(W @ x.T)).T, W=raw(H, D), V=raw(D, H)), {
        "W": ("matrix", f"1 of {H} × {D}"), "V": ("matrix", f"1 of {D} × {H}"),
    }),
    "three einsums": (
        Net(
            lambda x, a, b, c: torch.einsum(
                "ho,bh->bo", c, F.relu(torch.einsum("bh,gh->bg", F.relu(torch.einsum("bi,hi->bh", x, a)), b))
            ),
            a=raw(H, D), b=raw(H, H), c=raw(H, D),
        ),
        {"a": ("matrix", f"1 of {H} × {D}"), "b": ("matrix", f"1 of {H} × {H}"), "c": ("matrix", f"1 of {D} × {H}")},
    ),
    "experts by bmm": (
        Net(lambda x, up, down: torch.bmm(F.relu(torch.bmm(x.view(2, -1, D), up)), down).view(-1, D),
            up=raw(2, D, H), down=raw(2, H, D)),
        {"up": ("matrix", f"2 of {H} × {D}"), "down": ("matrix", f"2 of {D} × {H}")},
    ),
    "experts by index": (
        Net(experts_by_index, router=raw(D, 4), up=raw(4, H, D), down=raw(4, D, H)),
        {"router": ("matrix", f"1 of 4 × {D}"), "up": ("matrix", f"4 of {H} × {D}"),
         "down": ("matrix", f"4 of {D} × {H}")},
    ),
    "experts in a loop": (
        Net(experts_by_loop, up=raw(4, D, H), down=raw(4, H, D)),
        {"up": ("matrix", f"4 of {H} × {D}"), "down": ("matrix", f"4 of {D} × {H}")},
    ),
    "a recurrent cell": (
        Net(recurrent, W=raw(D, 3 * H), U=raw(H, 3 * H), b=raw(3 * H), out=raw(H, D)),
        {"W": ("matrix", f"3 of {H} × {D}"), "U": ("matrix", f"3 of {H} × {H}"), "b": ("bias", f"3 of {H} × 1")},
    ),
    "a low-rank pair": (
        Net(lambda x, W, A, B: x @ (W + A @ B), W=raw(D, D), A=raw(D, 2), B=raw(2, D)),
        {"A": ("matrix", f"1 of 2 × {D}"), "B": ("matrix", f"1 of {D} × 2")},
    ),
    "a hypernetwork": (
        Net(hypernetwork, z=raw(1, 3), make=raw(3, H * D), out=raw(H, D)), {"make": ("matrix", f"1 of {H * D} × 3")},
    ),
    "functional_call": (
        Net(functional, weight=raw(H, D), bias=raw(H), out=raw(H, D)),
        {"weight": ("matrix", f"1 of {H} × {D}"), "bias": ("bias", f"1 of {H} × 1")},
    ),
    "weight normalisation": (
        Net(weight_normed, g=nn.Parameter(torch.ones(H, 1)), v=raw(H, D), out=raw(H, D)),
        {"g": ("gain", f"1 of {H} × 1"), "v": ("matrix", f"1 of {H} × {D}")},
    ),
    "a Fourier layer": (
        Net(fourier, lift=raw(D, 16), spectral=raw(2, 2, 5, 2), out=raw(16, D)),
        {"spectral": ("matrix", "5 of 2 × 2")},
    ),
    "a Fourier layer with complex weights": (
        Net(fourier, lift=raw(D, 16), spectral=nn.Parameter(torch.view_as_complex(raw(2, 2, 5, 2)).detach()),
            out=raw(16, D)),
        {"spectral": ("matrix", "5 of 2 × 2")},
    ),
    "a Fourier layer of two real parts": (
        Net(lambda x, a, b, **rest: fourier(x, spectral=torch.stack([a, b], -1), **rest), lift=raw(D, 16),
            a=raw(2, 2, 5), b=raw(2, 2, 5), out=raw(16, D)),
        {"a": ("matrix", "5 of 2 × 2"), "b": ("matrix", "5 of 2 × 2")},
    ),
    "splines": (
        Net(splines, coefficients=raw(H, D, 5), out=raw(H, D)), {"coefficients": ("matrix", f"1 of {H} × {5 * D}")},
    ),
    "a graph network": (
        Net(graph_network, own=raw(D, H), neighbours=raw(D, H), out=raw(H, D)),
        {"own": ("matrix", f"1 of {H} × {D}"), "neighbours": ("matrix", f"1 of {H} × {D}")},
    ),
    "a graph network, sparse": (
        Net(sparse_graph_network, first=raw(D, H), out=raw(H, D)), {"first": ("matrix", f"1 of {H} × {D}")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])
@pytest.mark.parametrize("name", UNREGISTERED)
def test_it_is_read_and_the_loss_goes_down(name, optimiser_class):
    model, expected = UNREGISTERED[name]
    torch.manual_seed(0)
    x, y = torch.randn(10, D), torch.randn(10, D)
    rows = {row.parameter.removeprefix("parameters_."): row for row in explain(model, x).rows}
    assert {row.source for row in rows.values()} == {"graph"}
    assert {key: (rows[key].atom, rows[key].matrices) for key in expected} == expected
    start = {key: value.clone() for key, value in model.state_dict().items()}
    optimiser = optimiser_class(model)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    model.load_state_dict(start)


def test_a_u_net_of_diffusers_if_it_is_there():
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )  # fmt: skip
    batch = {"sample": torch.randn(2, 3, 8, 8), "timestep": torch.tensor([1, 2])}
    assert "shape" not in {row.source for row in explain(model, batch).rows}


@pytest.mark.parametrize("kind", ["GCNConv", "GATConv", "SAGEConv", "RGCNConv"])
def test_layers_of_torch_geometric_if_they_are_there(kind):
    layers = pytest.importorskip("torch_geometric.nn")
    settings = {"GATConv": {"heads": 2}, "RGCNConv": {"num_relations": 2}}.get(kind, {})
    model = getattr(layers, kind)(D, H, **settings)
    batch = {"x": torch.randn(5, D), "edge_index": torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])}
    if kind == "RGCNConv":
        batch["edge_type"] = torch.tensor([0, 1, 0, 1, 0])
    assert {row.source for row in explain(model, batch).rows} == {"graph"}


def split_sizes(x, w):
    first, bias, last = w.split([H * D, H, D * H])
    return F.linear(F.relu(F.linear(x, first.view(H, D), bias)), last.view(D, H))


def slices(x, w):
    return F.linear(F.relu(F.linear(x, w[: H * D].view(H, D), w[H * D : -D * H])), w[-D * H :].view(D, H))


def strided(x, w):
    first, bias = torch.as_strided(w, (H, D), (D, 1), 0), torch.as_strided(w, (H,), (1,), H * D)
    return F.linear(F.relu(F.linear(x, first, bias)), torch.as_strided(w, (D, H), (H, 1), H * D + H))


@pytest.mark.parametrize("forward", [split_sizes, slices, strided])
@pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])
def test_a_flat_buffer_of_different_shapes_is_no_bias_and_is_named(forward, optimiser_class):
    torch.manual_seed(0)
    model = Net(forward, w=nn.Parameter(torch.randn(2 * H * D + H) / 3))
    x, y = torch.randn(10, D), torch.randn(10, D)
    (row,) = explain(model, x).rows
    assert (row.atom, row.matrices, row.target) == ("flat", f"1 of {2 * H * D + H} × 1", (D / H) ** 0.5)
    assert explain(model, x).depth == 2 + 1 / 32
    optimiser = optimiser_class(model)
    losses = []
    for number in range(30):
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        losses.append(float(loss.detach()))
        if number:
            optimiser.step()
            continue
        with pytest.warns(UserWarning, match="parameters_.w: it packs tensors of different shapes"):
            optimiser.step()
    assert losses[-1] < 0.9 * losses[0]


class Mul(torch.autograd.Function):
    """A product of matrices, under the name that autograd has for a product by elements."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.T, x.T @ gradient


@pytest.mark.parametrize("shape", [(D, H), (D * H,)])
def test_a_function_of_a_users_own_is_not_mistaken_for_torchs_and_its_forward_is_read(shape):
    model = Net(lambda x, w: Mul.apply(x, w.view(D, H)), w=nn.Parameter(torch.randn(shape)))
    x = torch.randn(10, D)
    row = explain(model, x).rows[0]
    assert (row.source, row.atom, row.matrices) == ("graph", "matrix", f"1 of {H} × {D}")
    optimiser = StochasticAGD(model)
    model(x).square().mean().backward()
    optimiser.step()
    weight = next(model.parameters())
    assert optimiser._architecture.sources[weight] == "graph"


def test_a_weight_that_is_added_up_before_its_use_is_named():
    model = Net(lambda x, w: x @ w.sum(0), w=raw(3, D, H))
    optimiser = StochasticAGD(model)
    model(torch.randn(10, D)).square().mean().backward()
    with pytest.warns(UserWarning, match="parameters_.w: the forward pass of Net uses it in a function"):
        optimiser.step()
