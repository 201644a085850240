"""AGD on fully-connected networks of every width and depth, and the two phases of its learning rate."""

from dataclasses import replace

from autogd.experiments.preset import Scale, beside, published
from autogd.training.config import Config

__all__ = ["grid", "phases", "second_row", "trials"]

PATIENCE = 80  # epochs of the widest network at the workstation's scale


def trials(scale: Scale) -> dict[str, Config]:
    """The grid and the two phases, with AGD and with StochasticAGD.

    >>> len(trials("paper"))
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
    if scale == "laptop":  # too slow for one core: both deep and wide
        pairs = [(depth, width) for depth, width in pairs if width <= 256 or (width == 512 and depth <= 8)]
    if scale == "workstation":
        pairs = [(depth, width) for depth, width in pairs if width <= 512]
    found = {
        f"width-depth/depth{depth}-width{width}": replace(task, depth=depth, width=width) for depth, width in pairs
    }
    if scale == "workstation":  # the paper's best network, with two core-hours
        found["width-depth/depth4-width2048"] = replace(task, depth=4, width=2048, epochs=PATIENCE)
    return found


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
    """StochasticAGD on the same networks; at the workstation's scale on some of them.

    Its polar factors cost the cube of the width, many times the passes of so small a batch. A night of two cores has
    time for two depths at two widths, and for the two phases of a narrower network. It learns by heart in fewer epochs.

    >>> len(second_row("laptop")), len(second_row("workstation"))
    (19, 5)
    """
    squares, heart = grid(scale), phases(scale)
    if scale == "laptop":
        return {**beside(squares), **beside(heart, epochs=30)}
    if scale == "workstation":
        squares = {name: trial for name, trial in squares.items() if trial.depth in (2, 8) and trial.width in (64, 256)}
        return {**beside(squares), **beside(heart, width=256, epochs=30)}
    return {**beside(squares), **beside(heart)}
