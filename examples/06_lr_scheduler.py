"""A scheduler on top: `lr` is a multiplier of the derived rate, 1 by default, and a scheduler moves it."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

import autogd
from autogd import AGD  # the η of StochasticAGD falls by itself, so it needs no schedule
from digits import test_inputs, test_labels, train_samples

torch.manual_seed(0)
loader = DataLoader(train_samples, 64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
autogd.initialise_(model)
optimiser = AGD(model)
scheduler = CosineAnnealingLR(optimiser, T_max=20)

for _ in range(20):
    for images, targets in loader:
        optimiser.zero_grad()
        cross_entropy(model(images), targets).backward()
        optimiser.step()
    multiplier = optimiser.param_groups[0]["lr"]
    print(f"derived η {optimiser.learning_rate:.4f}, taken times {multiplier:.3f}")
    scheduler.step()

with torch.no_grad():
    accuracy = (model(test_inputs).argmax(1) == test_labels).float().mean()
print(f"test accuracy {accuracy:.1%}")
