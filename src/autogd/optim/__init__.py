"""The optimiser: gather, solve, apply."""

from autogd.optim.agd import AGD
from autogd.optim.averaged import AveragedAGD
from autogd.optim.majorisation import ExponentialMajorisation, Majorisation
from autogd.optim.stochastic import StochasticAGD

__all__ = ["AGD", "AveragedAGD", "ExponentialMajorisation", "Majorisation", "StochasticAGD"]
