"""The breadth of the paper: four networks, AGD against the best Adam of a grid, and SGD 0.1 for the large one."""

from autogd.baselines import PAPER_GRID
from autogd.experiments import showcase
from autogd.experiments.preset import Scale, against, published
from autogd.training.config import Config

__all__ = ["trials"]


def trials(scale: Scale) -> dict[str, Config]:
    """Four networks; the runs of the two ResNets are those of the showcase, trained once.

    >>> trials("paper")["architectures/vgg16-agd"].data
    'cifar100'
    """
    plain = {
        "smoke": published(data="digits", depth=16, width=32, epochs=3),
        "laptop": published(depth=16, width=256, epochs=5, limit=12800),
        "paper": published(depth=16, width=512, epochs=200),
    }[scale]
    convolutional = {
        "smoke": published(data="digits", model="vgg16", width=2, epochs=1, limit=384),
        "laptop": published(model="vgg16", width=4, epochs=4, limit=5120),
        "paper": published(data="cifar100", model="vgg16", epochs=200),
    }[scale]
    grid = (1e-3, 1e-1) if scale == "smoke" else PAPER_GRID
    shared = {name: config for name, config in showcase.residual(scale).items() if config.optimiser != "sgd"}
    return {
        **against("architectures/fcn16", plain, {"adam": grid}),
        **shared,
        **against("architectures/vgg16", convolutional, {"adam": grid}),
        **showcase.large(scale),
    }
