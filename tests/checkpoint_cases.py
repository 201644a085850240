"""Cases for `many_ranks`: what ranks saved, others go on with, on any mesh, and after a rank is lost."""

import os
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.distributed_c10d import _set_pg_timeout

from autogd import AGD, StochasticAGD
from rank_cases import MESHES, Block, EveryAtom, whole

SAVED, MORE = 3, 2
MAKERS = {"AGD": AGD, "StochasticAGD": StochasticAGD}
MESHES_OF_FOUR = ["ddp", "fsdp", "hsdp", "tensor_parallel", "fsdp_and_tensor_parallel", "expert_parallel"]


def steps(forward, optimiser, start, count, share=(0, 1)):
    for i in range(start, start + count):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(11, (8, 4), generator=generator).chunk(share[1])[share[0]]
        y = torch.randn(8, 3, generator=generator).double().chunk(share[1])[share[0]]
        optimiser.zero_grad()
        (forward(x) - y).square().mean().backward()
        optimiser.step()


def trained(mesh):
    """Networks and optimisers: all under FSDP2; elsewhere the network that every mesh takes, and who has a state."""
    builds, makers = ((Block, EveryAtom), MAKERS) if mesh == "fsdp" else ((Block,), ["StochasticAGD"])
    return [(build, name) for build in builds for name in makers]


def found_in(model, optimiser):
    """Weights, averages and η."""
    with optimiser.averaged():
        average = {f"average of {name}": value for name, value in whole(model).items()}
    return {"η": optimiser.learning_rate.clone(), **whole(model), **average}


def make(build, name, mesh, seed):
    torch.manual_seed(seed)
    model = build().double()
    forward, share = MESHES[mesh](model)
    return model, forward, share, MAKERS[name](model)


def alone(cases):
    """After all steps on one process, without a break."""
    found = {}
    for build, name in cases:
        model, forward, share, optimiser = make(build, name, "alone", seed=0)
        steps(forward, optimiser, 0, SAVED + MORE, share)
        found[build, name] = found_in(model, optimiser)
    return found


def state_of(model, optimiser):
    weights, state = get_state_dict(model, optimiser)
    return {"model": weights, "optimiser": state}


def loaded(build, name, mesh, folder):
    model, forward, share, optimiser = make(build, name, mesh, seed=1)  # other weights than were saved
    state = state_of(model, optimiser)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimiser, model_state_dict=state["model"], optim_state_dict=state["optimiser"])
    return model, forward, share, optimiser


def compare(model, optimiser, expected, what):
    found = found_in(model, optimiser)
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], value, rtol=1e-8, atol=1e-8, msg=lambda message, key=key: f"{what}: {key}: {message}"
        )


def save(rank, world, given):
    for mesh in MESHES_OF_FOUR:
        for build, name in trained(mesh):
            model, forward, share, optimiser = make(build, name, mesh, seed=0)
            steps(forward, optimiser, 0, SAVED, share)
            dcp.save(state_of(model, optimiser), checkpoint_id=f"{given['folder']}/{mesh}-{build.__name__}-{name}")


def load(rank, world, given):
    others = MESHES_OF_FOUR if world > 1 else ["alone"]
    cases = [(saved, mesh, Block, "StochasticAGD") for saved in MESHES_OF_FOUR for mesh in others]
    cases += [("fsdp", "fsdp" if world > 1 else "alone", *each) for each in trained("fsdp")]
    for saved, mesh, build, name in cases:
        folder = f"{given['folder']}/{saved}-{build.__name__}-{name}"
        model, forward, share, optimiser = loaded(build, name, mesh, folder)
        steps(forward, optimiser, SAVED, MORE, share)
        what = f"{build.__name__}, {name}, saved on {saved}, goes on with {world}, {mesh}"
        compare(model, optimiser, given["alone"][build, name], what)


CLOSED = r"Connection (closed|reset)|Broken pipe"  # gloo's words
WAYS = ("hangs", "dies")


def _train(rank, world, folder, lose, take):
    """Train, save, go on; in the last step, the last rank is lost, and the others end with torch's own error."""
    model, forward, share, optimiser = make(Block, "StochasticAGD", "fsdp", seed=0)
    steps(forward, optimiser, 0, SAVED, share)
    dcp.save(state_of(model, optimiser), checkpoint_id=folder)
    steps(forward, optimiser, SAVED, MORE - 1, share)
    step = optimiser.step
    optimiser.step = lose if rank == world - 1 else lambda: take(step)
    steps(forward, optimiser, SAVED + MORE - 1, 1, share)


def hangs(rank, world, given):
    def take(step):
        _set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
        with pytest.raises(RuntimeError, match=r"Timed out waiting|timeout caused pair closure|" + CLOSED):
            step()

    # `many_ranks` kills it when all others have ended
    _train(rank, world, f"{given['folder']}/hangs", signal.pause, take)


def dies(rank, world, given):
    def take(step):
        with pytest.raises(RuntimeError, match=CLOSED):
            step()

    _train(rank, world, f"{given['folder']}/dies", lambda: os.kill(os.getpid(), signal.SIGKILL), take)


def go_on(rank, world, given):
    for how in WAYS:
        model, forward, share, optimiser = loaded(Block, "StochasticAGD", "fsdp", f"{given['folder']}/{how}")
        steps(forward, optimiser, SAVED, MORE, share)
        compare(model, optimiser, given["alone"][Block, "StochasticAGD"], f"goes on after a rank {how}")
