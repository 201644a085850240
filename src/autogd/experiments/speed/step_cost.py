"""The cost of one step: on sets of parameters, and relative to the forward and backward pass of three networks."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from autogd import baselines
from autogd.experiments.speed.instruments import best_times, peak_bytes, steady_bytes
from autogd.experiments.speed.tensors import SETS
from autogd.models import FCN, GPT, ResNet18
from autogd.optim import AGD, StochasticAGD

__all__ = ["CONTENDERS", "NETWORKS", "REFERENCE", "Cost", "Share", "costs", "shares", "stepping", "with_gradients"]

REFERENCE = "adam-fused"
PASSES = 4  # AGD reads the gradients for the norms, then reads gradients and weights, and writes the weights
ADD = 3  # passes of w ← w + c·g

# the optimisers of `baselines`, and variants that only the speed benchmarks time
CONTENDERS: dict[str, Callable[[nn.Module], Any]] = {
    "agd": AGD,
    "agd-readable": lambda model: AGD(model, foreach=False),
    "agd-decay": lambda model: AGD(model, weight_decay=0.01),
    "agd-stochastic-frobenius": lambda model: StochasticAGD(model, geometry="frobenius"),
    **{name: partial(baselines.build, name) for name in baselines.OPTIMISERS if name != "agd"},
    REFERENCE: lambda model: torch.optim.Adam(model.parameters(), fused=True),
    "sgd-fused": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, fused=True),
}


@dataclass(frozen=True)
class Cost:
    """One optimiser on one set.

    Args:
        seconds: the best time of a step.
        of_adam: relative to fused Adam.
        of_limit: relative to the time that plain AGD needs at full memory bandwidth.
        steady: bytes of state per weight.
        peak: peak bytes during a step, per weight.
    """

    set: str
    weights: int
    tensors: int
    optimiser: str
    seconds: float
    of_adam: float
    of_limit: float
    steady: float
    peak: float


def with_gradients(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on the device, with a random gradient for every parameter.

    >>> with_gradients(nn.Linear(2, 2), torch.device("cpu")).bias.grad.shape
    torch.Size([2])
    """
    model = model.to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def stepping(optimiser: Any) -> Callable[[], object]:
    """A function that takes one step on the present gradients.

    >>> stepping(AGD(with_gradients(nn.Linear(2, 2), torch.device("cpu"))))()
    tensor(0.)
    """
    return partial(optimiser.step, partial(torch.zeros, ()))


def costs(
    sets: Sequence[str],
    optimisers: Sequence[str],
    rounds: int,
    device: torch.device,
    tick: Callable[[], object] = int,
) -> Iterator[Cost]:
    """Measure each set; fused Adam and the memory bandwidth are always included.

    >>> [row.optimiser for row in costs(["mlp"], ["agd"], 1, torch.device("cpu"))]
    ['agd', 'adam-fused']
    """
    for name in sets:
        yield from _on_one_set(name, list(dict.fromkeys([*optimisers, REFERENCE])), rounds, device, tick)


def _on_one_set(
    name: str, optimisers: list[str], rounds: int, device: torch.device, tick: Callable[[], object]
) -> list[Cost]:
    torch.manual_seed(0)
    model = with_gradients(SETS[name](), device)
    parameters: list[Tensor] = list(model.parameters())
    weights = sum(p.numel() for p in parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    built = {optimiser: CONTENDERS[optimiser](model) for optimiser in optimisers}

    def add() -> None:
        with torch.no_grad():
            torch._foreach_add_(parameters, grads, alpha=1e-9)

    calls = {optimiser: stepping(stepper) for optimiser, stepper in built.items()}
    best = best_times({**calls, "": add}, rounds, device, tick)
    limit = best[""] * PASSES / ADD
    return [
        Cost(
            set=name,
            weights=weights,
            tensors=len(parameters),
            optimiser=optimiser,
            seconds=best[optimiser],
            of_adam=best[optimiser] / best[REFERENCE],
            of_limit=best[optimiser] / limit,
            steady=steady_bytes(stepper.state_dict()) / weights,
            peak=peak_bytes(calls[optimiser], device) / weights,
        )
        for optimiser, stepper in built.items()
    ]


# a network, its input for a batch size, and the usual batch size
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    "gpt": (lambda: GPT(65, 64, depth=4, width=256), lambda n: torch.randint(65, (n, 64)), 32),
    "resnet18": (lambda: ResNet18(10), lambda n: torch.randn(n, 3, 32, 32), 128),
    "fcn": (lambda: FCN(8, 256, 3072, 10), lambda n: torch.randn(n, 3072), 128),
}


@dataclass(frozen=True)
class Share:
    """One optimiser on one network: seconds of forward and backward pass, seconds of a step, and their ratio."""

    network: str
    batch: int
    optimiser: str
    training: float
    step: float
    share: float


def shares(
    networks: Sequence[str],
    optimisers: Sequence[str],
    rounds: int,
    device: torch.device,
    batch: int | None = None,
    tick: Callable[[], object] = int,
) -> Iterator[Share]:
    """Measure each network; all optimisers take turns.

    >>> [row.network for row in shares(["fcn"], ["agd"], 1, torch.device("cpu"), batch=2)]
    ['fcn']
    """
    for name in networks:
        make, draw, usual = NETWORKS[name]
        size = batch or usual
        torch.manual_seed(0)
        model, x = make().to(device), draw(size).to(device)

        def train(model: nn.Module, x: Tensor = x) -> None:
            model.zero_grad()
            model(x).square().mean().backward()

        train(model)
        steps = {optimiser: stepping(CONTENDERS[optimiser](model)) for optimiser in optimisers}
        # the steps of several optimisers on one network make it diverge, so the passes are timed on another
        passes = partial(train, copy.deepcopy(model))
        best = best_times({**steps, "": passes}, rounds, device, tick)
        for optimiser in optimisers:
            yield Share(name, size, optimiser, best[""], best[optimiser], best[optimiser] / best[""])
