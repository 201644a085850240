"""The optimiser: gather, solve, apply."""

from autogd.optim.agd import AGD
from autogd.optim.majorisation import ExponentialMajorisation, Majorisation

__all__ = ["AGD", "ExponentialMajorisation", "Majorisation"]
