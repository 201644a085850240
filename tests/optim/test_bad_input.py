"""What cannot be right is refused by name, and what is easy to get wrong does no harm."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.integrations.rate import DerivedRate
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


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def take(model, optimiser, steps=12):
    for i in range(steps):
        optimiser.zero_grad()
        model(torch.randn(16, 4, generator=torch.Generator().manual_seed(i))).square().mean().backward()
        optimiser.step()


@pytest.fixture
def trained():
    model = network()
    optimiser = StochasticAGD(model)
    take(model, optimiser)
    return model, optimiser


def test_evaluating_outside_of_averaged_is_told_once(trained):
    model, _ = trained
    x = torch.randn(2, 4)
    model.eval()
    with pytest.warns(UserWarning, match="the averaged ones are better: evaluate and save inside"):
        model(x)
    model(x)  # once is enough: warnings are errors here
    model.train()
    model(x)


def test_no_word_to_those_who_know(trained):
    model, optimiser = trained
    with optimiser.averaged():
        model.eval()(torch.randn(2, 4))
    model(torch.randn(2, 4))
    assert not model._forward_pre_hooks


def test_no_word_before_training_and_none_from_agd():
    for kind in (StochasticAGD, AGD):
        model = network()
        optimiser = kind(model)
        model.eval()(torch.randn(2, 4))
        take(model.train(), optimiser, 12 if kind is AGD else 1)
        model.eval()(torch.randn(2, 4))


def test_a_model_with_a_reminder_is_copied_pickled_and_compiled(trained):
    model, _ = trained
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.eval()(torch.randn(2, 4))  # a copy is not reminded
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_a_state_saved_or_loaded_among_averaged_weights_is_refused(trained):
    _, optimiser = trained
    state = optimiser.state_dict()
    with optimiser.averaged():
        for call in (optimiser.state_dict, lambda: optimiser.load_state_dict(state)):
            with pytest.raises(RuntimeError, match=r"state_dict\(\) inside averaged\(\): .* leave the block first"):
                call()
    optimiser.load_state_dict(state)


def test_eval_and_train_are_the_block_in_two_halves(trained):
    model, optimiser = trained
    held = [p.detach().clone() for p in model.parameters()]
    with optimiser.averaged():
        averages = [p.detach().clone() for p in model.parameters()]
    optimiser.eval()
    optimiser.eval()  # twice is once
    assert all(torch.equal(p, a) for p, a in zip(model.parameters(), averages, strict=True))
    with pytest.raises(RuntimeError, match=r"step\(\) after eval\(\): .* call optimiser.train\(\) first"):
        optimiser.step()
    with optimiser.averaged():  # they are there already, and stay
        pass
    assert all(torch.equal(p, a) for p, a in zip(model.parameters(), averages, strict=True))
    optimiser.train()
    optimiser.train()
    assert all(torch.equal(p, h) for p, h in zip(model.parameters(), held, strict=True))
    take(model, optimiser, 1)


def test_a_run_saved_after_eval_goes_on_to_the_bit(trained):
    model, optimiser = trained
    optimiser.eval()
    saved = copy.deepcopy((model.state_dict(), optimiser.state_dict()))
    optimiser.train()
    assert "training" not in next(iter(optimiser.state.values()))
    other = network()
    resumed = StochasticAGD(other)
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    with pytest.raises(RuntimeError, match=r"step\(\) after eval\(\)"):
        resumed.step()
    resumed.train()
    for m, o in ((model, optimiser), (other, resumed)):
        take(m, o, 3)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_averaging_is_no_setting_of_the_optimiser_that_always_averages():
    with pytest.raises(TypeError, match="StochasticAGD: averaging: there is nothing of the kind to set: leave it out"):
        StochasticAGD(nn.Linear(2, 1), averaging=False)


@pytest.mark.parametrize("kind", [AGD, StochasticAGD])
def test_a_learning_rate_is_refused_with_a_word_on_why(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__}: lr: there is no learning rate to set, η is derived"):
        kind(network(), lr=1e-3)
    with pytest.raises(TypeError, match="betas: there is nothing of the kind to set"):
        kind(network(), betas=(0.9, 0.99))
    with pytest.raises(TypeError, match="weight_dcay: there is no such argument"):
        kind(network(), weight_dcay=0.1)


@pytest.mark.parametrize("kind", [AGD, StochasticAGD])
def test_groups_by_name_keep_what_was_read(kind):
    patterns = {"0.*": {"gain": 0.5}, "*.bias": {"gain": 0.25, "weight_decay": 0.0}}
    plain, grouped = network(), network()
    grouped.load_state_dict(plain.state_dict())
    optimisers = [kind(plain, weight_decay=0.1), kind(grouped, weight_decay=0.1, groups=patterns)]
    assert [sorted(g["params"], key=id) for g in optimisers[1].param_groups] == [
        sorted(each, key=id) for each in ([grouped[0].weight], [grouped[0].bias, grouped[2].bias], [grouped[2].weight])
    ]
    assert [g["gain"] for g in optimisers[1].param_groups] == [0.5, 0.25, 1.0]
    assert [g["weight_decay"] for g in optimisers[1].param_groups] == [0.1, 0.0, 0.1]
    before = [p.detach().clone() for p in plain.parameters()]
    moves = []
    for model, optimiser in zip((plain, grouped), optimisers, strict=True):
        for group in optimiser.param_groups:
            group["weight_decay"] = 0.0
        take(model, optimiser, 1)
        moves.append([(p.detach() - b).norm() for p, b in zip(model.parameters(), before, strict=True)])
    ratios = [float(mine / theirs) for theirs, mine in zip(*moves, strict=True)]
    assert ratios == pytest.approx([0.5, 0.25, 1.0, 0.25], rel=1e-4)
    take(grouped, optimisers[1], 3)
    kind(grouped, groups=patterns).load_state_dict(optimisers[1].state_dict())


def test_groups_by_name_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"groups: encoder\.\* matches no parameter; names are like"):
        AGD(network(), groups={"encoder.*": {"gain": 0.1}})
    with pytest.raises(ValueError, match="betas cannot be set by group; use gain, lr, maximize, weight_decay"):
        AGD(network(), groups={"*": {"betas": 0.1}})
    with pytest.raises(ValueError, match="names are those of a Module's parameters"):
        AGD(network().parameters(), groups={"*": {"gain": 0.1}})
    with pytest.raises(ValueError, match="gain: expected a finite number"):
        AGD(network(), groups={"*": {"gain": -1.0}})


def test_a_schedule_on_a_rate_that_falls_by_itself_is_told_once():
    model = network()
    optimiser = StochasticAGD(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    take(model, optimiser, 1)
    scheduler.step()
    with pytest.warns(UserWarning, match="a schedule multiplies η, which falls by itself"):
        take(model, optimiser, 1)
    scheduler.step()
    take(model, optimiser, 1)


def test_a_scheduler_that_changes_nothing_says_eta():
    model = network()
    optimiser = StochasticAGD(model)
    scheduler = DerivedRate(optimiser)
    for _ in range(3):
        take(model, optimiser, 1)
        scheduler.step()
        assert scheduler.get_last_lr() == [optimiser.learning_rate.item()]


def test_a_compiled_step_tells_its_rate_and_is_not_compiled_over_and_over():
    model = network()
    optimiser = StochasticAGD(model)
    step = torch.compile(lambda: optimiser.step(), backend="eager")
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            optimiser.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            step()
            assert optimiser.learning_rate > 0
    assert not torch._dynamo.utils.counters["recompile_limit"]
