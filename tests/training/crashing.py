"""Train a run, as one of several processes, and crash all of them at a step, or kill one; 0 is never.

usage: crashing.py RUN CRASH_STEP KILL_STEP
"""

import faulthandler
import os
import signal
import sys
import warnings
from pathlib import Path

import torch

from autogd.training import Run, step, train


def main(path, crash_step, kill_step):
    faulthandler.dump_traceback_later(540, exit=True)  # if it hangs, print where, before the parent gives up
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    taken = 0
    original = step.take_step

    def counted(*arguments):
        nonlocal taken
        original(*arguments)
        taken += 1
        if taken == int(crash_step):
            os._exit(7)
        if taken == int(kill_step) and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    import autogd.training.loop

    autogd.training.loop.take_step = counted
    train(Run(Path(path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
