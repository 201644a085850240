"""Where StochasticAGD ends from `initialise_` and from the network's own weights, on the workloads of `bench quality`.

Both starts see the same batches. `fine-tune` is left out: it starts from pre-trained weights. The spread is half the
range over the seeds. The published records of `bench quality` start from `initialise_`.

example: AUTOGD_DATA=/tmp/data python benchmarks/starts.py --seeds 0 1 2
"""

import argparse
from dataclasses import replace
from unittest import mock

import torch

from autogd import baselines
from autogd.experiments.quality.race import Cell, race
from autogd.experiments.quality.records import Records
from autogd.experiments.quality.workloads import WORKLOADS

OURS = "agd-stochastic"


def losses(workload: str, start: str, seeds: list[int]) -> list[float]:
    """The final validation losses, a number for each seed."""
    entry = replace(baselines.entry(OURS), start=start)
    with mock.patch.dict(baselines.OPTIMISERS, {OURS: entry}):
        return [race(Cell(workload, OURS, seed=seed)).loss[-1] for seed in seeds]


def main() -> None:
    """Print a row for each workload."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("workloads", nargs="*", default=[name for name in WORKLOADS if not WORKLOADS[name].before])
    ask.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = ask.parse_args()
    torch.set_num_threads(1)
    print("| workload | recorded | `initialise_` | own weights | spread | `initialise_` / better |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in asked.workloads:
        found = [Records().find(Cell(name, OURS, seed=seed)) for seed in asked.seeds]
        recorded = [each.loss[-1] for each in found if each is not None]
        ours, own = (losses(name, start, asked.seeds) for start in ("dimensional", "torch"))
        spread = max(max(each) - min(each) for each in (ours, own)) / 2
        means = [sum(each) / len(each) for each in (recorded, ours, own)]
        cells = [f"{mean:.4g}" for mean in means]
        print(f"| {name} | {' | '.join(cells)} | {spread:.2g} | {means[1] / min(means[1:]):.3f} |", flush=True)


if __name__ == "__main__":
    main()
