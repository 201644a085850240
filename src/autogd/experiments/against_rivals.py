"""AGD and StochasticAGD against other optimisers: the showcase, four architectures, and an eight-layer network."""

from dataclasses import replace

from autogd.baselines import PAPER_GRID
from autogd.experiments.trials import Scale, against, published, short_then_tuned, with_stochastic_agd
from autogd.training.config import Config

__all__ = ["architectures", "deep", "large", "residual", "showcase", "versus_tuned"]


def showcase(scale: Scale) -> dict[str, Config]:
    """The paper's first figure: all three panels.

    >>> list(showcase("paper"))[:3]
    ['showcase/fcn32-agd', 'showcase/fcn32-agd-stochastic', 'showcase/fcn32-adam-0.001']
    """
    return {**deep(scale), **residual(scale), **large(scale)}


def deep(scale: Scale) -> dict[str, Config]:
    """Panel (a): a fully-connected network of 32 layers; rivals at their defaults, SGD with and without momentum 0.9.

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
    if scale == "workstation":  # on this narrow network its step costs more than the passes
        found["showcase/fcn32-agd-stochastic"] = replace(found["showcase/fcn32-agd-stochastic"], epochs=10)
    return found


def residual(scale: Scale) -> dict[str, Config]:
    """Panel (b): ResNet-18; Adam and SGD at every rate of the grid.

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
    """Panel (c): ResNet-50 with cross-entropy; ImageNet at the scale `paper`, else a narrow network and small images.

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


def architectures(scale: Scale) -> dict[str, Config]:
    """Four networks: AGD, Adam at the best rate of a grid, and SGD 0.1 on the largest.

    The runs of the two ResNets are shared with the showcase.

    >>> architectures("paper")["architectures/vgg16-agd"].data
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
    shared = {name: config for name, config in residual(scale).items() if config.optimiser != "sgd"}
    if scale == "workstation":
        return {
            **short_then_tuned("architectures/fcn16", plain, {"adam": (1e-5, 1e-4, 1e-3)}, short=20),
            **with_stochastic_agd(
                {"architectures/fcn16": plain}, epochs=5
            ),  # polar factors cost fourteen times the passes here
            **shared,
            **short_then_tuned("architectures/vgg16", convolutional, {"adam": (1e-4, 1e-3, 1e-2)}, short=6),
            **large(scale),
        }
    return {
        **against("architectures/fcn16", plain, {"adam": grid}),
        **shared,
        **against("architectures/vgg16", convolutional, {"adam": grid}),
        **large(scale),
    }


def versus_tuned(scale: Scale) -> dict[str, Config]:
    """Eight layers of width 256: AGD, and Adam and SGD at every rate of the grid.

    SGD runs with and without momentum 0.9, since the paper does not say which one it plots.

    >>> sorted({config.optimiser for config in versus_tuned("laptop").values()})
    ['adam', 'agd', 'agd-stochastic', 'sgd', 'sgd-plain']
    """
    task = {
        "smoke": published(data="digits", depth=8, width=32, epochs=3),
        "laptop": published(depth=8, width=256, epochs=5, limit=25600),
        "workstation": published(depth=8, width=256, epochs=100),
        "paper": published(depth=8, width=256, epochs=200),
    }[scale]
    grid = (1e-3, 1e-1) if scale == "smoke" else PAPER_GRID
    # without momentum the two smallest rates hardly train: skip them if hours are few
    plain = grid[2:] if scale == "workstation" else grid
    found = against("versus-tuned/fcn8", task, {"adam": grid, "sgd": grid, "sgd-plain": plain})
    if scale == "workstation":  # polar factors cost six times the passes here
        found |= with_stochastic_agd({"versus-tuned/fcn8": task}, epochs=30)
    return found
