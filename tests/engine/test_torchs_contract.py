"""What torch's own tests ask of every optimiser, on its `OptimizerInfo`: the contract that users know."""

import io
import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten

from torchs_tables import CASES, EACH, NOT_APPLICABLE, common

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*its atom is told from shape alone"),
    pytest.mark.filterwarnings("ignore:a schedule multiplies η"),  # torch's tests put one on every optimiser
]
STEPS = 20


class Problem:
    """torch's generic one: (Wx + b)² of a random matrix, a bias and a fixed input."""

    def __init__(self, dtype=torch.float64, contiguous=True):
        def drawn(*shape):
            return torch.randn(*shape, dtype=dtype) if contiguous else torch.randn(*shape, 2, dtype=dtype)[..., 0]

        self.weight, self.bias = nn.Parameter(drawn(10, 5)), nn.Parameter(drawn(10))
        self.input = torch.randn(5, dtype=dtype)

    @property
    def parameters(self):
        return [self.weight, self.bias]

    def loss(self):
        return (self.weight.mv(self.input) + self.bias).square().sum()

    def closure(self, optimiser):
        def evaluate():
            optimiser.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        return evaluate


def rule(info, given, problem):
    return info.optim_cls(problem.parameters, **given.kwargs)


def same(one, other):
    """Equal to the bit, tensors included."""
    leaves, spec = tree_flatten(one)
    others, other_spec = tree_flatten(other)
    assert spec == other_spec
    for a, b in zip(leaves, others, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def same_state(one, other):
    same(one.state_dict(), other.state_dict())


def values(problem):
    return [parameter.detach().clone() for parameter in problem.parameters]


@pytest.mark.parametrize(("info", "given"), CASES)
@pytest.mark.parametrize("schedule", range(4))
@pytest.mark.parametrize("contiguous", [True, False])
def test_the_loss_goes_the_right_way(info, given, schedule, contiguous):
    problem = Problem(torch.float32, contiguous)
    optimiser = rule(info, given, problem)
    schedulers = [make(optimiser) for make in info.scheduler_inputs[schedule]]
    closure = problem.closure(optimiser)
    before = closure().item()
    for _ in range(STEPS):
        loss = optimiser.step(closure)
        for scheduler in schedulers:
            scheduler.step(loss.item()) if isinstance(scheduler, ReduceLROnPlateau) else scheduler.step()
    after = closure().item()
    assert after > before if given.kwargs.get("maximize") else after < before


@pytest.mark.parametrize(("info", "given"), CASES)
def test_groups_have_rates_of_their_own(info, given):
    problem = Problem()
    groups = [{"params": [problem.weight], "lr": 0.5}, {"params": [problem.bias], "lr": 0.0}]
    optimiser = info.optim_cls(groups, **given.kwargs)
    scheduler = StepLR(optimiser, gamma=0.5, step_size=1)
    _, bias = values(problem)
    before = problem.loss().item()
    for _ in range(STEPS):
        optimiser.step(problem.closure(optimiser))
        scheduler.step()
    assert torch.equal(problem.bias, bias)
    assert (problem.loss().item() > before) == given.kwargs.get("maximize", False)
    assert optimiser.param_groups[0]["lr"] == 0.5 * 0.5**STEPS


@pytest.mark.parametrize(("info", "given"), CASES)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_rate_may_be_a_tensor(info, given, shape):
    weights = []
    for lr in (0.5, torch.full(shape, 0.5)):
        torch.manual_seed(0)
        problem = Problem()
        optimiser = info.optim_cls([{"params": problem.parameters, "lr": lr}], **given.kwargs)
        scheduler = StepLR(optimiser, gamma=0.9, step_size=1)
        for _ in range(3):
            optimiser.step(problem.closure(optimiser))
            scheduler.step()
        weights.append(values(problem))
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-6)  # 0.5 · 0.9ⁿ rounds to float32 in a tensor


@pytest.mark.parametrize("info", EACH)
def test_what_torch_refuses_is_refused(info):
    for error in info.optim_error_inputs_func("cpu", torch.float32):
        given = error.optimizer_error_input
        params = [nn.Parameter(torch.ones(1, 1))] if given.params is None else given.params
        with pytest.raises((ValueError, TypeError, UserWarning)):
            info.optim_cls(params, **given.kwargs)


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("name", ["fused", "capturable", "differentiable", "lr"])
def test_what_does_not_apply_is_no_argument(info, name):
    assert name in NOT_APPLICABLE
    with pytest.raises(TypeError, match=name):
        info.optim_cls([nn.Parameter(torch.ones(2, 2))], **{name: True})


@pytest.mark.parametrize("info", EACH)
def test_sparse_gradients_of_matrices_are_refused_by_name(info):
    weight = nn.Parameter(torch.ones(2, 2))
    optimiser = info.optim_cls([("weight", weight)])
    weight.grad = torch.eye(2).to_sparse()
    with pytest.raises(ValueError, match=r"weight: AGD takes sparse gradients of embeddings only"):
        optimiser.step()


@pytest.mark.parametrize(("info", "given"), CASES)
def test_a_loaded_state_goes_on_as_the_first_would(info, given):
    problem = Problem()
    optimiser = rule(info, given, problem)
    for _ in range(STEPS):
        optimiser.step(problem.closure(optimiser))
    other = deepcopy(problem)
    again = rule(info, given, other)
    state = deepcopy(optimiser.state_dict())
    kept = deepcopy(state)
    again.load_state_dict(state)
    same(state, kept)  # loading does not change what is loaded
    for _ in range(STEPS):
        optimiser.step(problem.closure(optimiser))
        again.step(other.closure(again))
        torch.testing.assert_close(values(problem), values(other), rtol=0, atol=0)
    same_state(optimiser, again)


@pytest.mark.parametrize(("info", "given"), CASES)
def test_a_state_without_younger_settings_gets_their_defaults(info, given):
    problem = Problem()
    optimiser = rule(info, given, problem)
    optimiser.step(problem.closure(optimiser))
    state = deepcopy(optimiser.state_dict())
    for group in state["param_groups"]:
        for flag in info.not_og_supported_flags:
            group.pop(flag, None)
    optimiser.load_state_dict(state)
    optimiser.step(problem.closure(optimiser))


@pytest.mark.parametrize(("info", "given"), CASES)
def test_a_state_is_saved_and_read_without_unpickling_classes(info, given):
    problem = Problem()
    optimiser = rule(info, given, problem)
    for _ in range(3):
        optimiser.step(problem.closure(optimiser))
    file = io.BytesIO()
    torch.save(optimiser.state_dict(), file)
    file.seek(0)
    again = rule(info, given, deepcopy(problem))
    again.load_state_dict(torch.load(file, weights_only=True))
    same_state(optimiser, again)


@pytest.mark.parametrize(("info", "given"), CASES)
@pytest.mark.parametrize("to_names", [True, False])
def test_a_state_goes_between_named_and_unnamed_parameters(info, given, to_names):
    problem = Problem()
    named = list(zip(("weight", "bias"), problem.parameters, strict=True))
    optimisers = [info.optim_cls(params, **given.kwargs) for params in (named, problem.parameters)]
    source, target = optimisers[:: -1 if to_names else 1]
    source.step(problem.closure(source))
    target.load_state_dict(deepcopy(source.state_dict()))
    target.step(problem.closure(target))
    if to_names:
        assert target.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("default", [torch.float64, torch.float32])
def test_foreach_matches_the_loop(info, dtype, default, monkeypatch):
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)  # tests/engine/test_native.py has the C passes
    for given in info.optim_inputs_func(device="cpu"):
        weights = []
        for foreach in (False, True):
            torch.manual_seed(0)
            problem = Problem(dtype)
            optimiser = info.optim_cls(problem.parameters, **{**given.kwargs, "foreach": foreach})
            torch.set_default_dtype(default)
            try:
                for _ in range(7):
                    optimiser.step(problem.closure(optimiser))
            finally:
                torch.set_default_dtype(torch.float32)
            weights.append(values(problem))
        torch.testing.assert_close(*weights)


@pytest.mark.parametrize(("info", "given"), CASES)
@pytest.mark.parametrize("grad", [None, 0.0])
def test_without_gradients_nothing_moves(info, given, grad):
    problem = Problem()
    optimiser = rule(info, given, problem)
    optimiser.step(problem.closure(optimiser))
    before, state = values(problem), deepcopy(optimiser.state_dict())
    for parameter in problem.parameters:
        parameter.grad = None if grad is None else torch.zeros_like(parameter)
    optimiser.step()
    torch.testing.assert_close(values(problem), before, rtol=0, atol=0)
    same(optimiser.state_dict(), state)


@pytest.mark.parametrize("info", EACH)
def test_it_can_be_printed_copied_and_pickled(info):
    problem = Problem()
    optimiser = info.optim_cls(problem.parameters)
    optimiser.step(problem.closure(optimiser))
    assert info.name in repr(optimiser)
    for copied in (deepcopy(optimiser), pickle.loads(pickle.dumps(optimiser))):
        assert {name for name in vars(copied) if name[0] != "_"} == {name for name in vars(optimiser) if name[0] != "_"}
        same_state(copied, optimiser)


@pytest.mark.parametrize("info", EACH)
def test_hooks_run_around_a_step_in_order(info):
    problem, seen = Problem(), []
    optimiser = info.optim_cls(problem.parameters)
    handles = [
        optimiser.register_step_pre_hook(lambda opt, args, kwargs: seen.append("before")),
        optimiser.register_step_post_hook(lambda opt, args, kwargs: seen.append("after")),
        register_optimizer_step_pre_hook(lambda opt, args, kwargs: seen.append("any before")),
        register_optimizer_step_post_hook(lambda opt, args, kwargs: seen.append("any after")),
    ]
    optimiser.step(problem.closure(optimiser))
    assert seen == ["any before", "before", "after", "any after"]
    for handle in handles:
        handle.remove()
    optimiser.step(problem.closure(optimiser))
    assert len(seen) == 4


@pytest.mark.parametrize("info", EACH)
def test_hooks_see_and_change_a_state_dict_on_its_way_out_and_in(info):
    problem, seen = Problem(), []
    optimiser = info.optim_cls(problem.parameters)
    optimiser.step(problem.closure(optimiser))
    optimiser.register_state_dict_pre_hook(lambda opt: seen.append("out"))
    optimiser.register_state_dict_post_hook(lambda opt, state: {**state, "mine": 7})
    state = optimiser.state_dict()
    assert (seen, state["mine"]) == (["out"], 7)

    def changed(opt, state):
        assert opt is optimiser
        return {**state, "param_groups": [{**group, "lr": 0.25} for group in state["param_groups"]]}

    optimiser.register_load_state_dict_pre_hook(changed)
    optimiser.register_load_state_dict_post_hook(lambda opt: seen.append("in"))
    optimiser.load_state_dict(state)
    assert (seen, optimiser.param_groups[0]["lr"]) == (["out", "in"], 0.25)


@pytest.mark.parametrize("info", EACH)
def test_a_gradient_scaler_skips_what_is_not_finite(info):
    problem = Problem(torch.float32)
    optimiser, scaler = info.optim_cls(problem.parameters), torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(problem.loss()).backward()
    problem.bias.grad[0] = torch.inf
    before = values(problem)
    scaler.step(optimiser)
    scaler.update()
    torch.testing.assert_close(values(problem), before, rtol=0, atol=0)
    optimiser.zero_grad()
    loss = problem.loss()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    assert problem.loss() < loss


@pytest.mark.parametrize("info", EACH)
def test_its_step_has_a_name_in_profiles(info):
    problem = Problem()
    optimiser = info.optim_cls(problem.parameters)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimiser.step(problem.closure(optimiser))
    names = {event.name for event in profile.events()}
    assert f"Optimizer.step#{info.name}.step" in names
    assert common.OptimizerInfo is type(info)
