"""Train several optimisers on the same task, with the same seeds and the same budget, side by side.

Recorded runs are not trained again: repeat the command to continue a stopped comparison.

example: autogd compare --optimisers agd adam=0.001 sgd=0.1 --seeds 3
"""

import dataclasses
import json
from dataclasses import dataclass

import tyro
from rich.console import Console

from autogd.baselines import entry
from autogd.cli.output import check_folder
from autogd.cli.study import carry_out, final_table
from autogd.training import Config
from autogd.training.records import short_name

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options(Config):
    """What `autogd compare` takes."""

    optimiser: tyro.conf.Suppress[str] = "agd-stochastic"
    lr: tyro.conf.Suppress[float | None] = None
    optimisers: tuple[str, ...] = ("agd-stochastic", "agd", "adam", "sgd")
    """names, each with a learning rate if it should not be the default: adam=0.001"""
    seeds: int = 3
    """number of runs of each, with seeds from --seed on"""
    out: str | None = None
    """the folder of all the runs; default: one under runs/, named after the task"""
    json: bool = False
    """print the table as JSON and nothing else"""


def run(options: Options) -> int:
    """Train what is missing, then print the table and draw the figure."""
    if not options.optimisers:
        raise ValueError("--optimisers: name at least one, for example: --optimisers agd-stochastic adam=0.001")
    if options.seeds < 1:
        raise ValueError(f"--seeds: expected at least 1, found {options.seeds}")
    task = Config.from_dict(options.as_dict()).resolved()
    names = short_name(task.data), short_name(task.model or "")
    usual = f"runs/compare-{'-'.join(names)}"
    folder = check_folder("--out", usual if options.out is None else options.out)
    trials = {}
    for word in options.optimisers:
        name, equals, rate = word.partition("=")
        try:
            lr = float(rate) if equals else None
        except ValueError as error:
            raise ValueError(f"--optimisers: {word}: expected NAME or NAME=RATE, for example adam=0.001") from error
        for seed in range(options.seed, options.seed + options.seeds):
            # an optimiser without a rate has nothing to schedule
            schedule = task.schedule if entry(name).rated else "constant"
            trials[f"{word}-seed{seed}"] = dataclasses.replace(
                task, optimiser=name, lr=lr, seed=seed, schedule=schedule
            )
    rows = carry_out(trials, folder, options.json)
    if options.json:
        print(json.dumps({"folder": str(folder), "rows": rows}))
    else:
        Console().print(final_table(rows))
        print(f"mean ± standard deviation over the seeds; the runs and their figure are in {folder}")
    return 0
