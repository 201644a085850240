"""Automatic gradient descent for JAX: `optax` transformations with the same steps as the PyTorch optimisers."""

try:
    import jax as _jax  # noqa: F401
    import optax as _optax  # noqa: F401
except ImportError as error:
    raise ImportError("autogd.jax needs the extra 'jax': pip install 'autogd[jax]'") from error

from autogd.jax import atoms
from autogd.jax.agd import AGDState, agd
from autogd.jax.initialise import initialise
from autogd.jax.labels import default_label, read_atoms
from autogd.jax.stochastic import StochasticAGDState, averaged, stochastic_agd

__all__ = [
    "AGDState", "StochasticAGDState", "agd", "atoms", "averaged", "default_label", "initialise", "read_atoms",
    "stochastic_agd",
]  # fmt: skip
