"""One matrix for all heads of attention, or one for each head: the final validation losses of StochasticAGD.

`all` is what is read: query, key and value are a matrix each. `each` makes every head a matrix of its own at its size
under Prescription 1, √(d_head/d); `each, at 1` gives it the size that its rows have in a square matrix, 1; `query, key`
does so for these two only.

example: AUTOGD_DATA=/tmp/data python benchmarks/heads.py --seeds 0 1 2
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from autogd import StochasticAGD, baselines
from autogd.experiments.quality import race as races
from autogd.experiments.quality.workloads import EVERY
from autogd.geometry.atom import Atom, Rule

OURS = "agd-stochastic"
RULES = {"all": None, "each": (3, False), "each, at 1": (3, True), "query, key": (2, True)}


def projections(model: nn.Module) -> Iterator[tuple[str, Tensor, int, str]]:
    """Every projection onto heads: its name, the tensor, how many heads there are, and which of q, k, v it holds."""
    for name, module in model.named_modules():
        heads = getattr(module, "heads", None) or getattr(module, "num_heads", None)
        inside = {"query.weight": "q", "key.weight": "k", "value.weight": "v", "qkv.weight": "qkv"}
        for within, parameter in module.named_parameters() if heads else ():
            held = {**inside, "in_proj_weight": "qkv"}.get(within)
            if held:
                yield f"{name}.{within}", parameter, int(heads), held


def overrides(model: nn.Module, maps: int, at_one: bool) -> dict[str, Rule]:
    """One matrix a head in the first `maps` of query, key and value."""
    rules: dict[str, Rule] = {}
    for name, weight, heads, held in projections(model):
        if held == "v" and maps == 2:
            continue
        rows, width = weight.shape[0] // len(held) // heads, weight.shape[1]
        scale = 1.0 if at_one else math.sqrt(rows / width)
        atom = Atom("matrix", (len(held) * heads, rows, width), (1,), (2,), scale, stack=len(held))
        rules[name] = lambda parameter, module, atom=atom: atom
    return rules


def losses(workload: str, rule: Any, steps: int | None, seeds: list[int]) -> list[float]:
    """The final validation losses, a number for each seed."""

    def build(model: nn.Module, lr: float | None) -> StochasticAGD:
        return StochasticAGD(model, atoms=overrides(model, *rule) if rule else None)

    entry = replace(baselines.entry(OURS), build=build)
    short = {workload: replace(EVERY[workload], steps=steps or EVERY[workload].steps)}
    with mock.patch.dict(baselines.OPTIMISERS, {OURS: entry}), mock.patch.object(races, "EVERY", short):
        return [races.race(races.Cell(workload, OURS, seed=seed)).loss[-1] for seed in seeds]


def main() -> None:
    """Print a row for each workload and rule."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("workloads", nargs="*", default=["gpt", "vit", "char-gpt"])
    ask.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    ask.add_argument("--steps", type=int, default=500, help="of char-gpt")
    asked = ask.parse_args()
    torch.set_num_threads(1)
    print("| workload | matrices | mean | each seed |\n| --- | --- | --- | --- |")
    for name in asked.workloads:
        for words, rule in RULES.items():
            if name != "gpt" and words == "query, key":
                continue  # its three maps are packed in one tensor
            found = losses(name, rule, asked.steps if name == "char-gpt" else None, asked.seeds)
            each = ", ".join(f"{loss:.4g}" for loss in found)
            print(f"| {name} | {words} | {sum(found) / len(found):.4g} | {each} |", flush=True)


if __name__ == "__main__":
    main()
