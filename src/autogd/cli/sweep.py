"""Train a rival at every learning rate of a grid; by default the paper's.

Recorded runs are not trained again: repeat the command to continue a stopped sweep.

example: autogd sweep --optimiser adam --epochs 5
"""

import dataclasses
import json
from dataclasses import dataclass

import tyro
from rich.console import Console

from autogd.baselines import PAPER_GRID, entry
from autogd.cli.output import check_folder
from autogd.cli.study import carry_out, final_table
from autogd.training import Config
from autogd.training.records import short_name

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options(Config):
    """What `autogd sweep` takes."""

    optimiser: str = "adam"
    """the rival to tune"""
    lr: tyro.conf.Suppress[float | None] = None
    grid: tuple[float, ...] = PAPER_GRID
    """learning rates to try"""
    seeds: int = 1
    """number of runs of each, with seeds from --seed on"""
    out: str | None = None
    """the folder of all the runs; default: one under runs/, named after the task and the rival"""
    json: bool = False
    """print the table as JSON and nothing else"""


def run(options: Options) -> int:
    """Train what is missing, then print the table, draw the figure and name the best."""
    if not entry(options.optimiser).rated:
        raise ValueError(f"optimiser: {options.optimiser} has no learning rate to sweep; choose a rival")
    if not options.grid:
        raise ValueError("--grid: name at least one learning rate, or leave the option out")
    if options.seeds < 1:
        raise ValueError(f"--seeds: expected at least 1, found {options.seeds}")
    task = Config.from_dict(options.as_dict()).resolved()
    names = short_name(task.data), short_name(task.model or ""), task.optimiser
    usual = f"runs/sweep-{'-'.join(names)}"
    folder = check_folder("--out", usual if options.out is None else options.out)
    trials = {
        f"lr{lr:g}-seed{seed}": dataclasses.replace(task, lr=lr, seed=seed)
        for lr in options.grid
        for seed in range(options.seed, options.seed + options.seeds)
    }
    rows = carry_out(trials, folder, options.json)
    # choose by the training objective: choosing by the test set would be training on it
    sound = [row for row in rows if row["objective_mean"] is not None and not row["diverged"]]
    best = min(sound, key=lambda row: row["objective_mean"], default=None)
    if options.json:
        print(json.dumps({"folder": str(folder), "best": best and best["label"], "rows": rows}))
    else:
        Console().print(final_table(rows))
        print(f"lowest training objective: {best['label'] if best else 'none, all diverged'}; the runs are in {folder}")
    return 0
