"""How large is a perturbation of one tensor."""

from autogd.geometry import atoms
from autogd.geometry.explain import Explanation, explain
from autogd.geometry.initialise import initialise_
from autogd.geometry.roles import Role, read_roles, register_atom

__all__ = ["Explanation", "Role", "atoms", "explain", "initialise_", "read_roles", "register_atom"]
