"""Atoms of the tensors behind `torch.nn.utils.parametrizations`."""

import math
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList

from autogd.geometry.atom import Atom, Rule, Start
from autogd.geometry.atoms import gain

__all__ = ["parametrised"]


def parametrised(name: str, parameter: Tensor, chain: ParametrizationList, rule: Rule | None, layer: nn.Module) -> Atom:
    """The atom of `name`, one of the tensors from which `chain` makes a parameter of `layer` that `rule` covers.

    Weight norm makes row i from a length g_i and a direction v_i: v is an atom like the weight itself, whose relative
    change is all that counts, and g scales rows whose target length is min(1, √(out/in)). Spectral norm divides by the
    operator norm, so relative change is all that counts there too. An orthogonal map Q = exp(A − Aᵀ) has size one, and
    moves by at most twice the change of A: a unit is one half.

    >>> from autogd import explain
    >>> layer = parametrizations.weight_norm(nn.Linear(4, 4, bias=False))
    >>> [row.atom for row in explain(layer).rows]
    ['gain', 'matrix']
    """
    kinds = [type(step) for step in chain]
    unknown = ValueError(
        f"{name}: AGD knows no atom for a tensor behind {', '.join(kind.__name__ for kind in kinds)}; "
        f"override it by name (AGD(model, atoms={{{name!r}: ...}})), or fold it into the weight with "
        "torch.nn.utils.parametrize.remove_parametrizations"
    )
    if rule is None or len(kinds) != 1:
        raise unknown
    if kinds[0] is parametrizations._WeightNorm:
        if name.endswith("original1"):
            return rule(parameter, layer)
        direction: Any = chain.original1
        whole = rule(direction, layer)
        length = min(1.0, math.sqrt(whole.fan_out / whole.fan_in))
        rows: Any = chain[0]
        # a length along another dimension than the rows means something else: it starts as it is
        start: Start = "ones" if rows.dim == 0 else "as it is"
        return replace(gain(parameter, start=start), scale=length * math.sqrt(parameter.numel()))
    if kinds[0] is parametrizations._SpectralNorm:
        return rule(parameter, layer)
    step: Any = chain[0]
    if kinds[0] is parametrizations._Orthogonal:
        if step.orthogonal_map is not parametrizations._OrthMaps.householder:
            return replace(rule(parameter, layer), scale=0.5, start="as it is")
        raise ValueError(
            f"{name}: the householder map keeps reflections in this tensor, not a linear map; "
            "build the layer with orthogonal(..., orthogonal_map='matrix_exp' or 'cayley')"
        )
    raise unknown
