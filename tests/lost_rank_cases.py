"""Cases for `many_ranks`: the last rank is lost in a step, and fewer ranks go on from the checkpoint."""

import os
import signal
from datetime import timedelta

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
    def take(step):
        _set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
        with pytest.raises(RuntimeError, match=r"Timed out waiting|timeout caused pair closure|" + CLOSED):
            step()

    # `many_ranks` kills it when all others have ended
    _train(rank, world, f"{given['folder']}/hangs", signal.pause, take)


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
