"""The optimisers: the equations, in files named after them."""

from autogd.optim.agd import AGD
from autogd.optim.bound import ExponentialMajorisation, Majorisation
from autogd.optim.stochastic import StochasticAGD

__all__ = ["AGD", "ExponentialMajorisation", "Majorisation", "StochasticAGD"]
