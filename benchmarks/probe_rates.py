"""How good are the rates of `autogd probe`? AdamW with them, beside AdamW at the best of a grid.

usage: python benchmarks/probe_rates.py [WORKLOAD …]   prints the table of docs/probe.md
"""

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from autogd import data
from autogd.diagnosis import Recommendation, probe
from autogd.models import GPT

GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
STEPS, SEEDS = 150, (0, 1, 2)
DIGITS = data.load("digits")
LICENCE = data.load("text", Path(__file__).parents[1] / "LICENSE", context=32)


def fcn(depth: int, width: int) -> nn.Module:
    inner = [layer for _ in range(depth - 2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), *inner, nn.Linear(width, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )


class Rows(nn.Module):
    """A transformer on the eight rows of a digit."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enter = nn.Linear(8, 32)
        self.places = nn.Parameter(torch.randn(1, 8, 32) * 0.1)
        self.blocks = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.leave = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.leave(self.blocks(self.enter(images[:, 0]) + self.places).mean(1))


# name: network, data, batch size
WORKLOADS: dict[str, tuple[Callable[[], nn.Module], data.Task, int]] = {
    "FCN, 3 layers": (lambda: fcn(3, 128), DIGITS, 64),
    "FCN, 8 layers": (lambda: fcn(8, 64), DIGITS, 64),
    "CNN, batch norm": (cnn, DIGITS, 64),
    "transformer": (Rows, DIGITS, 64),
    "GPT, text": (lambda: GPT(LICENCE.classes, 32, depth=2, width=64), LICENCE, 32),
}


def loss_fn(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, -2), labels.flatten())


def batches(task: data.Task, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        for indices in torch.randperm(len(task.train), generator=generator).split(size):
            inputs, labels = task.train.batch(indices)
            yield task.prepare(inputs), labels


def build(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return WORKLOADS[name][0]()


def final_loss(name: str, seed: int, groups: Callable[[nn.Module], list[dict]], steps: int = STEPS) -> float:
    """The loss on all test data after training with AdamW."""
    _, task, size = WORKLOADS[name]
    model = build(name, seed)
    optimiser = AdamW(groups(model), weight_decay=0.0)
    for (inputs, labels), _ in zip(batches(task, size, seed), range(steps), strict=False):
        optimiser.zero_grad()
        loss_fn(model(inputs), labels).backward()
        optimiser.step()
    model.eval()
    inputs, labels = task.test.batch(torch.arange(0, len(task.test), 4 if task is LICENCE else 1))
    with torch.no_grad():
        return float(loss_fn(model(task.prepare(inputs)), labels))


def one_rate(lr: float) -> Callable[[nn.Module], list[dict]]:
    return lambda model: [{"params": list(model.parameters()), "lr": lr}]


def per_layer(found: Recommendation) -> Callable[[nn.Module], list[dict]]:
    return lambda model: found.groups(model, "adamw")


def recommended(name: str, seed: int) -> Recommendation:
    _, task, size = WORKLOADS[name]
    return probe(build(name, seed), loss_fn, batches(task, size, seed))


def main(names: list[str]) -> None:
    print("| workload | best of the grid | per-layer rates | one rate |\n| --- | --- | --- | --- |")
    for name in names or WORKLOADS:
        grid = {lr: statistics.fmean(final_loss(name, s, one_rate(lr)) for s in SEEDS) for lr in GRID}
        best = min(grid, key=grid.__getitem__)
        found = {seed: recommended(name, seed) for seed in SEEDS}
        layers = statistics.fmean(final_loss(name, s, per_layer(found[s])) for s in SEEDS)
        single = statistics.fmean(final_loss(name, s, one_rate(found[s].single["adamw"])) for s in SEEDS)
        rates = ", ".join(f"{r.single['adamw']:.1e}" for r in found.values())
        cells = [f"{x:.4f} ({x / grid[best] - 1:+.0%})" for x in (layers, single)]
        print(f"| {name} | {grid[best]:.4f} (rate {best:g}) | {cells[0]} | {cells[1]} ({rates}) |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
