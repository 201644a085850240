"""Many devices, a share of the weights on each: `torchrun --nproc-per-node 2 examples/10_fsdp2.py`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

import autogd
from autogd import StochasticAGD
from digits import test_inputs, test_labels, train_samples

dist.init_process_group("gloo")  # "nccl" on GPUs, where model and batches go to the process's own
torch.manual_seed(0)
loader = DataLoader(train_samples, 32, sampler=DistributedSampler(train_samples))

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
autogd.initialise_(model)  # before the weights are cut
fully_shard(model)
optimiser = StochasticAGD(model)  # after; norms are those of whole matrices, by one small all-reduce

for epoch in range(5):
    loader.sampler.set_epoch(epoch)
    for images, targets in loader:
        optimiser.zero_grad()
        cross_entropy(model(images), targets).backward()
        optimiser.step()

with optimiser.averaged(), torch.no_grad():
    accuracy = (model(test_inputs).argmax(1) == test_labels).float().mean()
if dist.get_rank() == 0:
    print(f"η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
dist.destroy_process_group()
