"""Accelerate: `prepare` takes the optimiser as it takes any other; `accelerate launch` runs this on many devices."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import autogd
from autogd import StochasticAGD
from digits import test_samples, train_samples

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
autogd.initialise_(model)
agd = StochasticAGD(model)

accelerator = Accelerator()
model, optimiser, train, test = accelerator.prepare(
    model, agd, DataLoader(train_samples, 64, shuffle=True), DataLoader(test_samples, 60)
)
for _ in range(5):
    for images, targets in train:
        optimiser.zero_grad()
        accelerator.backward(cross_entropy(model(images), targets))
        optimiser.step()

with agd.averaged(), torch.no_grad():  # `prepare` returns a wrapper, which has neither `averaged` nor η
    hits = [accelerator.gather_for_metrics(model(images).argmax(1) == targets) for images, targets in test]
    accelerator.print(f"η {agd.learning_rate:.4f}, test accuracy {torch.cat(hits).float().mean():.1%}")
