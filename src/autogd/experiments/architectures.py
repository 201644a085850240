"""Four architectures: AGD against Adam at the best rate of a grid, and against SGD 0.1 on the largest."""

from autogd.baselines import PAPER_GRID
from autogd.experiments import showcase
from autogd.experiments.preset import Scale, against, beside, published, short_then_tuned
from autogd.training.config import Config

__all__ = ["trials"]


def trials(scale: Scale) -> dict[str, Config]:
    """Four networks; the runs of the two ResNets are shared with the showcase.

    >>> trials("paper")["architectures/vgg16-agd"].data
    'cifar100'
    """
    plain = {
        "smoke": published(data="digits", depth=16, width=32, epochs=3),
        "laptop": published(depth=16, width=256, epochs=5, limit=12800),
        "workstation": published(depth=16, width=512, epochs=100),
        "paper": published(depth=16, width=512, epochs=200),
    }[scale]
    convolutional = {
        "smoke": published(data="digits", model="vgg16", width=2, epochs=1, limit=384),
        "laptop": published(model="vgg16", width=4, epochs=4, limit=5120),
        "workstation": published(model="vgg16", width=16, epochs=20),
        "paper": published(data="cifar100", model="vgg16", epochs=200),
    }[scale]
    grid = (1e-3, 1e-1) if scale == "smoke" else PAPER_GRID
    shared = {name: config for name, config in showcase.residual(scale).items() if config.optimiser != "sgd"}
    if scale == "workstation":
        return {
            **short_then_tuned("architectures/fcn16", plain, {"adam": (1e-5, 1e-4, 1e-3)}, short=20),
            **beside({"architectures/fcn16": plain}, epochs=5),  # polar factors cost fourteen times the passes here
            **shared,
            **short_then_tuned("architectures/vgg16", convolutional, {"adam": (1e-4, 1e-3, 1e-2)}, short=6),
            **showcase.large(scale),
        }
    return {
        **against("architectures/fcn16", plain, {"adam": grid}),
        **shared,
        **against("architectures/vgg16", convolutional, {"adam": grid}),
        **showcase.large(scale),
    }
