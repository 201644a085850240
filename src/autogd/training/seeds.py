"""Every random number of a run is a function of the seed and of its place in the run.

So no random state is saved: a resumed run draws the same numbers as an uninterrupted one.
"""

import hashlib

import torch

__all__ = ["derive", "generator", "plant"]


def derive(*place: int | str) -> int:
    """A seed for one place in a run: equal places give equal seeds, different places unrelated ones.

    >>> derive(0, "order", 1) == derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=8).digest(), "big") >> 1


def generator(*place: int | str) -> torch.Generator:
    """A generator seeded with `derive(*place)`; on the CPU, so that every device gets the same numbers.

    >>> int(torch.randint(100, (), generator=generator(7))) == int(torch.randint(100, (), generator=generator(7)))
    True
    """
    return torch.Generator().manual_seed(derive(*place))


def plant(device: torch.device, *place: int | str) -> None:
    """Seed torch's default generators, of the CPU and of the device, with `derive(*place)`.

    >>> plant(torch.device("cpu"), 7); first = torch.rand(1)
    >>> plant(torch.device("cpu"), 7); bool(torch.rand(1) == first)
    True
    """
    # torch.manual_seed looks for every kind of device: too slow for every step
    seed = derive(*place)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
