"""The derivation, one file a link: from a loss and an architecture to an optimiser."""

from autogd.theory import losses
from autogd.theory.bregman import bregman, check_convexity
from autogd.theory.linearisation import functional_expansion, linearise
from autogd.theory.losses import Loss
from autogd.theory.majorise import majorise
from autogd.theory.walk import perturbation_bound, register_bound

__all__ = [
    "Loss",
    "bregman",
    "check_convexity",
    "functional_expansion",
    "linearise",
    "losses",
    "majorise",
    "perturbation_bound",
    "register_bound",
]
