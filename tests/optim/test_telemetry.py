"""The telemetry of the last step says what it did."""

import copy

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.geometry.norms import operator_norm

# lone tensors: that atoms are then guessed has a test of its own
pytestmark = pytest.mark.filterwarnings("ignore:.*told from shape alone")


def network():
    torch.manual_seed(0)
    kernels = nn.Conv1d(4, 8, 3)
    return initialise_(
        nn.Sequential(nn.Embedding(11, 6), nn.Flatten(0, 1), nn.Unflatten(0, (2, 4)), kernels, nn.Linear(4, 5))
    )


def backward(model):
    model(torch.tensor([[0, 1, 2, 3], [3, 4, 5, 6]])).square().mean().backward()


def test_there_is_nothing_to_tell_before_the_first_step_and_after_a_state_is_loaded():
    model = network()
    optimiser = AGD(model)
    assert optimiser.last_step is None
    backward(model)
    optimiser.step()
    assert optimiser.last_step is not None
    optimiser.load_state_dict(optimiser.state_dict())
    assert optimiser.last_step is None


def test_dual_norms_add_up_to_depth_times_the_gradient_summary():
    model = network()
    optimiser = AGD(model)
    backward(model)
    optimiser.step()
    step = optimiser.last_step
    assert set(step.dual_norms) == set(dict(model.named_parameters()))
    depth = sum(atom.depth for atom in optimiser._architecture.atoms.values())
    torch.testing.assert_close(sum(step.dual_norms.values()), depth * optimiser.gradient_summary)
    weight = model[4].weight
    # a matrix of 5 × 4 by hand
    torch.testing.assert_close(step.dual_norms["4.weight"], (5 / 4) ** 0.5 * weight.grad.norm())
    assert step.learning_rate is optimiser.learning_rate


@pytest.mark.parametrize("settings", [{}, {"gain": 0.5}, {"maximize": True}])
def test_update_sizes_are_those_of_the_tensors_as_they_moved(settings):
    model = network()
    optimiser = AGD(model, **settings)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    backward(model)
    optimiser.step()
    for name, parameter in model.named_parameters():
        atom = optimiser._architecture.atoms[parameter]
        moved = atom.cut(parameter.detach() - before[name]).square()
        norms = moved.sum(atom.inner).sqrt()
        size = optimiser.last_step.update_sizes[name]
        torch.testing.assert_close(size, norms.max() / atom.scale, rtol=1e-4, atol=1e-7, msg=name)
        assert operator_norm(parameter - before[name], atom).max() / atom.scale <= size * (1 + 1e-4)


def test_a_tensor_that_did_not_move_has_size_zero_and_one_of_another_group_its_own_rate():
    model = network()
    optimiser = AGD([{"params": [model[3].weight]}, {"params": [model[4].weight], "lr": 0.25}])
    backward(model)
    model[3].weight.grad.zero_()
    optimiser.step()
    sizes = optimiser.last_step.update_sizes
    still, moved = (sizes[f"parameter 0 of group {group}"] for group in (0, 1))
    assert float(still) == 0
    torch.testing.assert_close(moved, 0.25 * optimiser.learning_rate / 2)


def test_an_optimiser_that_has_stepped_can_be_copied():
    model = network()
    optimiser = AGD(model)
    backward(model)
    optimiser.step()
    twin_model, twin = copy.deepcopy((model, optimiser))
    backward(twin_model)
    twin.step()
    assert twin.last_step.dual_norms.keys() == optimiser.last_step.dual_norms.keys()


@pytest.mark.parametrize("kind", [AGD, StochasticAGD])
def test_a_batch_without_a_gradient_is_told_as_a_step_of_size_zero(kind):
    model = network()
    optimiser = kind(model)
    backward(model)
    optimiser.step()
    for parameter in model.parameters():
        parameter.grad.zero_()
    optimiser.step()
    step = optimiser.last_step
    assert float(optimiser.learning_rate) == float(step.learning_rate) == float(optimiser.gradient_summary) == 0
    assert all(float(norm) == 0 for norm in step.dual_norms.values())
    assert all(float(size) == 0 for size in step.update_sizes.values())
