"""torch.func: gradients of a pure function of the weights; the optimiser takes them from `.grad` as always."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value
from torch.nn.functional import cross_entropy

import autogd
from autogd import StochasticAGD
from digits import test_inputs, test_labels, train_inputs, train_labels

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
autogd.initialise_(model)
optimiser = StochasticAGD(model)
weights = dict(model.named_parameters())


def objective(weights, images, targets):
    return cross_entropy(functional_call(model, weights, (images,)), targets)


gradient_and_loss = grad_and_value(objective)
for _ in range(5):
    for batch in torch.randperm(len(train_inputs)).split(64):
        gradients, loss = gradient_and_loss(weights, train_inputs[batch], train_labels[batch])
        for name, weight in weights.items():
            weight.grad = gradients[name]
        optimiser.step()

with optimiser.averaged(), torch.no_grad():
    accuracy = (model(test_inputs).argmax(1) == test_labels).float().mean()
print(f"η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
