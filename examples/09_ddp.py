"""Many devices, a copy of the weights on each: `torchrun --nproc-per-node 2 examples/09_ddp.py`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import autogd
from autogd import StochasticAGD
from digits import test_inputs, test_labels, train_samples

dist.init_process_group("gloo")  # "nccl" on GPUs, where model and batches go to the process's own
torch.manual_seed(0)
loader = DataLoader(train_samples, 32, sampler=DistributedSampler(train_samples))

network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(autogd.initialise_(network))
optimiser = StochasticAGD(model)  # every process sees the mean gradient, and takes the same step

for epoch in range(5):
    loader.sampler.set_epoch(epoch)
    for images, targets in loader:
        optimiser.zero_grad()
        cross_entropy(model(images), targets).backward()
        optimiser.step()

with optimiser.averaged(), torch.no_grad():
    accuracy = (network(test_inputs).argmax(1) == test_labels).float().mean()
if dist.get_rank() == 0:
    print(f"η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
dist.destroy_process_group()
