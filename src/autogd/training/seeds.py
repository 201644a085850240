"""Every random number of a run follows from its seed and from where in the run it is drawn.

Nothing random is then left to save: a run that resumes at a step draws what it would have drawn there.
"""

import hashlib

import torch

__all__ = ["derive", "generator"]


def derive(*place: int | str) -> int:
    """A seed for one place in a run: equal places give equal seeds, others unrelated ones.

    >>> derive(0, "order", 1) == derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=8).digest(), "big") >> 1


def generator(*place: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that starts from `derive(*place)`.

    >>> int(torch.randint(100, (), generator=generator(7))) == int(torch.randint(100, (), generator=generator(7)))
    True
    """
    return torch.Generator(device).manual_seed(derive(*place))
