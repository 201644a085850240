"""AGD and StochasticAGD at every width and depth, and at batch sizes from 32 to 4,096."""

from dataclasses import replace

from autogd.experiments.trials import Scale, published, with_stochastic_agd
from autogd.training.config import Config

__all__ = ["batch_size", "grid", "phases", "second_row", "width_depth"]


def width_depth(scale: Scale) -> dict[str, Config]:
    """The grid and the two phases, with AGD and with StochasticAGD.

    >>> len(width_depth("paper"))
    62
    """
    return {**grid(scale), **phases(scale), **second_row(scale)}


def grid(scale: Scale) -> dict[str, Config]:
    """Every depth at every width.

    >>> "width-depth/depth4-width2048" in grid("paper")
    True
    """
    depths: tuple[int, ...] = (2, 4, 8, 16, 32)
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    task = {
        "smoke": published(data="digits", epochs=2),
        "laptop": published(epochs=6, limit=12800),
        "workstation": published(epochs=40),
        "paper": published(epochs=500),
    }[scale]
    if scale == "smoke":
        depths, widths = (2, 8), (16, 64)
    pairs = [(depth, width) for depth in depths for width in widths]
    if scale in ("laptop", "workstation"):  # networks that are both deep and wide are too slow for one core
        pairs = [(depth, width) for depth, width in pairs if width <= 256 or (width == 512 and depth <= 8)]
    return {f"width-depth/depth{depth}-width{width}": replace(task, depth=depth, width=width) for depth, width in pairs}


def phases(scale: Scale) -> dict[str, Config]:
    """A network that memorises its training set: few samples, without augmentation.

    >>> phases("laptop")["width-depth/phases"].augment
    False
    """
    task = {
        "smoke": published(data="digits", depth=4, width=128, epochs=60, limit=256),
        "laptop": published(depth=4, width=512, epochs=120, limit=5120, augment=False),
        "workstation": published(depth=4, width=1024, epochs=120, limit=10240, augment=False),
        "paper": published(depth=8, width=2048, epochs=500, augment=False),
    }[scale]
    return {"width-depth/phases": task}


def second_row(scale: Scale) -> dict[str, Config]:
    """StochasticAGD on the same networks; at the scale `workstation` on some of them.

    The cost of a polar factor grows with the cube of the width; at a batch of 128 it is many times that of the passes.
    In one night, two cores can train two depths at two widths, and a narrower network for the two phases. StochasticAGD
    memorises the training set sooner, so it gets fewer epochs there.

    >>> len(second_row("laptop")), len(second_row("workstation"))
    (19, 5)
    """
    squares, memorising = grid(scale), phases(scale)
    if scale == "laptop":
        return {**with_stochastic_agd(squares), **with_stochastic_agd(memorising, epochs=30)}
    if scale == "workstation":
        squares = {name: trial for name, trial in squares.items() if trial.depth in (2, 8) and trial.width in (64, 256)}
        return {**with_stochastic_agd(squares), **with_stochastic_agd(memorising, width=256, epochs=30)}
    return {**with_stochastic_agd(squares), **with_stochastic_agd(memorising)}


def batch_size(scale: Scale) -> dict[str, Config]:
    """AGD and StochasticAGD at four batch sizes; every step of the first epoch is recorded.

    The paper has four results, and names only the smallest and the largest batch size.

    >>> [config.batch_size for config in batch_size("paper").values()]
    [32, 128, 1024, 4096, 32, 128, 1024, 4096]
    """
    task = {
        "smoke": published(data="digits", depth=4, width=32, epochs=3, trace=True),
        "laptop": published(depth=4, width=256, epochs=6, trace=True),
        "workstation": published(depth=4, width=512, epochs=20, trace=True),
        "paper": published(depth=4, width=512, epochs=200, trace=True),  # the width is not in the paper
    }[scale]
    sizes = (32, 128, 512) if scale == "smoke" else (32, 128, 1024, 4096)
    found = {f"batch-size/batch{size}": replace(task, batch_size=size) for size in sizes}
    if scale != "workstation":
        return {**found, **with_stochastic_agd(found)}
    # no StochasticAGD at batch 32: 1,562 steps an epoch with polar factors are too slow for one core
    some = {name: trial for name, trial in found.items() if trial.batch_size > 32}
    return {**found, **with_stochastic_agd(some)}
