"""Train a run in child processes that are killed at random moments, and one that is not; print what happened.

The children are forked from a process that has imported torch, so a start takes milliseconds.
"""

import dataclasses
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import torch

from autogd.training import Config, Run, Watch, checkpoint, train

KILLS = 20


class Ask(Watch):
    """Asks before training and after every step whether to continue: kills do not depend on the speed."""

    def __init__(self, line):
        self.line = line

    def start(self, run, step, steps):
        self.step(step)

    def step(self, step):
        self.line.sendall(b"?")
        self.line.recv(1)


def start(run, watches):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(run, watches)
            status = 0
        finally:
            os._exit(status)
    return child


def main(folder):
    torch.set_num_threads(1)
    config = Config(depth=2, width=16, epochs=30, batch_size=128, optimiser="adam", checkpoint_seconds=0.0)
    # import here, so that the children have it
    train(Run.create(dataclasses.replace(config, checkpoint_seconds=60.0), folder / "whole"))
    run = Run.create(config, folder / "killed")
    moments = random.Random(0)
    seen = []
    for kills in range(KILLS):
        newest = checkpoint.latest(run.checkpoints)
        seen.append(int(newest.name.split("-")[1]) if newest else 0)
        mine, theirs = socket.socketpair()
        child = start(run, [Ask(theirs)])
        theirs.close()
        for _ in range(moments.randint(1, 14)):
            mine.recv(1)
            mine.sendall(b"!")
        time.sleep(moments.uniform(0, 0.02))  # about the time of a step and its checkpoint
        os.kill(child, signal.SIGKILL)
        mine.close()
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            sys.exit(f"the run ended by itself after {kills} kills, with status {status}: it is too short")
    assert os.waitpid(start(run, []), 0)[1] == 0
    print(json.dumps({"kills": KILLS, "steps_seen_at_resume": seen}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
