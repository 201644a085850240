"""The paper's first figure: a deep network at defaults, a residual one against grids, and the large one."""

from dataclasses import replace

from autogd.baselines import PAPER_GRID
from autogd.experiments.preset import Scale, against, published, short_then_tuned
from autogd.training.config import Config

__all__ = ["deep", "large", "residual", "trials"]


def trials(scale: Scale) -> dict[str, Config]:
    """All three panels.

    >>> list(trials("paper"))[:3]
    ['showcase/fcn32-agd', 'showcase/fcn32-agd-stochastic', 'showcase/fcn32-adam-0.001']
    """
    return {**deep(scale), **residual(scale), **large(scale)}


def deep(scale: Scale) -> dict[str, Config]:
    """(a) A fully-connected network of 32 layers, rivals at their defaults; SGD with momentum 0.9 and without.

    >>> deep("laptop")["showcase/fcn32-agd"].depth
    32
    """
    task = {
        "smoke": published(data="digits", depth=32, width=32, epochs=3),
        "laptop": published(depth=32, width=128, epochs=8),
        "workstation": published(depth=32, width=256, epochs=40),
        # the paper does not give width and epochs of this panel
        "paper": published(depth=32, width=256, epochs=150),
    }[scale]
    found = against("showcase/fcn32", task, {"adam": [1e-3], "sgd": [0.1], "sgd-plain": [0.1]})
    if scale == "workstation":  # on a thin network its steps cost more than the passes
        found["showcase/fcn32-agd-stochastic"] = replace(found["showcase/fcn32-agd-stochastic"], epochs=10)
    return found


def residual(scale: Scale) -> dict[str, Config]:
    """(b) ResNet-18 against Adam and SGD over their grid.

    >>> len(residual("paper"))
    12
    """
    task = {
        "smoke": published(data="digits", model="resnet18", width=2, epochs=1, limit=384),
        "laptop": published(model="resnet18", width=4, epochs=4, limit=5120),
        "workstation": published(model="resnet18", width=16, epochs=20),
        "paper": published(model="resnet18", epochs=200),
    }[scale]
    if scale == "workstation":
        return short_then_tuned(
            "showcase/resnet18", task, {"adam": (1e-4, 1e-3, 1e-2), "sgd": (1e-3, 1e-2, 1e-1)}, short=6
        )
    grid = (1e-3, 1e-1) if scale == "smoke" else PAPER_GRID
    return against("showcase/resnet18", task, {"adam": grid, "sgd": grid})


def large(scale: Scale) -> dict[str, Config]:
    """(c) ResNet-50 with cross-entropy; on ImageNet at the paper's scale, thin and on small images at the others.

    >>> large("paper")["showcase/resnet50-agd"].batch_size
    1024
    """
    task = {
        "smoke": published(data="digits", model="resnet50", width=2, loss="cross-entropy", epochs=1, limit=256),
        "laptop": published(model="resnet50", width=4, loss="cross-entropy", epochs=4, limit=2560),
        "workstation": published(model="resnet50", width=8, loss="cross-entropy", epochs=8, limit=10240),
        "paper": published(data="imagenet", model="resnet50", loss="cross-entropy", batch_size=1024, epochs=350),
    }[scale]
    return against("showcase/resnet50", task, {"sgd": [0.1]})
