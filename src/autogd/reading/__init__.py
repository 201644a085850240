"""From a model to the atoms of its parameters: the catalogue of `torch.nn`, and the graph of one forward pass."""

from autogd.reading.catalogue import Role, read_roles, register_atom
from autogd.reading.explain import Explanation, explain
from autogd.reading.initialise import initialise_

__all__ = ["Explanation", "Role", "explain", "initialise_", "read_roles", "register_atom"]
