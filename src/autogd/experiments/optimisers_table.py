"""The paper's first table, measured: memory, and whether the best learning rate changes with width and depth."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from autogd import baselines
from autogd.experiments.trials import Scale, against, published
from autogd.models import FCN
from autogd.training.config import Config

__all__ = ["ROWS", "SHAPES", "Row", "bytes_per_weight", "trials"]


@dataclass(frozen=True)
class Row:
    """One optimiser of the table, and its memory according to the paper, as a multiple of the weights."""

    title: str
    optimiser: str
    memory: int | None


ROWS = (
    Row("Adam", "adam", 3),
    Row("SGD + momentum", "sgd", 2),
    Row("SGD + muP", "sgd-mup-plain", 1),
    Row("AGD", "agd", 1),
    Row("StochasticAGD (ours)", "agd-stochastic", None),
)
SHAPES = {"base": (4, 64), "wide": (4, 512), "deep": (24, 64)}  # depth and width
GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def trials(scale: Scale) -> dict[str, Config]:
    """Every optimiser at every rate on a base, a wider and a deeper network; on digits, in seconds.

    >>> sorted({(c.depth, c.width) for c in trials("laptop").values()})
    [(4, 64), (4, 512), (24, 64)]
    """
    grid = (1e-3, 1e-1) if scale == "smoke" else GRID
    task = published(data="digits", epochs={"smoke": 1, "laptop": 10, "workstation": 30, "paper": 100}[scale])
    rivals = {row.optimiser: grid for row in ROWS if baselines.entry(row.optimiser).rated}
    found: dict[str, Config] = {}
    for name, (depth, width) in SHAPES.items():
        sized = replace(task, depth=depth, width=width)
        found |= against(f"optimisers-table/{name}", sized, rivals)
    return found


def bytes_per_weight(optimiser: str) -> float:
    """Bytes per weight after one step: 4 for the float32 weight itself, the rest for optimiser state.

    >>> bytes_per_weight("agd")
    4.0
    """
    torch.manual_seed(0)
    model = FCN(depth=3, width=256, d_in=64, d_out=10)
    inputs = torch.randn(8, 64)
    stepper = baselines.build(optimiser, model)

    def closure() -> Tensor:
        loss: Tensor = model(inputs).square().mean()
        if torch.is_grad_enabled():  # some optimisers replay the batch without gradients after their step
            loss.backward()
        return loss

    stepper.step(closure)
    weights = sum(p.numel() for p in model.parameters())
    return (_bytes(model.state_dict()) + _bytes(stepper.state_dict()["state"])) / weights


def _bytes(tree: object) -> int:
    """Bytes of all tensors in a tree of dicts."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    return sum(map(_bytes, tree.values())) if isinstance(tree, dict) else 0
