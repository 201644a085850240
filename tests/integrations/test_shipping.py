"""Averaged weights are swapped into a model and out again, bit for bit."""

import pytest
import torch
from torch import nn

from autogd.integrations.shipping import averaged, bare, rates_taken, recall, ship
from averaging_optimiser import MeanAGD


def trained():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    optimiser = MeanAGD(model)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimiser.step()
    return list(model.parameters()), optimiser


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_shipped_weights_are_the_averaged_ones_and_recalling_is_exact():
    parameters, optimiser = trained()
    before = [p.detach().clone() for p in parameters]
    assert not equal(before, optimiser.means())
    training = ship([optimiser])
    assert equal(parameters, optimiser.means())
    recall([optimiser], training)
    assert equal(parameters, before)


def test_an_optimiser_in_a_wrapper_is_found_and_others_are_passed_over():
    accelerate = pytest.importorskip("accelerate")
    parameters, optimiser = trained()
    wrapped = accelerate.Accelerator(cpu=True).prepare(optimiser)
    assert wrapped is not optimiser
    assert bare(wrapped) is optimiser
    other = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    with averaged([wrapped, other]):
        assert equal(parameters, optimiser.means())
    assert not equal(parameters, optimiser.means())


def test_the_rate_taken_has_the_multipliers_of_each_group():
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    optimiser = MeanAGD([{"params": first}, {"params": second, "lr": 0.5, "gain": 0.5}])
    second(first(torch.ones(1, 3))).sum().backward()
    before = second.weight.detach().clone()
    optimiser.step()
    rates = rates_taken(optimiser)
    assert rates[0] == optimiser.learning_rate
    assert rates[1] == optimiser.learning_rate / 4
    # four tensors, two of them weights: a weight and its bias are one layer of L = 2; the bias has its share
    moved = (second.weight.detach() - before).norm() / (1 / 3) ** 0.5
    assert 0 < moved <= rates[1] / 2
    assert rates_taken(torch.optim.SGD(first.parameters(), lr=0.1)) == [0.1]
