"""Automatic gradient descent for PyTorch: no learning rate, no schedule, no tuning."""

from autogd import losses, models, theory
from autogd.diagnosis import doctor
from autogd.geometry import atoms, explain, initialise_, register_atom
from autogd.optim import AGD, StochasticAGD

__all__ = [
    "AGD",
    "StochasticAGD",
    "atoms",
    "doctor",
    "explain",
    "initialise_",
    "losses",
    "models",
    "register_atom",
    "theory",
]
__version__ = "1.0.0"
