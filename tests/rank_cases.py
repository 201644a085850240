"""Cases for `many_ranks`: the ways to lay a network over all ranks, and training on each is training on one process."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from autogd import AGD, StochasticAGD


class Experts(nn.Module):
    """Matrices in one tensor; five, so that two ranks hold three and two of them, four ranks two, two, one and none."""

    def __init__(self, count=5, width=12):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, x):
        each = torch.bmm(x.unsqueeze(0).expand(len(self.weight), *x.shape), self.weight)
        return torch.tanh(each).sum(0)


class Block(nn.Module):
    """A table, a norm, experts, and what tensor parallelism cuts: columns of one matrix, rows of the next.

    The head is so long that it gets no owner if it is cut along its length.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.norm = nn.LayerNorm(12)
        self.experts = Experts()
        self.up = nn.Linear(12, 20)
        self.down = nn.Linear(20, 12)
        self.head = nn.Linear(12, 90)

    def forward(self, x):
        h = self.norm(self.table(x).mean(1))
        h = h + self.experts(h)
        return torch.tanh(self.head(h + self.down(torch.tanh(self.up(h))))).unflatten(1, (3, 30)).mean(2)


def _fsdp(model):
    fully_shard(model)
    return model, (dist.get_rank(), dist.get_world_size())


def _ddp(model):
    return DistributedDataParallel(model), (dist.get_rank(), dist.get_world_size())


def _hsdp(model):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "shards"))
    fully_shard(model, mesh=mesh)
    return model, (dist.get_rank(), dist.get_world_size())


def _parallel(model, mesh):
    head = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": head})


def _tensor_parallel(model):
    return _parallel(model, init_device_mesh("cpu", (dist.get_world_size(),))), (0, 1)


def _fsdp_and_tensor_parallel(model):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
    _parallel(model, mesh["tensor"])
    fully_shard(model, mesh=mesh["data"])
    return model, (mesh["data"].get_local_rank(), 2)


def _expert_parallel(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def cut(name, module, mesh):
        module.weight = nn.Parameter(distribute_tensor(module.weight.data, mesh, [Shard(0)]))

    def enter(module, inputs, mesh):
        return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)

    distribute_module(model.experts, mesh, cut, enter, lambda module, output, mesh: output.full_tensor())
    return model, (0, 1)


MESHES = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "hsdp": _hsdp,
    "tensor_parallel": _tensor_parallel,
    "fsdp_and_tensor_parallel": _fsdp_and_tensor_parallel,
    "expert_parallel": _expert_parallel,
    "alone": lambda model: (model, (0, 1)),
}
"""Each lays a network over all ranks; it gives what to call, which share of a batch is this rank's, and of how many."""


STEPS = 10
ERROR = 1e-8


class EveryAtom(nn.Module):
    """Odd sizes throughout, so that slices cut through parts and some processes hold nothing of a tensor."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.positions = nn.Parameter(torch.randn(1, 4, 12))
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.grouped = nn.Conv1d(12, 18, 3, padding=1, groups=3)
        self.transposed = nn.ConvTranspose1d(18, 6, 3, padding=1)
        self.lstm = nn.LSTM(6, 7, batch_first=True)
        self.bilinear = nn.Bilinear(7, 7, 5)
        self.slopes = nn.PReLU(5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        h = self.table(x) + self.positions
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        h = self.transposed(self.grouped(h.mT)).mT
        h, _ = self.lstm(h)
        return self.head(self.slopes(self.bilinear(h, h).mean(1)))


MAKERS = {
    "frobenius": lambda model: AGD(model, weight_decay=0.01),
    "averaged": lambda model: AGD(model, averaging=True, weight_decay=0.01),
    "spectral": lambda model: AGD(model, geometry="spectral"),
    "stochastic": lambda model: StochasticAGD(model, weight_decay=0.01),
    "stochastic, frobenius": lambda model: StochasticAGD(model, geometry="frobenius"),
}
ALL, BOTH = tuple(MAKERS), ("frobenius", "spectral", "stochastic")


def whole(model):
    return {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).clone() for k, v in model.state_dict().items()}


def train(build, make, mesh="alone", steps=STEPS, dtype=torch.float64):
    """η of every step, what both weights make of a batch half-way, the weights after the last, and the averaged ones.

    Args:
        build: makes the network.
        make: makes its optimiser.
        mesh: the name of one of `MESHES`.
        steps: how many.
        dtype: of the weights.
    """
    torch.manual_seed(0)
    model = build().to(dtype)
    forward, share = MESHES[mesh](model)
    optimiser = make(model)
    rates, outputs = [], []
    everyone = torch.randint(11, (8, 4), generator=torch.Generator().manual_seed(99))
    for i in range(steps):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(11, (8, 4), generator=generator).chunk(share[1])[share[0]]
        y = torch.randn(8, 3, generator=generator).to(dtype).chunk(share[1])[share[0]]
        optimiser.zero_grad()
        (forward(x) - y).square().mean().backward()
        optimiser.step()
        rates.append(optimiser.learning_rate)
        if i == steps // 2:  # reading both weights on the way must not change where the gradients are taken
            with torch.no_grad():
                outputs.append(model(everyone))
                with optimiser.averaged():
                    outputs.append(model(everyone))
                outputs.append(model(everyone))
    with optimiser.averaged():
        average = whole(model)
    return {"η": torch.stack(rates), "outputs": torch.stack(outputs), **whole(model)}, average, model


def alone():
    """The same on one process, to compare with."""
    found = {name: train(EveryAtom, MAKERS[name])[:2] for name in ALL}
    return found | {f"block, {name}": train(Block, MAKERS[name])[:2] for name in BOTH}


def agree(found, expected, what, error=ERROR):
    for ours, theirs in zip(found[:2], expected, strict=True):
        for key, value in theirs.items():
            torch.testing.assert_close(
                ours[key], value, rtol=error, atol=error, msg=lambda message, key=key: f"{what}, {key}: {message}"
            )


def equal_everywhere(model):
    """Bit by bit, on all ranks."""
    for name, parameter in model.named_parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, parameter), name


# every mesh ----------------------------------------------------------------------------------------------------------


def _on(mesh, rank, world, given):
    """Every optimiser; on the network with all atoms if the mesh can take it."""
    build, prefix = (EveryAtom, "") if mesh in ("ddp", "fsdp", "hsdp") else (Block, "block, ")
    for name in ALL if (mesh, world) == ("fsdp", 2) else BOTH:
        found = train(build, MAKERS[name], mesh)
        agree(found, given[prefix + name], name)
        if mesh == "ddp":
            equal_everywhere(found[2])


ddp, fsdp, hsdp, tensor_parallel, fsdp_and_tensor_parallel, expert_parallel = (
    partial(_on, mesh)
    for mesh in ("ddp", "fsdp", "hsdp", "tensor_parallel", "fsdp_and_tensor_parallel", "expert_parallel")
)


class Moved(StochasticAGD):
    """With gradients times 1 ± 1e-7, as far as another order of adding up moves them."""

    seed = 5

    def step(self, closure=None):
        generator = torch.Generator().manual_seed(self.seed)
        for parameter in self.param_groups[0]["params"]:
            parameter.grad.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=generator))
        return super().step(closure)


def in_float32_alone(make, steps=12):
    return train(EveryAtom, lambda model: make(model, process_group=False), steps=steps, dtype=torch.float32)[0]


def apart(found, one):
    """The largest difference of a weight."""
    return max(float((found[key] - value).abs().max()) for key, value in one.items() if key not in ("η", "outputs"))


def in_float32(rank, world, given):
    """In float32 ranks part from one process by rounding alone: as much as one process parts from itself.

    FSDP2 adds up gradients in another order, which moves them by 1e-7. A polar factor multiplies that, if the momentum
    has small singular values. Momentum is held in bfloat16, and where such a difference falls on an edge of its
    rounding, it becomes 1/256 of that number. Not every draw hits an edge, so the largest of three counts.
    `benchmarks/ranks.py apart` prints the figures.
    """
    one = in_float32_alone(StochasticAGD)
    draws = (type("Moved", (Moved,), {"seed": seed}) for seed in range(3))
    moved = max(apart(in_float32_alone(draw), one) for draw in draws)
    spread = apart(train(EveryAtom, StochasticAGD, "fsdp", steps=12, dtype=torch.float32)[0], one)
    assert 1e-4 < moved < 1e-2, moved
    assert spread < 3 * moved, f"FSDP2 parts by {spread}, rounding by {moved}"


class Complex(nn.Module):
    """Complex matrices, of odd sizes and in a stack; FSDP2 wants one type of numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.stack, self.last = (
            nn.Parameter(torch.randn(shape, dtype=torch.complex128) / 2) for shape in ((7, 5), (3, 7, 7), (7, 3))
        )

    def forward(self, x):
        z = (x @ self.first.mT).expand(len(self.stack), -1, -1)
        z = torch.bmm(z, self.stack)
        z = torch.complex(z.real.tanh(), z.imag.tanh()).sum(0)
        return (z @ self.last).real.clone()  # FSDP2 warns of a view


def complex_weights(rank, world, given):
    """Complex matrices are cut and owned by their real views: steps and averages are those of one process."""

    def trained(make, mesh, **settings):
        torch.manual_seed(0)
        model = Complex()
        forward, (part, parts) = MESHES[mesh](model)
        optimiser = make(model, **settings)
        for i in range(6):  # in 20 steps, spectral AGD turns rounding into 1e-5 here, on one process too
            x, y = (torch.randn(32, n, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for n in (5, 3))
            optimiser.zero_grad()
            (forward(x.chunk(parts)[part] + 0j) - y.chunk(parts)[part]).square().mean().backward()
            optimiser.step()
        weights = whole(model)
        with optimiser.averaged():
            return weights, whole(model)

    for make in (AGD, partial(AGD, geometry="spectral"), StochasticAGD):
        expected = trained(make, "alone", process_group=False)
        for mesh in ("ddp", "fsdp"):
            agree(trained(make, mesh), expected, f"complex, {mesh}, {make}")
