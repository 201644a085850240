"""The same network, written in two ways, takes the same step."""

import torch
from torch import nn

from autogd import AGD, atoms
from autogd.reading.catalogue import read_roles


def step(model, loss):
    """One AGD step on the model; returns η."""
    optimiser = AGD(model)
    optimiser.zero_grad()
    loss(model).backward()
    optimiser.step()
    return optimiser.learning_rate


class Attention(nn.Module):
    def __init__(self, d, fused):
        super().__init__()
        self.fused = fused
        if fused:
            self.attention = nn.MultiheadAttention(d, 2, batch_first=True)
        else:
            self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        if self.fused:
            return self.attention(x, x, x, need_weights=False)[0]
        b, t, d = x.shape
        q, k, v = (layer(x).view(b, t, 2, d // 2).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


def test_fused_and_separate_query_key_and_value_take_the_same_step():
    fused, apart = Attention(8, True).double(), Attention(8, False).double()
    with torch.no_grad():
        nn.init.normal_(fused.attention.in_proj_bias)
        for i, layer in enumerate((apart.q, apart.k, apart.v)):
            layer.weight.copy_(fused.attention.in_proj_weight.chunk(3)[i])
            layer.bias.copy_(fused.attention.in_proj_bias.chunk(3)[i])
        apart.out.load_state_dict(fused.attention.out_proj.state_dict())
    x, y = torch.randn(4, 5, 8).double(), torch.randn(4, 5, 8).double()

    def loss(model):
        return (model(x) - y).square().mean()

    assert torch.allclose(loss(fused), loss(apart))
    assert torch.allclose(step(fused, loss), step(apart, loss))
    weights = torch.cat([apart.q.weight, apart.k.weight, apart.v.weight])
    biases = torch.cat([apart.q.bias, apart.k.bias, apart.v.bias])
    assert torch.allclose(fused.attention.in_proj_weight, weights, atol=1e-12)
    assert torch.allclose(fused.attention.in_proj_bias, biases, atol=1e-12)
    assert torch.allclose(fused.attention.out_proj.weight, apart.out.weight, atol=1e-12)


class Gates(nn.Module):
    """An LSTM of eight linear layers: input, forget, cell and output gates, from the input and from the state."""

    def __init__(self, d_in, d):
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(d_in, d) for _ in range(4))
        self.of_state = nn.ModuleList(nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.of_state[0].in_features)
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (a(x[:, t]) + b(h) for a, b in zip(self.of_input, self.of_state, strict=True))
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1)


class Packed(nn.Module):
    def __init__(self, d_in, d):
        super().__init__()
        self.lstm = nn.LSTM(d_in, d, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def test_an_lstm_and_its_hand_written_gates_take_the_same_step():
    packed, apart = Packed(3, 5).double(), Gates(3, 5).double()
    with torch.no_grad():
        for i in range(4):
            for layers, suffix in ((apart.of_input, "ih"), (apart.of_state, "hh")):
                layers[i].weight.copy_(getattr(packed.lstm, f"weight_{suffix}_l0").chunk(4)[i])
                layers[i].bias.copy_(getattr(packed.lstm, f"bias_{suffix}_l0").chunk(4)[i])
    x, y = torch.randn(4, 6, 3).double(), torch.randn(4, 6, 5).double()

    def loss(model):
        return (model(x) - y).square().mean()

    assert torch.allclose(loss(packed), loss(apart))
    assert torch.allclose(step(packed, loss), step(apart, loss))
    for suffix, layers in (("ih", apart.of_input), ("hh", apart.of_state)):
        weight = torch.cat([layer.weight for layer in layers])
        assert torch.allclose(getattr(packed.lstm, f"weight_{suffix}_l0"), weight, atol=1e-12)
        bias = torch.cat([layer.bias for layer in layers])
        assert torch.allclose(getattr(packed.lstm, f"bias_{suffix}_l0"), bias, atol=1e-12)


class Loop(nn.Module):
    """A grouped convolution as a loop over its groups."""

    def __init__(self, groups, fan_in, fan_out):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(fan_in // groups, fan_out // groups, 3) for _ in range(groups))

    def forward(self, x):
        pieces = x.chunk(len(self.convs), 1)
        return torch.cat([conv(piece) for conv, piece in zip(self.convs, pieces, strict=True)], 1)


def test_a_grouped_convolution_and_a_loop_over_its_groups_take_the_same_step():
    grouped = nn.Conv2d(6, 9, 3, groups=3).double()
    loop = Loop(3, 6, 9).double()
    with torch.no_grad():
        for i, conv in enumerate(loop.convs):
            conv.weight.copy_(grouped.weight.chunk(3)[i])
            conv.bias.copy_(grouped.bias.chunk(3)[i])
    x, y = torch.randn(4, 6, 5, 5).double(), torch.randn(4, 9, 3, 3).double()

    def loss(model):
        return (model(x) - y).square().mean()

    # the tree of modules does not say that the loop's convolutions stand side by side and are one layer: it is told
    side_by_side = {f"convs.{i}.weight": lambda w, m: atoms.beside(atoms.kernel(w, m), 3) for i in range(3)}
    side_by_side |= {f"convs.{i}.bias": lambda w, m: atoms.beside(atoms.bias(w), 3) for i in range(3)}
    plain, told = (
        AGD(grouped, atoms={"bias": lambda w, m: atoms.beside(atoms.bias(w, stack=3), 3)}),
        AGD(loop, atoms=side_by_side),
    )
    for model, optimiser in ((grouped, plain), (loop, told)):
        loss(model).backward()
        optimiser.step()
    assert torch.allclose(plain.learning_rate, told.learning_rate)
    assert torch.allclose(grouped.weight, torch.cat([conv.weight for conv in loop.convs]), atol=1e-12)
    assert torch.allclose(grouped.bias, torch.cat([conv.bias for conv in loop.convs]), atol=1e-12)


def test_a_convolution_of_one_tap_and_a_linear_layer_take_the_same_step():
    conv, linear = nn.Conv2d(4, 6, 1).double(), nn.Linear(4, 6).double()
    with torch.no_grad():
        linear.weight.copy_(conv.weight.flatten(1))
        linear.bias.copy_(conv.bias)
    x = torch.randn(8, 4).double()
    a = step(conv, lambda m: m(x[:, :, None, None]).square().mean())
    b = step(linear, lambda m: m(x).square().mean())
    assert torch.allclose(a, b)
    assert torch.allclose(conv.weight.flatten(1), linear.weight, atol=1e-12)


def test_depth_counts_layers_and_gives_vectors_and_tables_less():
    model = nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 2, bias=False))
    weights = {role.name: role.atom.depth for role in read_roles(model)}
    assert weights == {
        "0.weight": 1 / 4, "1.weight": 1 / 32, "1.bias": 1 / 32, "2.weight": 1, "2.bias": 1 / 32, "3.weight": 1
    }  # fmt: skip
