"""What the examples train on: scikit-learn's digits, as inputs of unit root-mean-square (norm √64) and labels."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import normalize

_tensors = map(torch.as_tensor, train_test_split(*load_digits(return_X_y=True), test_size=360, random_state=0))
train_inputs, test_inputs, train_labels, test_labels = _tensors
train_inputs, test_inputs = (8 * normalize(inputs.float()) for inputs in (train_inputs, test_inputs))
train_samples = list(zip(train_inputs, train_labels, strict=True))
test_samples = list(zip(test_inputs, test_labels, strict=True))
