"""The derivation: from a loss and an architecture to an optimiser.

The files have the numbers of the sections of docs/derivation.md, which has the formulas. `check` tests every statement
of the paper on random draws.
"""

from autogd.theory import s1_losses as losses
from autogd.theory.s1_bregman import (
    bregman,
    bregman_of_cross_entropy,
    bregman_of_square,
    check_convexity,
    per_sample,
)
from autogd.theory.s1_losses import Loss
from autogd.theory.s2_linearisation import (
    functional_expansion,
    functional_expansion_of_square,
    functional_majorisation_of_cross_entropy,
    linearise,
)
from autogd.theory.s3_recover import functional_step, gauss_newton_step, mirror_descent_step, natural_gradient_step
from autogd.theory.s4_bound import deep_relative_trust, output_bound
from autogd.theory.s4_layers import register_bound
from autogd.theory.s4_network import perturbation_bound
from autogd.theory.s5_majorise import majorise
from autogd.theory.s6_convergence import (
    critical_point_rate,
    decrease,
    global_rate,
    gradient_bound,
    objective_bound,
    polyak_lojasiewicz,
)
from autogd.theory.s7_assumptions import measure_run, stable_rank

__all__ = [
    "Loss",
    "bregman",
    "bregman_of_cross_entropy",
    "bregman_of_square",
    "check_convexity",
    "critical_point_rate",
    "decrease",
    "deep_relative_trust",
    "functional_expansion",
    "functional_expansion_of_square",
    "functional_majorisation_of_cross_entropy",
    "functional_step",
    "gauss_newton_step",
    "global_rate",
    "gradient_bound",
    "linearise",
    "losses",
    "majorise",
    "measure_run",
    "mirror_descent_step",
    "natural_gradient_step",
    "objective_bound",
    "output_bound",
    "per_sample",
    "perturbation_bound",
    "polyak_lojasiewicz",
    "register_bound",
    "stable_rank",
]
