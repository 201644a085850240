"""Plain PyTorch: a network, minibatches, and nothing to set."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import autogd
from autogd import StochasticAGD  # for minibatches; `AGD` is the paper's algorithm, for full batches
from digits import test_inputs, test_labels, train_samples

torch.manual_seed(0)
loader = DataLoader(train_samples, 64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
autogd.initialise_(model)  # skip it when fine-tuning
optimiser = StochasticAGD(model)

for epoch in range(5):
    for images, targets in loader:
        optimiser.zero_grad()
        loss = cross_entropy(model(images), targets)
        loss.backward()
        optimiser.step()
    with optimiser.averaged(), torch.no_grad():  # inside, the model holds the weights to evaluate and to ship
        accuracy = (model(test_inputs).argmax(1) == test_labels).float().mean()
    print(f"epoch {epoch + 1}: η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
