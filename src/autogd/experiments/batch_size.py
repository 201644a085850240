"""AGD on four layers, at batches from 32 to 4,096; every step of the first epoch is recorded."""

from dataclasses import replace

from autogd.experiments.preset import Scale, beside, published
from autogd.training.config import Config

__all__ = ["trials"]


def trials(scale: Scale) -> dict[str, Config]:
    """Four sizes, with AGD and StochasticAGD; the paper has four results, and names the smallest and largest batch.

    >>> [config.batch_size for config in trials("paper").values()]
    [32, 128, 1024, 4096, 32, 128, 1024, 4096]
    """
    task = {
        "smoke": published(data="digits", depth=4, width=32, epochs=3, trace=True),
        "laptop": published(depth=4, width=256, epochs=6, trace=True),
        "workstation": published(depth=4, width=512, epochs=60, trace=True),
        "paper": published(depth=4, width=512, epochs=200, trace=True),  # the width is not in the paper
    }[scale]
    sizes = (32, 128, 512) if scale == "smoke" else (32, 128, 1024, 4096)
    found = {f"batch-size/batch{size}": replace(task, batch_size=size) for size in sizes}
    if scale != "workstation":
        return {**found, **beside(found)}
    # StochasticAGD without the smallest batch: 1,562 steps an epoch with polar factors are too slow for one core
    some = {name: trial for name, trial in found.items() if trial.batch_size > 32}
    return {**found, **beside(some, epochs=20)}
