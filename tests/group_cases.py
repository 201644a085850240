"""Cases for `many_ranks`: plain tensors that differ by rank, with a process group and without one."""

import warnings
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from autogd import AGD, StochasticAGD

STEPS = 10
MAKERS = {
    "frobenius": AGD,
    "spectral": lambda params, **more: AGD(params, geometry="spectral", **more),
    "stochastic": StochasticAGD,
}


class Experts(nn.Module):
    """A dense layer, and experts of which each sample takes one."""

    def __init__(self, count):
        super().__init__()
        self.dense = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)
        self.experts = nn.ModuleList(nn.Linear(5, 5) for _ in range(count))
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        h = self.norm(self.dense(x))
        which = torch.arange(len(x)) % len(self.experts)
        return self.head(sum(expert(h) * (which == i).unsqueeze(1) for i, expert in enumerate(self.experts)))


def stages(count):
    """Layers that stand one after the other, in as many stages; bias-free ones and others, with a norm in between."""
    layers = [nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 7, bias=False), nn.LayerNorm(7)]
    layers += [nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 2)]
    whole = nn.Sequential(*layers)
    cuts = {2: (0, 4, 9), 4: (0, 2, 4, 6, 9)}[count]
    return whole, [whole[a:b] for a, b in pairwise(cuts)]


def batch(i, share=(0, 1)):
    generator = torch.Generator().manual_seed(i)
    x, y = torch.randn(8, 6, generator=generator), torch.randn(8, 2, generator=generator)
    return tuple(each.double().chunk(share[1])[share[0]] for each in (x, y))


def train(model, optimiser, refresh=lambda: None, steps=STEPS, keep=lambda name: True):
    """η of every step; before each, `refresh` fetches what other ranks hold of the model."""
    rates = []
    for i in range(steps):
        refresh()
        x, y = batch(i)
        model.zero_grad()
        (model(x) - y).square().mean().backward()
        for name, parameter in model.named_parameters():
            if not keep(name):
                parameter.grad = None
        optimiser.step()
        rates.append(optimiser.learning_rate.clone())
    refresh()
    return torch.stack(rates)


def same(found, expected, what):
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8, msg=lambda message: f"{what}: {message}")


def fetch(parameters, source, group=None):
    for parameter in parameters:
        dist.broadcast(parameter.data, source, group=group)


# with a group: one η, that of one process ----------------------------------------------------------------------------


def pipeline(rank, world, given):
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        one = stages(world)[0].double()
        alone = make(one, process_group=False)
        expected = train(one, alone)
        torch.manual_seed(0)
        model, parts = stages(world)
        model.double()
        optimiser = make(parts[rank], process_group=dist.group.WORLD)

        def refresh(parts=parts):
            for source, part in enumerate(parts):
                fetch(part.parameters(), source)

        same(train(model, optimiser, refresh), expected, f"{name}, η")
        for key, size in optimiser.last_step.update_sizes.items():
            same(size, alone.last_step.update_sizes[key], f"{name}, step of {key}")
        for (key, ours), theirs in zip(model.named_parameters(), one.parameters(), strict=True):
            same(ours, theirs, f"{name}, {key}")


def pipeline_of_two_copies(rank, world, given):
    """Two stages, two copies of each: the group is that of the stages of one copy."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stage", "copy"))
    torch.manual_seed(0)
    one = stages(2)[0].double()
    expected = train(one, StochasticAGD(one, process_group=False))
    torch.manual_seed(0)
    model, parts = stages(2)
    model.double()
    optimiser = StochasticAGD(parts[mesh["stage"].get_local_rank()], process_group=mesh["stage"])

    def refresh():
        for stage, part in enumerate(parts):
            fetch(part.parameters(), 2 * stage + mesh["copy"].get_local_rank(), mesh["stage"].get_group())

    same(train(model, optimiser, refresh), expected, "η")
    for ours, theirs in zip(model.parameters(), one.parameters(), strict=True):
        same(ours, theirs, "weights")


def experts(rank, world, given):
    """Each rank has one expert and a copy of the dense layers; with `idle`, an expert gets no sample now and then."""
    for name, make in MAKERS.items():
        for idle in (False, True):

            def gets_a_gradient(key, idle=idle):
                return not (idle and key.startswith("experts.") and torch.rand(()).item() < 0.5)

            torch.manual_seed(0)
            one = Experts(world).double()
            torch.manual_seed(1)
            expected = train(one, make(one, process_group=False), keep=gets_a_gradient)
            torch.manual_seed(0)
            model = Experts(world).double()
            # every rank calls its own expert by the same name
            mine = {"dense": model.dense, "norm": model.norm, "expert": model.experts[rank], "head": model.head}
            optimiser = make(nn.ModuleDict(mine), process_group=dist.group.WORLD)

            def refresh(model=model):
                for source, expert in enumerate(model.experts):
                    fetch(expert.parameters(), source)

            torch.manual_seed(1)
            same(train(model, optimiser, refresh, keep=gets_a_gradient), expected, f"{name}, η")
            for (key, ours), theirs in zip(model.named_parameters(), one.parameters(), strict=True):
                same(ours, theirs, f"{name}, {key}")


def no_gradient_on_one_rank(rank, world, given):
    """A rank none of whose tensors has a gradient counts the step all the same, and goes on with the others."""
    for make in (AGD, StochasticAGD):
        now = {"step": 0}

        def tick(now=now):
            now["step"] += 1

        def keep(key, now=now):
            return int(key.split(".")[0]) < 4 or now["step"] % 2 == 1

        torch.manual_seed(0)
        one = stages(2)[0].double()
        expected = train(one, make(one, process_group=False), tick, keep=keep)
        torch.manual_seed(0)
        model, parts = stages(2)
        model.double()
        optimiser = make(parts[rank], process_group=dist.group.WORLD)
        now["step"] = 0

        def refresh(parts=parts, tick=tick):
            tick()
            for source, part in enumerate(parts):
                fetch(part.parameters(), source)

        same(train(model, optimiser, refresh, keep=keep), expected, "η")
        for (key, ours), theirs in zip(model.named_parameters(), one.parameters(), strict=True):
            same(ours, theirs, key)


# without one: refused on every rank, no hang -------------------------------------------------------------------------


def refused(make, match, backward=True):
    model, loss, optimiser = make()
    before = [p.detach().clone() for p in model.parameters()]
    if backward:
        loss().backward()
    with pytest.raises(ValueError, match=match):
        optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def refusals(rank, world, given):
    x = torch.randn(4, 6)
    for make in (AGD, StochasticAGD):

        def stage(make=make):
            torch.manual_seed(rank)
            part = nn.Linear(6, 6 + rank)
            return part, lambda: part(x).square().sum(), make(part)

        refused(stage, r"the ranks were given different parameters.*process_group=torch\.distributed\.group\.WORLD")

        def equal_stage(make=make):
            torch.manual_seed(rank)
            part = nn.Linear(6, 6)
            return part, lambda: part(x).square().sum(), make(part)

        refused(equal_stage, r"weight: this tensor differs from rank to rank\. .*process_group=")

        def expert(make=make):
            torch.manual_seed(0)
            part = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
            nn.init.normal_(part[1].weight, generator=torch.Generator().manual_seed(rank))

            def averaged_loss():
                part(x).square().sum().backward()
                for p in part[0].parameters():
                    dist.all_reduce(p.grad)
                return torch.zeros((), requires_grad=True)

            return part, averaged_loss, make(part)

        refused(expert, r"1\.weight: this tensor differs from rank to rank, while 0\.weight is the same on all")

        def forgotten(make=make):
            torch.manual_seed(0)
            part = nn.Linear(6, 6)
            return part, lambda: part(x + rank).square().sum(), make(part)

        refused(forgotten, r"weight: its weights are the same on all ranks, its gradient is not.*DistributedDataPar")

        # what is meant is taken
        model, loss, _ = equal_stage()
        loss().backward()
        make(model, process_group=False).step()


def refused_by_name(rank, world, given):
    warnings.simplefilter("ignore")  # both are deprecated
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer

    for make in (AGD, StochasticAGD):
        model = DistributedDataParallel(nn.Linear(6, 6))
        with pytest.raises(ValueError, match=r"inside ZeroRedundancyOptimizer.*fully_shard"):
            ZeroRedundancyOptimizer(model.parameters(), optimizer_class=make)
        for original in (False, True):
            model = FullyShardedDataParallel(nn.Linear(6, 6), use_orig_params=original, device_id=torch.device("cpu"))
            with pytest.raises(ValueError, match=r"FSDP1.*fully_shard"):
                make(model.parameters())
            with pytest.raises(ValueError, match=r"FSDP1.*fully_shard"):
                make(model)


def copies_that_part_later(rank, world, given):
    """Gradients that were averaged in the first step and are not in the second: refused, no weight changed."""
    torch.manual_seed(0)
    model = nn.Linear(6, 6).double()
    optimiser = StochasticAGD(model)
    for step in range(3):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).double()
        model.zero_grad()
        model(x + (rank if step == 2 else 0)).square().sum().backward()
        before = [p.detach().clone() for p in model.parameters()]
        if step < 2:
            optimiser.step()
            continue
        with pytest.raises(ValueError, match=r"differ from rank to rank, and did not in the first step"):
            optimiser.step()
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
