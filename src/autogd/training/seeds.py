"""Every random number of a run follows from its seed and from where in the run it is drawn.

Nothing random is then left to save: a run that resumes at a step draws what it would have drawn there.
"""

import hashlib

import torch

__all__ = ["derive", "generator", "plant"]


def derive(*place: int | str) -> int:
    """A seed for one place in a run: equal places give equal seeds, others unrelated ones.

    >>> derive(0, "order", 1) == derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=8).digest(), "big") >> 1


def generator(*place: int | str) -> torch.Generator:
    """A generator that starts from `derive(*place)`; on the CPU, so that every device is given the same numbers.

    >>> int(torch.randint(100, (), generator=generator(7))) == int(torch.randint(100, (), generator=generator(7)))
    True
    """
    return torch.Generator().manual_seed(derive(*place))


def plant(device: torch.device, *place: int | str) -> None:
    """Start torch's own generators, the CPU's and the device's, from `derive(*place)`.

    >>> plant(torch.device("cpu"), 7); first = torch.rand(1)
    >>> plant(torch.device("cpu"), 7); bool(torch.rand(1) == first)
    True
    """
    # torch.manual_seed would do, but it looks for every kind of device there is, and a loop does this every step
    seed = derive(*place)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
