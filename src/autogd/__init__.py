"""Automatic gradient descent for PyTorch: no learning rate, no schedule, no tuning."""

from autogd import losses, models, theory
from autogd.diagnosis import doctor
from autogd.geometry import atoms
from autogd.optim import AGD, StochasticAGD
from autogd.reading import explain, initialise_, register_atom

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
