"""The optimiser: gather, solve, apply."""

from autogd.optim.agd import AGD
from autogd.optim.majorisation import ExponentialMajorisation, Majorisation
from autogd.optim.stochastic import StochasticAGD

__all__ = ["AGD", "ExponentialMajorisation", "Majorisation", "StochasticAGD"]
