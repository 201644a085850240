"""How much of an epoch is spent outside forward, backward and step?

    python benchmarks/data_pipeline.py [--data-dir DIR] [--depth 8] [--width 256]

trains the fully-connected network on CIFAR-10 with augmentation, or on random images of the same shape if no folder is
named, and prints the time of each part as JSON. Exit status 1 if more than 10% is spent on anything else.
"""

import argparse
import json
import time
from collections import defaultdict
from dataclasses import replace
from unittest import mock

import torch

from autogd import data
from autogd.data.prepare import crop_and_flip
from autogd.data.task import image_task
from autogd.training import Config
from autogd.training.measure import Ledger
from autogd.training.setup import Setup
from autogd.training.step import take_step

LIMIT = 0.10


def random_cifar(samples=50_000):
    images = torch.randint(0, 256, (samples, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(samples) % 10
    return image_task("random", (images, labels), (images[:1000], labels[:1000]), 10, crop_and_flip)


class Clock:
    """Sums the time spent in functions, by name."""

    def __init__(self):
        self.seconds = defaultdict(float)

    def around(self, name, function):
        def timed(*arguments, **settings):
            started = time.perf_counter()
            try:
                return function(*arguments, **settings)
            finally:
                self.seconds[name] += time.perf_counter() - started

        return timed


def measure(config, task, warm_up=20):
    with mock.patch.object(data, "load", return_value=task):
        setup = Setup.build(config)
    clock = Clock()
    step = setup.optimiser.step
    setup.optimiser.step = lambda closure: clock.around("step and closure", step)(clock.around("closure", closure))
    setup.output = clock.around("forward", setup.output)
    setup.loss = clock.around("forward", setup.loss)
    with mock.patch.object(torch.Tensor, "backward", clock.around("backward", torch.Tensor.backward)):
        ledger = Ledger(setup.steps_per_epoch, setup.place)
        order = setup.order(1)
        batches = setup.batches(order, 1, 0)
        wait = clock.around("data", batches.__next__)
        for i in range(setup.steps_per_epoch):
            if i == warm_up:
                clock.seconds.clear()
                started = time.perf_counter()
            take_step(setup, ledger, wait(), order[i], 1, i)
        total = time.perf_counter() - started
    found = {name: clock.seconds[name] for name in ("data", "forward", "backward")}
    found["step"] = clock.seconds["step and closure"] - clock.seconds["closure"]
    found["rest"] = total - sum(found.values())
    return {"milliseconds a step": {k: 1e3 * v / (setup.steps_per_epoch - warm_up) for k, v in found.items()},
            "share outside": (found["data"] + found["rest"]) / total}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    task = data.load("cifar10", options.data_dir) if options.data_dir else random_cifar()
    config = Config(data="cifar10", model="fcn", depth=options.depth, width=options.width)
    augmented = measure(config, task)
    plain = measure(replace(config, augment=False), task)
    print(json.dumps({"augmented": augmented, "plain": plain}, indent=1))
    return int(augmented["share outside"] > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
