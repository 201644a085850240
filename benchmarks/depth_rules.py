"""What should the depth L count? Four rules on every architecture of the zoo and on two networks of ours.

A tensor with depth share ω counts as ω layers and may move by ω·η/L of its size. So the bound of deep relative trust
holds for the first three rules; they divide the step differently. Run: python benchmarks/depth_rules.py
"""

import warnings
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.data import load
from autogd.experiments.zoo import ZOO, descend, specimen
from autogd.models import FCN

VECTORS = ("bias", "gain", "scalars", "token")
RULES = {
    "every tensor is a layer": lambda atom: 1.0,
    "vectors and tables a quarter": lambda atom: 0.25 if atom.kind in (*VECTORS, "embedding") else 1.0,
    "vectors 1/32, tables 1/4": lambda atom: atom.depth_share,
    "matrices only, vectors besides": None,
}


def ruled(model, name):
    optimiser = AGD(model)
    architecture = optimiser._architecture
    architecture.stop()  # the rule is to stand
    if RULES[name] is None:  # vectors move like layers but are not counted: the bound does not hold
        rule = lambda a: replace(a, depth_share=1.0, stack=0.0 if a.kind in VECTORS else a.stack)  # noqa: E731
    else:
        rule = lambda a: replace(a, depth_share=RULES[name](a))  # noqa: E731
    architecture.atoms = {parameter: rule(atom) for parameter, atom in architecture.atoms.items()}
    return optimiser


def on_the_zoo(name):
    total, steady, count = 0.0, 0, 0
    for architecture in ZOO:
        for ours in (False, True):
            for seed in range(2):
                subject = specimen(architecture, seed)
                if ours:
                    initialise_(subject.model)
                losses = descend(subject.loss, ruled(subject.model, name), 30)
                total += losses[0] - losses[-1]
                steady += sum(b < a for a, b in pairwise(losses)) >= 27
                count += 1
    return total / count, steady, count


def on_digits(name, model):
    task = load("digits")
    torch.manual_seed(0)
    initialise_(model)
    optimiser = ruled(model, name)
    for _ in range(10):
        for indices in torch.randperm(len(task.train)).split(128):
            inputs, labels = task.train.batch(indices)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(task.prepare(inputs)), labels).backward()
            optimiser.step()
    model.eval()
    inputs, labels = task.test.batch(torch.arange(len(task.test)))
    with torch.no_grad():
        return float((model(task.prepare(inputs)).argmax(1) == labels).float().mean())


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'rule':32} {'zoo: mean drop':>16} {'27 of 30':>10} {'FCN, biases':>12} {'CNN, norms':>12}")
    for rule in RULES:
        drop, steady, count = on_the_zoo(rule)
        fcn, cnn = on_digits(rule, FCN(8, 64, 64, 10, bias=True)), on_digits(rule, convolutional())
        print(f"{rule:32} {drop:16.3f} {steady:>6}/{count} {100 * fcn:11.1f}% {100 * cnn:11.1f}%", flush=True)
