"""Bad input: a message that names the offender and the way out, and nothing lost."""

import pytest
import torch
from torch import nn

from autogd import AGD
from autogd.losses import one_hot, square_loss


class Mystery(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(3, 3))


def test_an_architecture_is_never_an_error_and_a_step_that_no_pass_came_before_says_so():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), Mystery())
    optimiser = AGD(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.warns(UserWarning, match=r"1\.table: no forward pass of Sequential could be read.*register_atom"):
        optimiser.step()
    optimiser.step()  # said once


def test_an_empty_parameter_list():
    with pytest.raises(ValueError, match="the parameter list is empty; pass the Module"):
        AGD([])


def test_a_module_without_parameters():
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        AGD(nn.ReLU())


def test_a_lone_tensor_or_a_number():
    with pytest.raises(TypeError, match="pass a Module, an iterable"):
        AGD(torch.zeros(2, 2))
    with pytest.raises(TypeError, match="not a int"):
        AGD(3)


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
def test_a_sparse_gradient_of_what_is_not_an_embedding():
    p = nn.Parameter(torch.zeros(4, 4))
    p.grad = torch.eye(4).to_sparse()
    with pytest.raises(ValueError, match="parameter 0 of group 0: AGD takes sparse gradients of embeddings only"):
        AGD([p]).step()


@pytest.mark.parametrize("gain", [0.0, -1.0, float("nan"), float("inf")])
def test_a_gain_that_is_not_a_positive_number(gain):
    with pytest.raises(ValueError, match="gain: expected a finite number > 0"):
        AGD(nn.Linear(2, 2, bias=False), gain=gain)
    optimiser = AGD(nn.Linear(2, 2, bias=False))
    with pytest.raises(ValueError, match="gain: expected"):
        optimiser.add_param_group({"params": nn.Linear(2, 2, bias=False), "gain": gain})
    assert len(optimiser.param_groups) == 1


def test_a_negative_weight_decay():
    with pytest.raises(ValueError, match="weight_decay: expected a finite number ≥ 0"):
        AGD(nn.Linear(2, 2, bias=False), weight_decay=-0.1)


@pytest.mark.parametrize("setting", ["geometry", "sizes"])
def test_a_setting_that_does_not_exist(setting):
    with pytest.raises(ValueError, match=f"{setting}: 'best' is not known; use"):
        AGD(nn.Linear(2, 2, bias=False), **{setting: "best"})


def test_the_same_parameter_in_two_groups_is_named_and_the_optimiser_stays_as_it_was():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    optimiser = AGD(model)
    with pytest.raises(ValueError, match=r"weight: this parameter is in an earlier group already, as 1\.weight"):
        optimiser.add_param_group({"params": model[1]})
    assert len(optimiser.param_groups) == 1


def test_output_and_target_of_different_shapes():
    with pytest.raises(ValueError, match="square_loss: output and target must have one shape"):
        square_loss(torch.zeros(4, 10), torch.zeros(4))


def test_targets_have_the_norm_that_prescription_1_asks_for():
    assert torch.allclose(one_hot(torch.arange(5), 5).norm(dim=1), torch.full((5,), 5**0.5))


def test_two_parameters_of_one_name():
    pairs = [*nn.Linear(2, 2).named_parameters(), *nn.Linear(2, 2).named_parameters()]
    with pytest.raises(ValueError, match="weight: two parameters of one group have this name"):
        AGD(pairs)


def test_a_state_saved_without_measured_sizes():
    model = nn.Linear(2, 2, bias=False)
    with pytest.raises(ValueError, match="saved without measured sizes"):
        AGD(model, sizes="measured").load_state_dict(AGD(model).state_dict())


def test_plans_do_not_pile_up_where_gradients_come_and_go():
    model = nn.ModuleList(nn.Linear(3, 3) for _ in range(6))
    optimiser = AGD(model)
    for i in range(6):
        optimiser.zero_grad()
        model[i].weight.grad = torch.ones(3, 3)
        optimiser.step()
    assert len(optimiser._backends) <= 4
