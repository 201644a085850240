"""Take a few steps of some configs, alone or as one of several processes, and save the results.

usage: parity.py FOLDER STEPS NAME=JSON …   (the processes' places are in the environment, as torchrun leaves them)
"""

import json
import sys
import warnings
from pathlib import Path

import torch

from autogd.training import Config, distributed
from autogd.training.measure import COLUMNS, Ledger
from autogd.training.setup import Setup
from autogd.training.step import take_step


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def measure(config, place, steps):
    """η and update size of every step, and the weights and statistics after the last."""
    setup = Setup.build(config, place)
    ledger = Ledger(steps, place)
    epochs = -(-steps // setup.steps_per_epoch)
    batches = torch.cat([setup.order(epoch) for epoch in range(1, epochs + 1)])
    for step in range(steps):
        take_step(setup, ledger, setup.train_batch(batches[step], step), batches[step], 1, step)
    rows = ledger.shared()
    found = {f"ledger {name}": rows[:, i] for i, name in enumerate(COLUMNS)}
    return {**found, **{name: whole(value) for name, value in setup.model.state_dict().items()}}


def main(folder, steps, *cases):
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    with distributed.session("cpu") as place:
        for case in cases:
            name, _, settings = case.partition("=")
            found = measure(Config(**json.loads(settings)), place, int(steps))
            if place.rank == 0:
                torch.save(found, Path(folder) / f"{name}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
