"""How much of an epoch is spent outside forward, backward and step, and how many images a second are trained?

    python benchmarks/data_pipeline.py [--data-dir DIR] [--depth 8] [--width 256]

trains the fully-connected network on CIFAR-10 with augmentation, or on random images of the same shape if no folder is
named, and prints the time of each part as JSON. Then it prints the images a second of that network and of a ResNet-18
of width 16: as they are trained, and without what was done for speed (batches prepared in the training thread,
contiguous images). Both take turns; the best of several counts. Exit status 1 if more than 10% is spent outside.
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


def prepared_in_turn(setup):
    """Every batch when it is needed, in the thread that trains."""
    setup.layout = torch.contiguous_format
    setup.batches = lambda order, epoch, done: (setup.train_batch(row, i) for i, row in enumerate(order))
    return setup


def images_a_second(config, task, steps, rounds=7):
    with mock.patch.object(data, "load", return_value=task):
        setups = {"before": prepared_in_turn(Setup.build(config)), "now": Setup.build(config)}
    best = dict.fromkeys(setups, 0.0)
    for _ in range(rounds):
        for name, setup in setups.items():
            ledger, order = Ledger(setup.steps_per_epoch, setup.place), setup.order(1)
            batches, started = setup.batches(order[: steps + 1], 1, 0), None
            for i, batch in enumerate(batches):
                if i == 1:  # the first batch starts the thread
                    started = time.perf_counter()
                take_step(setup, ledger, batch, order[i], 1, i)
            best[name] = max(best[name], steps * setup.batch_size / (time.perf_counter() - started))
    return best | {"ratio": best["now"] / best["before"]}


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
    speeds = {
        "fcn": images_a_second(config, task, 60),
        "resnet18": images_a_second(Config(data="cifar10", model="resnet18", width=16), task, 6),
    }
    print(json.dumps({"augmented": augmented, "plain": plain, "images a second": speeds}, indent=1))
    return int(augmented["share outside"] > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
