"""Cases for `many_ranks`: the last rank is lost in a step, and fewer ranks go on from the checkpoint."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.distributed_c10d import _set_pg_timeout

from checkpoint_cases import MORE, SAVED, compare, loaded, make, state_of, steps
from meshes import Block

CLOSED = r"Connection (closed|reset)|Broken pipe"  # gloo's words
WAYS = ("hangs", "dies")


def _train(rank, world, folder, lose, take):
    """Train, save, go on; in the last step, the last rank is lost, and the others end with torch's own error."""
    model, forward, share, optimiser = make(Block, "StochasticAGD", "fsdp", seed=0)
    steps(forward, optimiser, 0, SAVED, share)
    dcp.save(state_of(model, optimiser), checkpoint_id=folder)
    steps(forward, optimiser, SAVED, MORE - 1, share)
    step = optimiser.step
    optimiser.step = lose if rank == world - 1 else lambda: take(step)
    steps(forward, optimiser, SAVED + MORE - 1, 1, share)


def hangs(rank, world, given):
    def ended(other):
        return Path(given["folder"]) / f"ended-{other}"

    def hang():
        while not all(ended(other).exists() for other in range(world - 1)):
            time.sleep(0.02)

    def take(step):
        _set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
        try:
            with pytest.raises(RuntimeError, match=r"Timed out waiting|timeout caused pair closure|" + CLOSED):
                step()
        finally:
            ended(rank).touch()

    _train(rank, world, f"{given['folder']}/hangs", hang, take)


def dies(rank, world, given):
    def take(step):
        with pytest.raises(RuntimeError, match=CLOSED):
            step()

    _train(rank, world, f"{given['folder']}/dies", lambda: os.kill(os.getpid(), signal.SIGKILL), take)


def go_on(rank, world, given):
    for how in WAYS:
        model, forward, share, optimiser = loaded(Block, "StochasticAGD", "fsdp", f"{given['folder']}/{how}")
        steps(forward, optimiser, SAVED, MORE, share)
        compare(model, optimiser, given["alone"][Block, "StochasticAGD"], f"goes on after a rank {how}")
