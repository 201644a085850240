"""Cases for `many_ranks`: what is counted in a step is what the cost model says."""

import json
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils.flop_counter import FlopCounterMode

from accelerator_cases import accelerator
from autogd import AGD, StochasticAGD
from autogd.experiments.scale import costs, tensors_of
from autogd.experiments.speed.instruments import Counted, peak_bytes
from autogd.experiments.speed.tensors import gpt2, llama


def placed(model, mesh, placements):
    """The model with every parameter on the mesh, and with a gradient there."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            full = torch.randn(parameter.shape)
            spread = nn.Parameter(distribute_tensor(full, mesh, placements))
            spread.grad = distribute_tensor(torch.randn(parameter.shape), mesh, placements)
            module._parameters[name] = spread
    return model


NETWORKS = {
    # GPT-2's shapes at an eighth of the width
    "copies of shards": partial(gpt2, width=96, depth=4, context=64, vocabulary=300),
    "shards": partial(gpt2, width=96, depth=4, context=64, vocabulary=300),
    # a head that stays cut
    "long head": partial(llama, width=64, depth=2, hidden=192, keys=32, vocabulary=8000),
}


def counts(rank, world, given):
    """Bytes and FLOPs on every rank, and memory."""
    for name, build in NETWORKS.items():
        mesh = init_device_mesh("cpu", (1, world) if name == "copies of shards" else (world,))
        placements = [Replicate(), Shard(0)][-mesh.ndim :]
        tensors, kind = tensors_of(build()), "hsdp" if mesh.ndim == 2 else "fsdp"
        optimiser = StochasticAGD(placed(build().to_empty(device="cpu"), mesh, placements))
        expected = costs(tensors, world, kind)[0].loads[rank]
        with accelerator():
            optimiser.step()
            with Counted() as counted, FlopCounterMode(display=False) as flops:
                optimiser.step()
            with CommDebugMode() as calls:
                optimiser.step()
            # gloo's threads let go of what was sent when they get to it: now and then that is late
            peak = min(peak_bytes(optimiser.step, torch.device("cpu")) for _ in range(3))
        for quantity in ("sent", "received"):
            found, said = getattr(counted, quantity), getattr(expected, quantity)
            assert abs(found / said - 1) < 0.02, f"{name}, {quantity}: {found} counted, {said} in the model"
        found = flops.get_total_flops()
        assert abs(found / expected.flops - 1) < 0.02, f"{name}: {found} FLOPs counted, {expected.flops} in the model"
        sums = 2 + 4 * (name == "long head")  # of norms; of the head's two norms and two grams
        assert counted.calls == {"allreduce_": sums, "alltoall_base_": 2}, counted.calls
        assert sum(calls.get_comm_counts().values()) == sums + 2, calls.get_comm_counts()
        held = peak / expected.temporary
        assert 0.95 < held < 1.15, f"{name}: {peak} bytes held, {expected.temporary} in the model"
        whole = costs(tensors, 1, kind)[0].loads[0].flops
        assert found <= 1.25 / world * whole, f"{name}: {found} of {whole}"


def gpt2_small(rank, world, given):
    """Count one step at the shapes of GPT-2 small; `benchmarks/ranks.py counted` records it. It takes minutes."""
    mesh = init_device_mesh("cpu", (world,))
    optimiser = StochasticAGD(placed(gpt2().to_empty(device="cpu"), mesh, [Shard(0)]))
    # a CPU multiplies bfloat16 many times faster than float16; the products are the same
    with accelerator(torch.bfloat16), Counted() as counted, FlopCounterMode(display=False) as flops:
        optimiser.step()
    row = {"sent": counted.sent, "received": counted.received, "flops": flops.get_total_flops()}
    Path(given, f"{world}-{rank}.json").write_text(json.dumps({"ranks": world, "rank": rank, **row}))


def experts_stay(rank, world, given):
    """Experts that are cut along their first dimension are orthogonalised in place, without an exchange."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    full, slope = torch.randn(8, 6, 5, dtype=torch.float64), torch.randn(8, 6, 5, dtype=torch.float64)

    def made(weight, grad):
        from dataclasses import replace

        from autogd.geometry.atom import matrix

        parameter = nn.Parameter(weight)
        parameter.grad = grad
        atom = replace(matrix(torch.empty(6, 5)), shape=(8, 6, 5), rows=(1,), columns=(2,))
        return parameter, {"atoms": {"experts": lambda tensor, module: atom}}

    for make in (StochasticAGD, lambda *a, **k: AGD(*a, geometry="spectral", **k)):
        one, settings = made(full.clone(), slope.clone())
        make([("experts", one)], **settings, process_group=False).step()
        spread, settings = made(distribute_tensor(full, mesh, [Shard(0)]), distribute_tensor(slope, mesh, [Shard(0)]))
        optimiser = make([("experts", spread)], **settings)
        with Counted() as counted:
            optimiser.step()
        assert "alltoall_base_" not in counted.calls, counted.calls
        assert isinstance(spread, DTensor)
        torch.testing.assert_close(spread.full_tensor(), one, rtol=1e-10, atol=1e-10)
        dist.barrier()
