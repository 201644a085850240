"""Steps relative to weights that are there already."""

import copy

import pytest
import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.losses import square_loss
from autogd.models import FCN
from autogd.reading.catalogue import read_roles
from autogd.reading.initialise import measured_sizes


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
