"""How η, G and c go over training, on four workloads at their budget and at twice that, with nothing changed.

G and c are the measured ones: the slope that a step's own batch saw, and what a unit of u(η) took away of it. The
figure is drawn from the records: `python benchmarks/traces.py` draws, `python benchmarks/traces.py DATA` runs first.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from autogd.optim.measured import MEMORY
from torch.optim.optimizer import register_optimizer_step_post_hook

from autogd.experiments.quality.race import Cell, race
from autogd.experiments.quality.workloads import WORKLOADS as SUITE
from autogd.report.reproduction.curves import COLOURS, dress, empty

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "quality"
RECORDS, FIGURE = FOLDER / "traces.json", FOLDER / "traces.png"
WORKLOADS = ("fcn-8", "cnn", "gpt", "lstm")
STRETCHES = (1, 2)
POINTS = 100  # of a trace that are kept, each a mean over the steps since the last


def trace(workload: str, stretch: int, data_dir: str) -> dict[str, Any]:
    """η, G and c over the steps, and the benchmark's own outcome."""
    rows: list[torch.Tensor] = []

    def look(optimiser: Any, *_: Any) -> None:
        if "memory" in optimiser.param_groups[0]:
            rows.append(optimiser.param_groups[0]["memory"].clone())

    handle = register_optimizer_step_post_hook(look)
    normal = SUITE[workload]
    SUITE[workload] = replace(normal, steps=stretch * normal.steps)
    outcome = race(Cell(workload, "agd-stochastic"), data_dir)
    SUITE[workload] = normal
    handle.remove()
    memory = dict(zip(MEMORY, torch.stack(rows).double().unbind(1), strict=True))
    measured = slice(1, None)  # the first step is Theorem 2's: nothing is measured before it
    left, own, reach = (memory[name][measured] / memory["weight"][measured] for name in ("fresh", "same", "reach"))
    kept = {"eta": memory["rate"][measured], "G": own, "c": ((own - left) / reach).clamp(min=0)}
    each = -(-outcome.steps // POINTS)
    return {
        "workload": workload,
        "stretch": stretch,
        "steps": outcome.steps,
        "each": each,
        **{name: [float(f"{float(part.mean()):.4g}") for part in values.split(each)] for name, values in kept.items()},
        "loss": [float(f"{value:.5g}") for value in outcome.loss],
        "seconds": round(outcome.seconds, 1),
    }


def draw(records: list[dict[str, Any]]) -> None:
    """A column a workload: η, G, c and the validation loss, at the budget and at twice that."""
    title = "StochasticAGD: η decays by itself, and twice the budget needs no change"
    figure = empty(13, 9, title, "seed 0; G and c as the rule measures them; validation loss of the averaged weights")
    grid = figure.subplots(4, len(WORKLOADS))
    heads = {"eta": "η", "G": "G", "c": "c", "loss": "validation loss"}
    for record in records:
        column = WORKLOADS.index(record["workload"])
        # the rule does not know its budget, so the runs coincide as far as the shorter goes: it is drawn wide and pale
        style = {1: {"color": COLOURS["adam"], "lw": 4, "alpha": 0.4}, 2: {"color": COLOURS["agd"], "lw": 1.3}}
        for axes, name in zip(grid[:, column], heads, strict=True):
            values = record[name]
            each = record["steps"] / len(values) if name == "loss" else record["each"]
            axes.plot(
                [min((i + 1) * each, record["steps"]) for i in range(len(values))],
                values, **style[record["stretch"]], label=f"{record['steps']} steps",
            )  # fmt: skip
    for column, workload in enumerate(WORKLOADS):
        for axes, (name, head) in zip(grid[:, column], heads.items(), strict=True):
            if name in ("eta", "c"):
                axes.set_yscale("log")
            axes.tick_params(which="both", labelsize=7.5)
            top, bottom = workload if name == "eta" else "", "step" if name == "loss" else ""
            dress(axes, top, bottom, "" if column else head, legend=name == "eta")
    figure.savefig(FIGURE)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        FOLDER.mkdir(parents=True, exist_ok=True)
        records = [trace(workload, stretch, sys.argv[1]) for workload in WORKLOADS for stretch in STRETCHES]
        RECORDS.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
    records = json.loads(RECORDS.read_text())
    for record in records:
        eta = record["eta"]
        print(
            f"{record['workload']:6} {record['steps']:5} steps: η {max(eta):.3g} at most, {eta[-1]:.3g} at the end; "
            f"c {record['c'][-1]:.3g}; validation loss {record['loss'][-1]}; {record['seconds']} s"
        )
    draw(records)


if __name__ == "__main__":
    main()
