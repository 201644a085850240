"""A saved state: whose it is, what hooks make of it, and torch's distributed checkpoints."""

from copy import deepcopy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from autogd import AGD, StochasticAGD, initialise_
from autogd.engine.base import VERSION

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
