"""Build what the loop needs from a config: data, network, loss and optimiser, on their devices."""

import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from autogd import baselines, data, models
from autogd.baselines import Optimiser
from autogd.data import Task
from autogd.reading import initialise_
from autogd.training import distributed, seeds
from autogd.training.config import Config
from autogd.training.distributed import Place
from autogd.training.objective import Objective, choose, objective
from autogd.training.own_code import is_pointer, make
from autogd.training.tryout import DTYPES, check_config, ready, try_out

__all__ = ["Setup"]

WIDE = 16  # with at least so many channels, convolutions on a CPU are faster in channels_last

Batch = list[tuple[Tensor, Tensor]]


@dataclass
class Setup:
    """Everything that a run needs to take steps.

    >>> setup = Setup.build(Config(depth=2, width=16, batch_size=64))
    >>> setup.steps_per_epoch
    22
    """

    config: Config
    place: Place
    task: Task
    model: nn.Module
    forward: nn.Module  # the model, or its DDP wrapper
    optimiser: Optimiser
    loss: Objective
    rates: list[float] = field(default_factory=list)  # of each group, before any schedule
    layout: torch.memory_format = torch.contiguous_format  # of the network's input images

    @classmethod
    def build(cls, config: Config, place: Place | None = None) -> "Setup":
        """Load the data, build and initialise the network, distribute it, and build the optimiser."""
        config, place = config.resolved(), place or Place()
        entry = check_config(config, place)
        task = _load(config).to(place.device)
        if config.limit is not None:
            task = data.first_samples(task, config.limit)
        if not config.augment:
            task = dataclasses.replace(task, augment=None)
        assert config.model is not None
        torch.manual_seed(seeds.derive(config.seed, "model"))
        model = _build(config, task)
        # a user's own network may hold trained weights: keep them unless `start` is set
        if (config.start or ("torch" if is_pointer(config.model) else entry.start)) == "dimensional":
            initialise_(model, generator=seeds.generator(config.seed, "start"))
        model.to(place.device, DTYPES[config.precision])
        layout = _layout(model, place)
        task = try_out(config, task, model, layout)
        forward = distributed.spread(model, place, config.shard)
        optimiser = baselines.build(config.optimiser, model, config.lr)
        if config.compile:
            forward = torch.compile(forward)  # type: ignore[assignment]
        rates = [group["lr"] for group in optimiser.param_groups]
        loss = objective(choose(config, task), task.classes)
        return cls(config, place, task, model, forward, optimiser, loss, rates, layout)

    @property
    def batch_size(self) -> int:
        """Samples per step: as configured, or all of them if there are fewer; divisible by processes and pieces."""
        pieces = self.place.world * self.config.accumulate
        return min(self.config.batch_size, self.samples // pieces * pieces)

    @property
    def samples(self) -> int:
        """Training samples of an epoch; for a text, whose windows overlap, enough to cover it once."""
        return len(self.task.train) // _stride(self.task.train)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training set."""
        return self.samples // self.batch_size

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.config.epochs

    def order(self, epoch: int) -> Tensor:
        """The samples of an epoch, one row per step: a function of the seed and the epoch."""
        shuffled = torch.randperm(len(self.task.train), generator=seeds.generator(self.config.seed, "order", epoch))
        return shuffled[: self.steps_per_epoch * self.batch_size].view(self.steps_per_epoch, self.batch_size)

    def train_batch(self, indices: Tensor, step: int) -> Batch:
        """This process's slice of a global batch, in the pieces to accumulate over."""
        mine = self.place.slice(indices)
        if self.task.augment is None:
            inputs, labels = self.task.train.batch(mine)
        else:
            # draw for the whole batch, so that a sample's crop does not depend on the number of processes
            inputs, labels = self.task.train.batch(indices)
            generator = seeds.generator(self.config.seed, "augment", step)
            inputs = self.place.slice(self.task.augment(inputs, generator))
            labels = self.place.slice(labels)
        inputs, labels = self._ready(inputs), labels.to(self.place.device)
        pieces = self.config.accumulate
        return list(zip(inputs.chunk(pieces), labels.chunk(pieces), strict=True))

    def batches(self, order: Tensor, epoch: int, done: int) -> Iterator[Batch]:
        """The remaining batches of an epoch; a thread prepares the next one while the network trains on this one."""
        first = (epoch - 1) * self.steps_per_epoch
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.train_batch, order[done], first + done)
            for following in range(done + 1, len(order) + 1):
                pieces = waiting.result()
                if following < len(order):
                    waiting = pool.submit(self.train_batch, order[following], first + following)
                yield pieces

    def test_indices(self) -> Tensor:
        """Every sample of the test set once; for a text, windows that do not overlap."""
        return torch.arange(0, len(self.task.test), _stride(self.task.test))

    def test_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Samples of the test set, ready for the network."""
        inputs, labels = self.task.test.batch(indices)
        return self._ready(inputs), labels.to(self.place.device)

    def sample(self) -> Tensor:
        """The inputs of the first test sample, ready for the network."""
        return self.test_batch(torch.tensor([0]))[0]

    def output(self, inputs: Tensor) -> Tensor:
        """The network's output, under autocast if configured."""
        with torch.autocast(self.place.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            return self.forward(inputs)

    def schedule(self, step: int) -> None:
        """Set a rival's learning rates for a step; they depend only on the step's number, so nothing is saved."""
        if self.config.schedule == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * step / self.steps))
            for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
                group["lr"] = rate * factor

    def _ready(self, inputs: Tensor) -> Tensor:
        return ready(self.config, self.task, inputs.to(self.place.device), self.layout)


def _stride(split: data.Split) -> int:
    """The distance between samples that do not overlap."""
    return int(getattr(split, "context", 1))


def _layout(model: nn.Module, place: Place) -> torch.memory_format:
    """channels_last on a CPU if every convolution is wide enough to gain from it; contiguous otherwise.

    The weights are not changed: torch propagates the layout of the images through the network.
    """
    kernels = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    # skip the first, with three input channels; in torch 2.13, strided 1 × 1 kernels of 4 channels crash in backward
    inner = [size for kernel in kernels for size in (kernel.in_channels, kernel.out_channels)][1:]
    wide = bool(kernels) and min(inner) >= WIDE and all(kernel.groups == 1 for kernel in kernels)
    return torch.channels_last if wide and place.device.type == "cpu" else torch.contiguous_format


def _load(config: Config) -> Task:
    """The data set by its name, or what the user's own loader returns."""
    if is_pointer(config.data):
        return data.as_task(config.data, make(config.data, "data for training and testing"))
    return data.load(config.data, config.data_dir, context=config.context)


def _build(config: Config, task: Task) -> nn.Module:
    """The network by its name, or what the user's own factory returns."""
    assert config.model is not None
    switches = {"depth": config.depth, "width": config.width, "bias": config.bias, "affine": config.affine}
    if not is_pointer(config.model):
        return models.build(config.model, task.input_shape, task.classes, **switches)  # type: ignore[arg-type]
    given = [f"--{name}" for name, value in switches.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)}: only autogd's own networks take this; set it in {config.model}")
    model = make(config.model, "a Module")
    if not isinstance(model, nn.Module):
        raise ValueError(f"{config.model}: expected a torch.nn.Module, found a {type(model).__name__}")
    return model
