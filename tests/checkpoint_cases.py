"""Cases for `many_ranks`: what is saved on four ranks goes on with two and with one."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from autogd import AGD, StochasticAGD
from rank_cases import EveryAtom, whole

SAVED, MORE = 5, 5
MAKERS = {"AGD": AGD, "StochasticAGD": StochasticAGD}


def steps(forward, optimiser, start, count, share=(0, 1)):
    for i in range(start, start + count):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(11, (8, 4), generator=generator).chunk(share[1])[share[0]]
        y = torch.randn(8, 3, generator=generator).double().chunk(share[1])[share[0]]
        optimiser.zero_grad()
        (forward(x) - y).square().mean().backward()
        optimiser.step()


def alone():
    """The weights, averages and η after all steps on one process without a break."""
    found = {}
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        model = EveryAtom().double()
        optimiser = make(model)
        steps(model, optimiser, 0, SAVED + MORE)
        with optimiser.averaged():
            average = whole(model)
        found[name] = whole(model), average, optimiser.learning_rate
    return found


def _state(model, optimiser):
    weights, state = get_state_dict(model, optimiser)
    return {"model": weights, "optimiser": state}


def _place(kind, model, world):
    if kind == "fsdp":
        return fully_shard(model)
    if kind == "hsdp":
        return fully_shard(model, mesh=init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "shards")))
    return DistributedDataParallel(model)


def save(rank, world, given):
    for kind in ("fsdp", "hsdp", "ddp"):
        for name, make in MAKERS.items():
            torch.manual_seed(0)
            model = EveryAtom().double()
            forward = _place(kind, model, world)
            optimiser = make(model)
            steps(forward, optimiser, 0, SAVED, (rank, world))
            dcp.save(_state(model, optimiser), checkpoint_id=f"{given['folder']}/{kind}-{name}")


def load(rank, world, given):
    for kind in ("fsdp", "hsdp", "ddp"):
        for name, make in MAKERS.items():
            torch.manual_seed(rank)  # other weights than were saved
            model = EveryAtom().double()
            if world > 1:
                for p in model.parameters():
                    dist.broadcast(p.data, 0)
            forward = _place("fsdp", model, world) if world > 1 else model
            optimiser = make(model)
            state = _state(model, optimiser)
            dcp.load(state, checkpoint_id=f"{given['folder']}/{kind}-{name}")
            set_state_dict(model, optimiser, model_state_dict=state["model"], optim_state_dict=state["optimiser"])
            steps(forward, optimiser, SAVED, MORE, (rank, world))
            weights, average, rate = given["alone"][name]
            what = f"{name}, saved under {kind}, on {world}"
            torch.testing.assert_close(optimiser.learning_rate, rate, rtol=1e-8, atol=0, msg=f"{what}: η")
            for key, value in weights.items():
                torch.testing.assert_close(whole(model)[key], value, rtol=1e-8, atol=1e-8, msg=f"{what}: {key}")
            with optimiser.averaged():
                for key, value in average.items():
                    torch.testing.assert_close(whole(model)[key], value, rtol=1e-8, atol=1e-8, msg=f"{what}: {key}")
