"""How large is a perturbation of one tensor: mathematics only."""

from autogd.geometry import atoms
from autogd.geometry.catalogue import Role, read_roles, register_atom
from autogd.geometry.explain import Explanation, explain
from autogd.geometry.initialise import initialise_

__all__ = ["Explanation", "Role", "atoms", "explain", "initialise_", "read_roles", "register_atom"]
