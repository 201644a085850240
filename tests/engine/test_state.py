"""A saved state: whose it is, what hooks make of it, and torch's distributed checkpoints."""

from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from autogd import AGD, StochasticAGD, initialise_
from autogd.engine.base import VERSION
from autogd.engine.distributed.ranks import Peers

KINDS = {
    "AGD": AGD,
    "AGD with averaging": lambda model: AGD(model, averaging=True),
    "StochasticAGD": StochasticAGD,
}


def stepped(kind, dtype=torch.float32):
    torch.manual_seed(0)
    model = initialise_(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))).to(dtype)
    optimiser = kind(model)
    step(model, optimiser)
    return model, optimiser


def step(model, optimiser, x=None):
    optimiser.zero_grad()
    x = torch.ones(3, 4) if x is None else x
    model(x.to(model[0].weight.dtype)).square().mean().backward()
    optimiser.step()


@pytest.mark.parametrize("name", KINDS)
def test_the_state_of_another_optimiser_is_refused_before_anything_changes(name):
    model, optimiser = stepped(KINDS[name])
    others = {other: stepped(kind)[1] for other, kind in KINDS.items() if other != name}
    others |= {"another optimiser": torch.optim.Adam(model.parameters(), 0.001)}
    before = deepcopy(optimiser.state_dict())
    for made_by, other in others.items():
        message = f"made by {made_by}.*, and this is {name} {VERSION}; start without it: leave load_state_dict out"
        with pytest.raises(ValueError, match=message):
            optimiser.load_state_dict(other.state_dict())
    after = optimiser.state_dict()
    assert after["param_groups"][0]["lr"] == before["param_groups"][0]["lr"] == 1.0
    torch.testing.assert_close(after["state"], before["state"], rtol=0, atol=0)


@pytest.mark.parametrize("name", KINDS)
def test_an_older_state_is_refused(name):
    _, optimiser = stepped(KINDS[name])
    for made_by, said in ((None, "an older version"), (f"{name} 1", f"{name} 1")):
        state = deepcopy(optimiser.state_dict())
        for group in state["param_groups"]:
            group.pop("made_by")
            group |= {"made_by": made_by} if made_by else {}
        with pytest.raises(ValueError, match=f"made by {said}, and this is {name} {VERSION}"):
            optimiser.load_state_dict(state)


@pytest.mark.parametrize("name", ["AGD with averaging", "StochasticAGD"])
def test_hooks_have_their_say_in_the_precision_that_a_state_is_held_in(name):
    _, optimiser = stepped(KINDS[name], torch.bfloat16)
    state, seen = optimiser.state_dict(), []
    assert state["state"][0]["average"].dtype == torch.float32
    exact = 1 + 2.0**-20  # bfloat16 has no such number

    def hook(_, given):
        entries = {
            i: {**held, "average": torch.full_like(held["average"], exact)} for i, held in given["state"].items()
        }
        return {**given, "state": entries}

    optimiser.register_load_state_dict_pre_hook(hook)
    optimiser.register_load_state_dict_post_hook(lambda opt: seen.extend(s["average"] for s in opt.state.values()))
    optimiser.load_state_dict(state)
    assert seen
    assert all(average.eq(exact).all() and average.dtype == torch.float32 for average in seen)
    assert not state["state"][0]["average"].eq(exact).any()


@pytest.mark.filterwarnings("ignore")  # torch's own, about a checkpoint of one process
@pytest.mark.parametrize("name", KINDS)
def test_a_distributed_checkpoint_is_loaded_twice_in_one_process(name, tmp_path):
    model, optimiser = stepped(KINDS[name])
    weights, state = get_state_dict(model, optimiser)
    dcp.save({"model": weights, "optimiser": state}, checkpoint_id=tmp_path)
    step(model, optimiser)
    expected = deepcopy(model.state_dict())
    for _ in range(2):  # as after a spike
        step(model, optimiser, 100 * torch.ones(3, 4))
        weights, state = get_state_dict(model, optimiser)
        dcp.load({"model": weights, "optimiser": state}, checkpoint_id=tmp_path)
        set_state_dict(model, optimiser, model_state_dict=weights, optim_state_dict=state)
        step(model, optimiser)
        torch.testing.assert_close(dict(model.state_dict()), dict(expected), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["AGD with averaging", "StochasticAGD"])
@pytest.mark.parametrize("loaded", [False, True], ids=["swapped", "loaded from a swapped state"])
def test_a_copy_made_between_eval_and_train_trains_the_weights_in_training(name, loaded):
    model, optimiser = stepped(KINDS[name])
    step(model, optimiser, torch.randn(3, 4))
    in_training = deepcopy(model.state_dict())
    optimiser.eval()
    if loaded:
        state = optimiser.state_dict()
        optimiser = KINDS[name](model)
        optimiser.load_state_dict(state)
    copied, its_optimiser = deepcopy((model, optimiser))
    with pytest.raises(RuntimeError, match="train"):
        step(copied, its_optimiser)
    its_optimiser.train()
    torch.testing.assert_close(dict(copied.state_dict()), dict(in_training), rtol=0, atol=0)
    step(copied, its_optimiser)


def test_a_copy_is_refused_inside_averaged():
    model, optimiser = stepped(StochasticAGD)
    with optimiser.averaged(), pytest.raises(RuntimeError, match="leave the block first"):
        deepcopy((model, optimiser))


def test_a_copy_still_trains_a_model_of_its_own(monkeypatch):
    model, optimiser = stepped(lambda model: AGD(model, process_group=False))
    asked = []

    def find_peers(process_group, *others):
        asked.append(process_group)
        return Peers()

    monkeypatch.setattr("autogd.engine.steps.find_peers", find_peers)
    step(*deepcopy((model, optimiser)))
    assert asked == [False]


def test_ranks_compare_all_tensors_if_two_modules_have_the_same_names(monkeypatch):
    models = [nn.Linear(4, 2), nn.Linear(4, 2)]
    optimiser = AGD([{"params": model} for model in models])
    compared = []

    def find_peers(process_group, named, *others):
        compared.extend(named.values())
        return Peers()

    monkeypatch.setattr("autogd.engine.steps.find_peers", find_peers)
    sum(model(torch.ones(3, 4)).square().mean() for model in models).backward()
    optimiser.step()
    assert set(compared) == {parameter for model in models for parameter in model.parameters()}


def test_the_weights_in_training_are_saved_as_they_lie_over_the_ranks():
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        model = nn.Linear(4, 2, bias=False)
        mesh = init_device_mesh("cpu", (2,))
        model.weight = nn.Parameter(DTensor.from_local(model.weight.detach()[:1], mesh, [Shard(0)]))
        optimiser = AGD(model, averaging=True)
        model.weight.grad = DTensor.from_local(torch.ones(1, 4), mesh, [Shard(0)])
        optimiser.step()
        before = model.weight.to_local().clone()
        optimiser.eval()
        kept = optimiser.state_dict()["state"][0]["training"]
        assert kept.placements == model.weight.placements
        assert kept.shape == model.weight.shape
        optimiser.train()
        assert torch.equal(model.weight.to_local(), before)
    finally:
        dist.destroy_process_group()


def test_stale_gathered_weights_are_freed_when_a_loaded_state_goes_back_to_training(monkeypatch):
    model, optimiser = stepped(StochasticAGD)
    optimiser.eval()
    other = StochasticAGD(model)
    other.load_state_dict(optimiser.state_dict())
    seen = []
    monkeypatch.setattr("autogd.engine.swap.reshard", lambda modules: seen.extend(modules))
    other.train()
    assert model in seen


class FaintBranch(nn.Module):
    """One branch gets a millionth of the gradient; only its own weight's tells that its bias's is no rounding."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.shift = nn.Parameter(torch.zeros(3))
        self.other = nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return 1e-6 * (x @ self.weight + self.shift) + x @ self.other


@pytest.mark.parametrize("kind", [AGD, StochasticAGD])
@pytest.mark.parametrize("groups", [None, {"shift": {"gain": 0.5}}], ids=["one group", "two groups"])
def test_a_resumed_run_knows_which_weight_a_bias_belongs_to(kind, groups):
    torch.manual_seed(0)
    model = FaintBranch()
    optimiser = kind(model, groups=groups)
    batches = torch.randn(2, 8, 4).unbind()

    def step(model, optimiser, x):
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    step(model, optimiser, batches[0])
    again = deepcopy(model)
    resumed = kind(again, groups=groups)
    resumed.load_state_dict(optimiser.state_dict())
    before = model.shift.detach().clone()
    step(model, optimiser, batches[1])
    step(again, resumed, batches[1])
    assert not torch.equal(model.shift, before)
    torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore")  # torch's own, about a checkpoint of one process
def test_a_distributed_checkpoint_saved_after_eval_is_refused_if_it_lost_the_weights_in_training(tmp_path):
    model, optimiser = stepped(StochasticAGD)
    optimiser.eval()
    weights, state = get_state_dict(model, optimiser)
    dcp.save({"model": weights, "optimiser": state}, checkpoint_id=tmp_path)
    model, optimiser = stepped(StochasticAGD)
    weights, state = get_state_dict(model, optimiser)  # has no place for the weights in training
    dcp.load({"model": weights, "optimiser": state}, checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match=r"after eval\(\).*optimiser\.train\(\)"):
        set_state_dict(model, optimiser, model_state_dict=weights, optim_state_dict=state)
    step(model, optimiser)


def test_a_state_saved_after_eval_is_an_ordinary_one_once_it_is_loaded():
    model, optimiser = stepped(StochasticAGD)
    expected = optimiser.state_dict()["param_groups"]
    optimiser.eval()
    other = StochasticAGD(model)
    other.load_state_dict(optimiser.state_dict())
    other.train()
    assert [group["made_by"] for group in other.state_dict()["param_groups"]] == [g["made_by"] for g in expected]
