"""Processor time of StochasticAGD relative to AdamW's on the long workloads, in turn on one machine: the best of three.

Run: python benchmarks/long_times.py DATA
"""

import dataclasses
import sys

import torch

from autogd.experiments.quality.race import Cell, race
from autogd.experiments.quality.workloads import EVERY

STEPS = {"char-gpt": 60, "byte-gpt": 60, "cifar-3e": 40}  # of a run

torch.set_num_threads(1)
for name, steps in STEPS.items():
    EVERY[name] = dataclasses.replace(EVERY[name], steps=steps)
    cells = Cell(name, "agd-stochastic"), Cell(name, "adamw", 0.01, "cosine")
    pairs = [[race(cell, sys.argv[1]).seconds for cell in cells] for _ in range(3)]
    ours, theirs = map(min, zip(*pairs, strict=True))
    print(f"{name}: {ours / theirs:.2f} ({ours:.2f} s and {theirs:.2f} s for {steps} steps)")
