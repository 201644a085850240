"""StochasticAGD on the workloads of `bench quality`, with something changed: a matrix for each head, or other weights.

`heads`: query, key and value are read as a matrix each (`all`). `each` makes every head a matrix of its own at its size
under Prescription 1, √(d_head/d); `each, at 1` gives it the size that its rows have in a square matrix, 1; `query, key`
does so for these two only.
`starts`: from `initialise_`, as the published records, and from the network's own weights, on the same batches.
`fine-tune` is left out: it starts from pre-trained weights. The spread is half the range over the seeds.

example: AUTOGD_DATA=/tmp/data python benchmarks/variants.py heads gpt --seeds 0 1 2
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
from autogd.experiments.quality.records import Records
from autogd.experiments.quality.workloads import EVERY, WORKLOADS
from autogd.geometry.atom import Atom, Rule

OURS = "agd-stochastic"
RULES = {"all": None, "each": (3, False), "each, at 1": (3, True), "query, key": (2, True)}
STEPS = {"char-gpt": 500}


def losses(workload: str, seeds: list[int], **changed: Any) -> list[float]:
    """The final validation losses, a number for each seed, with another entry of `baselines`."""
    entry = replace(baselines.entry(OURS), **changed)
    steps = STEPS.get(workload, EVERY[workload].steps)
    short = {workload: replace(EVERY[workload], steps=steps)}
    with mock.patch.dict(baselines.OPTIMISERS, {OURS: entry}), mock.patch.object(races, "EVERY", short):
        return [races.race(races.Cell(workload, OURS, seed=seed)).loss[-1] for seed in seeds]


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


def heads(workloads: list[str], seeds: list[int]) -> None:
    """Print a row for each workload and rule."""
    print("| workload | matrices | mean | each seed |\n| --- | --- | --- | --- |")
    for name in workloads or ["gpt", "vit", "char-gpt"]:
        for words, rule in RULES.items():
            if name != "gpt" and words == "query, key":
                continue  # its three maps are packed in one tensor

            def build(model: nn.Module, lr: float | None, rule: Any = rule) -> StochasticAGD:
                return StochasticAGD(model, atoms=overrides(model, *rule) if rule else None)

            found = losses(name, seeds, build=build)
            each = ", ".join(f"{loss:.4g}" for loss in found)
            print(f"| {name} | {words} | {sum(found) / len(found):.4g} | {each} |", flush=True)


def starts(workloads: list[str], seeds: list[int]) -> None:
    """Print a row for each workload."""
    print("| workload | recorded | `initialise_` | own weights | spread | `initialise_` / better |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in workloads or [name for name in WORKLOADS if not WORKLOADS[name].before]:
        found = [Records().find(races.Cell(name, OURS, seed=seed)) for seed in seeds]
        recorded = [each.loss[-1] for each in found if each is not None]
        ours, own = (losses(name, seeds, start=start) for start in ("dimensional", "torch"))
        spread = max(max(each) - min(each) for each in (ours, own)) / 2
        means = [sum(each) / len(each) for each in (recorded, ours, own)]
        cells = [f"{mean:.4g}" for mean in means]
        print(f"| {name} | {' | '.join(cells)} | {spread:.2g} | {means[1] / min(means[1:]):.3f} |", flush=True)


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("variant", choices=["heads", "starts"])
    ask.add_argument("workloads", nargs="*")
    ask.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = ask.parse_args()
    torch.set_num_threads(1)
    {"heads": heads, "starts": starts}[asked.variant](asked.workloads, asked.seeds)
