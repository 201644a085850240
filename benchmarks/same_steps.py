"""same_steps write FILE | compare BEFORE AFTER: do two versions of the project take the same steps?

`write` trains one small network that has every atom, with both optimisers, by every backend, and stores the weights and
averages after 12 steps. `compare` prints the largest difference, relative to the tensor's own size. Run `write` once
with each version (set PYTHONPATH to its `src`), then `compare`.
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import autogd


class Everything(nn.Module):
    """A matrix, packed matrices, kernels (plain, grouped, transposed), a table, tokens, gains, biases, scalars."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.token = nn.Parameter(torch.zeros(1, 5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.cell = nn.LSTM(8, 6, batch_first=True)
        self.mix = nn.Bilinear(6, 6, 4)
        self.conv = nn.Conv1d(4, 8, 3, padding=1, groups=2)
        self.wide = nn.Conv1d(8, 6, 3, padding=1)
        self.up = nn.ConvTranspose1d(6, 4, 2)
        self.slope = nn.PReLU()
        self.tall, self.readout = nn.Linear(4, 40), nn.Linear(40, 3)

    def forward(self, x):
        h = self.table(x) + self.token
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        h = self.cell(h)[0]
        h = self.mix(h, h).transpose(1, 2)
        h = self.up(self.slope(self.wide(self.conv(h))))
        return self.readout(torch.tanh(self.tall(h.mean(2))))


def train(make, dtype, steps=12, **settings):
    torch.manual_seed(0)
    model = autogd.initialise_(Everything()).to(dtype)
    optimiser = make(model, **settings)
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randint(11, (16, 5), generator=generator)
        optimiser.zero_grad()
        F.cross_entropy(model(x).double(), x.sum(1) % 3).backward()
        optimiser.step()
    found = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with optimiser.averaged():
        found |= {f"{name} (averaged)": p.detach().clone() for name, p in model.named_parameters()}
    return found


def averaging(model, **settings):
    old = getattr(autogd, "AveragedAGD", None)
    return old(model, **settings) if old else autogd.AGD(model, averaging=True, **settings)


def write(file):
    torch.set_num_threads(1)
    runs = {}
    for dtype in (torch.float64, torch.float32):
        kinds = {"AGD": autogd.AGD, "AGD averaging": averaging, "StochasticAGD": autogd.StochasticAGD}
        for name, make in kinds.items():
            for setting in ({}, {"weight_decay": 0.5}, {"maximize": True, "gain": 0.1}, {"foreach": False}):
                if setting.get("foreach") is False and name == "StochasticAGD":
                    continue
                if setting.get("weight_decay") and name == "AGD averaging":
                    continue
                runs[f"{name} {setting} {dtype}"] = train(make, dtype, **setting)
        runs[f"AGD spectral {dtype}"] = train(autogd.AGD, dtype, geometry="spectral")
        runs[f"StochasticAGD frobenius {dtype}"] = train(autogd.StochasticAGD, dtype, geometry="frobenius")
    torch.save(runs, file)


def compare(before, after):
    one, two = (torch.load(file, weights_only=True) for file in (before, after))
    print(f"{'run':60} {'largest relative difference':>28}  bits")
    for name in sorted(one.keys() & two.keys()):
        pairs = [(one[name][key].double(), two[name][key].double()) for key in one[name]]
        worst = max(float((a - b).norm() / a.norm().clamp(min=1e-30)) for a, b in pairs)
        print(f"{name:60} {worst:28.2e}  {'same' if all(torch.equal(a, b) for a, b in pairs) else ''}")
    for name in sorted(one.keys() ^ two.keys()):
        print(f"{name}: in one file only")


if __name__ == "__main__":
    if os.environ.get("POLYNOMIAL"):  # versions that inverted matrices on the CPU, held to the polynomial
        from functools import partial

        from autogd.geometry import directions

        directions.polar = partial(directions.polar, steps=4)
    if os.environ.get("AUTOGD_NATIVE") == "0":  # versions that do not know the variable
        for name, module in list(sys.modules.items()):
            if name.startswith("autogd.") and callable(getattr(module, "library", None)):
                module.library = lambda: None
    command, *files = sys.argv[1:]
    {"write": write, "compare": compare}[command](*files)
