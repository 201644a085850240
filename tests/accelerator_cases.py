"""An accelerator's route on the CPU, and cases for `many_ranks`: directions that travel in bfloat16 are near enough."""

from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from autogd import StochasticAGD
from autogd.engine.distributed.shards import local
from autogd.engine.distributed.spread import Spread
from autogd.geometry.atom import matrix
from autogd.geometry.direction import unit_direction
from autogd.geometry.polar import orthogonalise
from rank_cases import Block, train


@contextmanager
def accelerator(dtype=torch.float16):
    """Inside, one process and many take the route that they would take on an accelerator."""
    products = partial(orthogonalise, products=dtype)
    with (
        mock.patch("autogd.engine.distributed.spread.wire_dtype", return_value=torch.bfloat16),
        mock.patch("autogd.geometry.direction.orthogonalise", products),
        mock.patch("autogd.geometry.polar.orthogonalise", products),
        mock.patch("autogd.engine.distributed.dtensor.is_native", return_value=False),
        mock.patch("autogd.engine.steps.takes", return_value=False),
    ):
        yield


SHAPES = [((48, 48), 1), ((48, 48), 1), ((20, 100), 1), ((100, 20), 1), ((60, 30), 3)]  # each, and how many matrices
TALL, WIDE = ((2400, 24), 1), ((24, 2400), 1)  # these stay cut if they are cut along their length alone
LAYOUTS = {
    "copies": (None, TALL),
    "rows": ([Shard(0)], TALL),
    "columns": ([Shard(1)], WIDE),
    "copies of rows": ([Replicate(), Shard(0)], TALL),
    "rows and columns": ([Shard(0), Shard(1)], TALL),
}
STAY_CUT = {"rows", "columns", "copies of rows"}


def drawn(shapes):
    """Matrices whose singular values go from 1e-6 to 1e-9, and their singular vectors."""
    torch.manual_seed(0)
    for (rows, columns), stack in shapes:
        side = min(rows // stack, columns)
        left = torch.linalg.qr(torch.randn(stack, rows // stack, side, dtype=torch.float64))[0]
        right = torch.linalg.qr(torch.randn(stack, columns, side, dtype=torch.float64))[0]
        values = torch.logspace(0, -3, side, dtype=torch.float64)
        yield (1e-6 * (left * values) @ right.mT).reshape(rows, columns).float(), stack, values, left, right


def spread_directions(tensors, atoms):
    """What is here of the directions, and which matrices stayed cut."""
    found = {}
    spread = Spread(tensors, atoms, dist.group.WORLD)
    spread.directions(lambda i: local(tensors[i]).clone(), found.__setitem__)
    return found, spread._slabs


def directions(rank, world, given):
    """On every layout: as near to the polar factor in float64 as on one process, and equal to one process's."""
    for name, (placements, long) in LAYOUTS.items():
        every = list(drawn([*SHAPES, long]))
        atoms = [matrix(whole, stack=stack) for whole, stack, *_ in every]
        tensors = [whole for whole, *_ in every]
        if placements is not None:
            mesh = init_device_mesh("cpu", (world,) if len(placements) == 1 else (2, world // 2))
            tensors = [distribute_tensor(whole, mesh, placements) for whole in tensors]
        with accelerator():
            found, slabs = spread_directions(tensors, atoms)
            alone = [unit_direction(whole, atom, "spectral") for (whole, *_), atom in zip(every, atoms, strict=True)]
        assert list(slabs) == ([len(SHAPES)] if name in STAY_CUT else [])
        for i, (whole, stack, values, left, right) in enumerate(every):
            what, here = f"{name}, {tuple(whole.shape)}", found[i]
            if placements is not None:
                lies = {"shape": whole.shape, "stride": whole.stride()}
                here = DTensor.from_local(here, mesh, placements, run_check=False, **lies).full_tensor()
            matrices = here.double().view(stack, -1, whole.shape[1])
            got = (left.mT @ matrices @ right).diagonal(dim1=-2, dim2=-1)
            # the limits of tests/geometry/test_polar.py
            assert (got[:, values > 1 / 50] - 1).abs().max() < 0.155, what
            assert (got[:, values > 1 / 200] - 1).abs().max() < 0.26, what
            assert torch.linalg.matrix_norm(matrices, 2).max() < 1.16, what
            apart = float((here - alone[i]).norm() / alone[i].norm())
            # another kernel for another batch; or a gram that is a sum of rounded ones
            assert apart < (0.1 if i in slabs else 0.03), f"{what}: parts from one process's by {apart}"


def steps(rank, world, given):
    """Whole steps, too: weights part from one process's by little of the way that they move."""
    with accelerator():
        torch.manual_seed(0)
        start = Block().state_dict()
        one = train(Block, lambda model: StochasticAGD(model, process_group=False), steps=12, dtype=torch.float32)[0]
        for mesh in ("ddp", "fsdp"):
            many = train(Block, StochasticAGD, mesh, steps=12, dtype=torch.float32)[0]
            for name, before in start.items():
                apart = float((many[name] - one[name]).norm() / (one[name] - before).norm())
                assert apart < 0.1, f"{mesh}, {name}: parts by {apart} of the way"
            torch.testing.assert_close(many["η"], one["η"], rtol=0.02, atol=0)
