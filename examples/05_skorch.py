"""skorch: a scikit-learn classifier with AGD inside."""

import torch
from torch import nn

import autogd
from autogd.integrations.skorch import AGDClassifier
from digits import test_inputs, test_labels, train_inputs, train_labels

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
classifier = AGDClassifier(  # it has StochasticAGD inside; optimizer=AGD would be the paper's algorithm
    autogd.initialise_(network),
    criterion=nn.CrossEntropyLoss,
    max_epochs=5,
    batch_size=64,
    iterator_train__shuffle=True,
)
classifier.fit(train_inputs, train_labels)  # the table that skorch prints has a column `learning_rate`: η

print(f"test accuracy {classifier.score(test_inputs.numpy(), test_labels.numpy()):.1%}")
