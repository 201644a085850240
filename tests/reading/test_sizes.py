"""The sizes of weights: measured in this network, and given at the start."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autogd import AGD, explain, initialise_
from autogd.losses import square_loss
from autogd.models import FCN, GPT
from autogd.reading.catalogue import read_roles
from autogd.reading.initialise import measured_sizes


@given(fan_out=st.integers(1, 20), fan_in=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_all_singular_values_of_a_matrix_are_at_target(fan_out, fan_in, seed):
    layer = initialise_(nn.Linear(fan_in, fan_out, bias=False).double(), torch.Generator().manual_seed(seed))
    values = torch.linalg.svdvals(layer.weight.detach())
    assert torch.allclose(values, torch.full_like(values, math.sqrt(fan_out / fan_in)), rtol=1e-9)


@given(dimension=st.integers(1, 3), size=st.integers(1, 4), fan_out=st.integers(1, 6), fan_in=st.integers(1, 6))
def test_every_tap_of_a_kernel_is_at_target(dimension, size, fan_out, fan_in):
    layer = getattr(nn, f"Conv{dimension}d")(fan_in, fan_out, size, bias=False).double()
    taps = initialise_(layer).weight.detach().flatten(2).permute(2, 0, 1)
    values = torch.linalg.svdvals(taps)
    assert torch.allclose(values, torch.full_like(values, math.sqrt(fan_out / fan_in / size**dimension)), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_type_and_device_gets_the_same_weights_from_a_seed(dtype):
    reference = initialise_(FCN(3, 8, 4, 2), torch.Generator().manual_seed(3))
    other = initialise_(FCN(3, 8, 4, 2).to(dtype), torch.Generator().manual_seed(3))
    assert all(p.dtype == dtype for p in other.parameters())
    if dtype != torch.float64:  # a double draws other numbers from the same generator
        pairs = zip(reference.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(a.to(dtype), b) for a, b in pairs)


def test_the_model_is_returned_and_meta_tensors_pass():
    model = FCN(2, 4, 4, 4).to("meta")
    assert initialise_(model) is model


def test_without_a_generator_the_global_seed_decides():
    torch.manual_seed(5)
    a = initialise_(FCN(2, 4, 4, 4))
    torch.manual_seed(5)
    b = initialise_(FCN(2, 4, 4, 4))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_directions_are_uniform_not_signed_by_the_decomposition():
    draws = torch.stack([initialise_(nn.Linear(3, 3, bias=False)).weight.detach() for _ in range(400)])
    assert float(draws.mean(0).abs().max()) < 0.12  # a QR without its signs taken out has mean ±0.5 on the diagonal


def test_explain_tells_sizes_shares_and_what_is_frozen():
    model = initialise_(FCN(4, 16, 4, 1))
    model.layers[3].weight.requires_grad_(False)
    explanation = explain(model)
    assert explanation.depth == 3
    assert [row.share for row in explanation.rows] == [1 / 3, 1 / 3, 1 / 3, 0]
    assert explanation.rows[0].target == pytest.approx(2.0)
    assert explanation.rows[0].size == pytest.approx(2.0)
    lines = str(explanation).splitlines()
    assert lines[-2].split()[-2:] == ["frozen", "catalogue"]
    assert "layers.0.weight" in lines[2]
    assert "16×4" in lines[2]


class Tied(nn.Module):
    """A pre-norm network whose table is its readout."""

    def __init__(self, layers=3, width=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, width), nn.Embedding(8, width)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for branch in self.branches:
            x = x + branch(x)
        return self.head(self.norm(x))


def root_mean_square(tensor):
    return float(tensor.detach().square().mean().sqrt())


@pytest.mark.parametrize("batch", [None, torch.zeros(2, 8, dtype=torch.long)], ids=["a guess", "a batch"])
def test_what_is_added_to_a_tied_table_does_not_drown_it(batch):
    torch.manual_seed(0)
    model = initialise_(Tied(), batch)
    table = root_mean_square(model.tokens.weight)
    assert root_mean_square(model.positions.weight) == pytest.approx(table, rel=1e-3)
    # rows as long as those of a semi-orthogonal matrix of the readout's size, √(11/16)
    assert table == pytest.approx(math.sqrt(11 / 16) / 4, rel=1e-3)
    stream = table * math.sqrt(2)
    for branch in model.branches:
        assert float(torch.linalg.matrix_norm(branch[3].weight.detach(), 2)) == pytest.approx(
            stream * math.sqrt(16 / 64), rel=1e-3
        )
        assert float(torch.linalg.matrix_norm(branch[1].weight.detach(), 2)) == pytest.approx(2.0, rel=1e-3)


def test_a_network_whose_table_is_not_tied_starts_at_unit_size_and_looking_at_it_draws_no_numbers():
    model = GPT(vocabulary=11, context=8, depth=2, width=16)
    torch.manual_seed(0)
    initialise_(model)
    alone = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert root_mean_square(model.tokens.weight) == pytest.approx(1.0, rel=1e-5)
    assert root_mean_square(model.positions.weight) == pytest.approx(1.0, rel=1e-5)
    torch.manual_seed(0)
    initialise_(model, torch.zeros(2, 8, dtype=torch.long))
    assert all(torch.equal(alone[name], p) for name, p in model.named_parameters())


def test_raw_matrices_start_like_layers_and_zeros_that_are_meant_stay():
    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 2))
            self.low, self.up = nn.Parameter(torch.randn(8, 1)), nn.Parameter(torch.zeros(1, 2))

        def forward(self, x):
            return x @ self.weight + x @ self.low @ self.up

    model = initialise_(Raw(), torch.ones(1, 8))
    assert torch.allclose(model.weight.T @ model.weight, torch.eye(2) / 4, atol=1e-6)
    assert not model.up.any()


def loss_of(model, x, y):
    return square_loss(model(x), y)


def test_a_measured_size_is_the_operator_norm():
    model = nn.Linear(6, 4)
    size = measured_sizes(read_roles(model))
    assert size[model.weight] == pytest.approx(float(torch.linalg.matrix_norm(model.weight.detach(), 2)), rel=1e-5)
    # a bias is relative to what its layer puts out
    assert size[model.bias] / 2.0 == pytest.approx(size[model.weight] / (4 / 6) ** 0.5, rel=1e-5)


def test_a_step_is_relative_to_what_is_there():
    model = initialise_(FCN(3, 16, 8, 4))
    with torch.no_grad():
        model.layers[1].weight.mul_(0.01)
    optimiser = AGD(model, sizes="measured")
    before = [p.detach().clone() for p in model.parameters()]
    loss_of(model, torch.randn(32, 8), torch.randn(32, 4)).backward()
    optimiser.step()
    moved = [float((p.detach() - b).norm()) for p, b in zip(model.parameters(), before, strict=True)]
    assert moved[1] / moved[0] == pytest.approx(0.01 / 2**0.5, rel=1e-4)  # sizes 0.01 and √(16/8)


def test_a_trained_network_is_not_destroyed_and_improves_on_a_shifted_task():
    torch.manual_seed(0)
    teacher = FCN(3, 32, 8, 4)
    x = torch.randn(256, 8)
    y = teacher(x).detach()
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(600):
        adam.zero_grad()
        loss_of(model, x, y).backward()
        adam.step()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)  # weights as training with decay leaves them: far below Prescription 1
        y_old = model(x)
    shifted = (y_old + 0.3 * torch.tanh(x[:, :4])).detach()
    before = float(loss_of(model, x, shifted).detach())
    worst = {}
    for sizes in ("measured", "dimensional"):
        tuned = copy.deepcopy(model)
        optimiser = AGD(tuned, sizes=sizes)
        losses = []
        for _ in range(100):
            optimiser.zero_grad()
            loss = loss_of(tuned, x, shifted)
            loss.backward()
            losses.append(float(loss.detach()))
            optimiser.step()
        worst[sizes] = max(losses[:10])
        if sizes == "measured":
            assert losses[-1] < 0.75 * before
    assert worst["measured"] <= 1.02 * before
    assert worst["measured"] <= worst["dimensional"]


def test_measured_sizes_travel_with_the_state():
    model = FCN(3, 8, 8, 4)
    optimiser = AGD(model, sizes="measured")
    x, y = torch.randn(16, 8), torch.randn(16, 4)

    def steps(m, o):
        for _ in range(3):
            o.zero_grad()
            loss_of(m, x, y).backward()
            o.step()

    steps(model, optimiser)
    other = copy.deepcopy(model)
    resumed = AGD(other, sizes="measured")  # measured anew, on weights that have moved
    resumed.load_state_dict(optimiser.state_dict())
    steps(model, optimiser)
    steps(other, resumed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
