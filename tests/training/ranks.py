"""What each of several processes runs; their places are in the environment, as torchrun leaves them.

usage: ranks.py measure FOLDER STEPS NAME=JSON …   take a few steps of some configs, and save the results
       ranks.py train RUN CRASH_STEP KILL_STEP     train; all crash at a step, or one is killed; 0 is never
"""

import faulthandler
import json
import os
import signal
import sys
import warnings
from pathlib import Path

import torch

from autogd.training import Config, Run, distributed, loop, train
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


def measured(folder, steps, *cases):
    """Measure every case, and save what the first process has of it."""
    with distributed.session("cpu") as place:
        for case in cases:
            name, _, settings = case.partition("=")
            found = measure(Config(**json.loads(settings)), place, int(steps))
            if place.rank == 0:
                torch.save(found, Path(folder) / f"{name}.pt")


def crashing(path, crash_step, kill_step):
    """Train, and crash on every process or be killed on one."""
    faulthandler.dump_traceback_later(540, exit=True)  # if it hangs, print where, before the parent gives up
    taken = 0

    def counted(*arguments):
        nonlocal taken
        take_step(*arguments)
        taken += 1
        if taken == int(crash_step):
            os._exit(7)
        if taken == int(kill_step) and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    loop.take_step = counted
    train(Run(Path(path)))


def main(what, *arguments):
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    {"measure": measured, "train": crashing}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
