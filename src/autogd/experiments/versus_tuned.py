"""AGD against Adam and SGD, both tuned over the paper's grid, on eight layers of width 256."""

from autogd.baselines import PAPER_GRID
from autogd.experiments.preset import Scale, against, beside, published
from autogd.training.config import Config

__all__ = ["trials"]


def trials(scale: Scale) -> dict[str, Config]:
    """AGD and both grids; SGD with momentum 0.9 and without, since the paper does not say which it plots.

    >>> sorted({config.optimiser for config in trials("laptop").values()})
    ['adam', 'agd', 'agd-stochastic', 'sgd', 'sgd-plain']
    """
    task = {
        "smoke": published(data="digits", depth=8, width=32, epochs=3),
        "laptop": published(depth=8, width=256, epochs=5, limit=25600),
        "workstation": published(depth=8, width=256, epochs=100),
        "paper": published(depth=8, width=256, epochs=200),
    }[scale]
    grid = (1e-3, 1e-1) if scale == "smoke" else PAPER_GRID
    # without momentum the two smallest rates hardly train: the workstation skips them
    plain = grid[2:] if scale == "workstation" else grid
    found = against("versus-tuned/fcn8", task, {"adam": grid, "sgd": grid, "sgd-plain": plain})
    if scale == "workstation":  # polar factors cost six times the passes here
        found |= beside({"versus-tuned/fcn8": task}, epochs=30)
    return found
