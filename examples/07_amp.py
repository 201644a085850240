"""Mixed precision: autocast, and for float16 a GradScaler. On the CPU as on a GPU."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import autogd
from autogd import StochasticAGD
from digits import test_inputs, test_labels, train_samples

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

for dtype in (torch.bfloat16, torch.float16):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    autogd.initialise_(model)
    optimiser = StochasticAGD(model)  # weights, momentum and η stay in float32
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)  # bfloat16 has float32's range: no scaling

    for _ in range(5):
        for images, targets in DataLoader(train_samples, 64, shuffle=True):
            optimiser.zero_grad()
            with torch.autocast(device, dtype):
                loss = cross_entropy(model(images.to(device)), targets.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimiser)  # unscales the gradients first, and skips the step if they overflowed
            scaler.update()

    with optimiser.averaged(), torch.no_grad(), torch.autocast(device, dtype):
        accuracy = (model(test_inputs.to(device)).argmax(1).cpu() == test_labels).float().mean()
    print(f"{dtype}: η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
