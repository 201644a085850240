"""An optimiser's step relative to the forward and backward pass, on three networks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autogd.experiments.speed.clock import best_times
from autogd.experiments.speed.step_cost import CONTENDERS, stepping
from autogd.models import FCN, GPT, ResNet18

__all__ = ["NETWORKS", "Share", "shares"]

# a network, and an input for a batch size; without a size, the target's
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    "gpt": (lambda: GPT(65, 64, depth=4, width=256), lambda n: torch.randint(65, (n, 64)), 32),
    "resnet18": (lambda: ResNet18(10), lambda n: torch.randn(n, 3, 32, 32), 128),
    "fcn": (lambda: FCN(8, 256, 3072, 10), lambda n: torch.randn(n, 3072), 128),
}


@dataclass(frozen=True)
class Share:
    """One optimiser on one network: seconds of forward and backward, seconds of a step, and their ratio."""

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

        def train(model: nn.Module = model, x: Tensor = x) -> None:
            model.zero_grad()
            model(x).square().mean().backward()

        train()
        steps = {optimiser: stepping(CONTENDERS[optimiser](model)) for optimiser in optimisers}
        best = best_times({**steps, "": train}, rounds, device, tick)
        for optimiser in optimisers:
            yield Share(name, size, optimiser, best[""], best[optimiser], best[optimiser] / best[""])
