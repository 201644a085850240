"""η over training on four workloads of the quality benchmark, beside a cosine schedule from the same start.

The figure is drawn from the records: `python benchmarks/traces.py` draws, `... traces.py DATA` runs first.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from autogd.experiments.quality.race import Cell, race
from autogd.report.reproduction.curves import COLOURS, dress, empty

ROOT = Path(__file__).parents[1]
RECORDS, FIGURE = ROOT / "records" / "traces.jsonl", ROOT / "docs" / "results" / "quality" / "traces.png"
WORKLOADS = ("fcn-8", "cnn", "gpt", "lstm")


def trace(workload: str, data_dir: str) -> dict[str, Any]:
    """η of every step, and the benchmark's own outcome."""
    rates: list[float] = []

    def look(optimiser: Any, *_: Any) -> None:
        if hasattr(optimiser, "learning_rate"):
            rates.append(float(optimiser.learning_rate))

    handle = register_optimizer_step_post_hook(look)
    outcome = race(Cell(workload, "agd-stochastic"), data_dir)
    handle.remove()
    return {
        "workload": workload,
        "steps": outcome.steps,
        "eta": [float(f"{rate:.4g}") for rate in rates],
        "loss": [float(f"{value:.5g}") for value in outcome.loss],
    }


def draw(records: list[dict[str, Any]]) -> None:
    """One column per workload: η, and the validation loss."""
    title = "StochasticAGD: η falls as one over the root of the steps, whatever the budget"
    figure = empty(13, 5.5, title, "seed 0; validation loss of the averaged weights")
    grid = figure.subplots(2, len(WORKLOADS))
    for column, record in enumerate(records):
        steps = range(1, record["steps"] + 1)
        cosine = [record["eta"][0] * (1 + math.cos(math.pi * (t - 1) / record["steps"])) / 2 for t in steps]
        top, bottom = grid[:, column]
        top.plot(steps, record["eta"], color=COLOURS["agd"], lw=1.3, label="η")
        top.plot(steps, cosine, color=COLOURS["adam"], lw=1.3, ls="--", label="a cosine, from the same start")
        each = record["steps"] / len(record["loss"])
        bottom.plot([(i + 1) * each for i in range(len(record["loss"]))], record["loss"], color=COLOURS["agd"], lw=1.3)
        for axes in (top, bottom):
            axes.tick_params(which="both", labelsize=7.5)
        dress(top, record["workload"], "", "" if column else "η", legend=not column)
        dress(bottom, "", "step", "" if column else "validation loss", legend=False)
    figure.savefig(FIGURE)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        RECORDS.write_text("".join(json.dumps(trace(workload, sys.argv[1])) + "\n" for workload in WORKLOADS))
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    for record in records:
        eta = record["eta"]
        print(f"{record['workload']:6} {record['steps']:5} steps: η {eta[0]:.3g} at first, {eta[-1]:.3g} at the end")
    draw(records)


if __name__ == "__main__":
    main()
