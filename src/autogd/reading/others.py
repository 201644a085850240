"""Atoms of what is not a layer of torch.nn: other packages' layers, parametrisations, and unknown modules.

The catalogue knows the layers of packages that need not be installed by their full name.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList

from autogd.geometry.atom import Start
from autogd.geometry.atoms import Atom, Rule, bias, gain, kernel, matrix, scalars, token

__all__ = [
    "OTHERS", "divided", "experts", "lone", "lora_in", "lora_out", "parametrised", "provisional", "vectors_by_shape",
]  # fmt: skip


def lora_in(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""The factor A (r × in) of a low-rank pair: a matrix, kept as its package starts it.

    >>> lora_in(nn.Linear(16, 4).weight).start
    'as it is'
    """
    return replace(matrix(weight), kind="lora", start="as it is")


def lora_out(weight: Tensor, module: Any = None) -> Atom:
    r"""The factor B (out × r), which starts at zero.

    B·A, times the package's own scaling, is one product added to a weight of target √(out/in). A has √(r/in), which
    leaves √(out/r), divided by the scaling, for B. Its zeros at the start say nothing about its target size.

    >>> lora_out(nn.Linear(4, 16).weight).scale
    2.0
    """
    scaling = max(map(abs, getattr(module, "scaling", {"default": 1.0}).values()))
    atom = matrix(weight)
    return replace(atom, kind="lora", start="zeros", scale=atom.scale / scaling)


def experts(weight: Tensor, module: nn.Module | None = None, *, stack: int = 1) -> Atom:
    r"""One matrix, or `stack` packed ones, for each expert of a mixture; a token passes through few of them.

    The experts stand side by side: together they are as deep as one of them.

    >>> experts(nn.Parameter(__import__("torch").zeros(8, 6, 4)), stack=2).parts
    16
    """
    count, rows, columns = weight.shape
    scale = math.sqrt(rows / stack / columns)
    return Atom("experts", (count, stack, rows // stack, columns), (2,), (3,), scale, stack=stack)


def divided(weight: Tensor, by: float) -> Atom:
    """A matrix whose product the model then divides: its unit perturbation and its start are larger by that.

    >>> divided(nn.Linear(16, 16).weight, by=4.0).scale
    4.0
    """
    atom = matrix(weight)
    return replace(atom, scale=atom.scale * by)


def _t5_query(weight: Tensor, module: Any) -> Atom:
    """T5's attention does not divide by √d, so its query is smaller by that."""
    return divided(weight, module.key_value_proj_dim**-0.5)


def _t5_head(weight: Tensor, module: Any) -> Atom:
    """T5 divides the input of its output matrix by √d, if that is tied to the embedding."""
    config = module.config
    scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return divided(weight, math.sqrt(config.d_model) if scaled else 1.0)


def _t5(package: str, *names: str) -> list[str]:
    return [f"transformers.models.{package}.modeling_{package}.{name}" for name in names]


_T5_ATTENTIONS = [
    *_t5("t5", "T5Attention"), *_t5("mt5", "MT5Attention"), *_t5("umt5", "UMT5Attention"),
    *_t5("longt5", "LongT5Attention", "LongT5LocalAttention", "LongT5TransientGlobalAttention"),
    *_t5("switch_transformers", "SwitchTransformersAttention"),
]  # fmt: skip
_T5_HEADS = [  # mT5 does not scale
    *_t5("t5", "T5ForConditionalGeneration"), *_t5("umt5", "UMT5ForConditionalGeneration"),
    *_t5("longt5", "LongT5ForConditionalGeneration"),
    *_t5("switch_transformers", "SwitchTransformersForConditionalGeneration"),
]  # fmt: skip

OTHERS: dict[type | str, dict[str, Rule]] = {
    "transformers.pytorch_utils.Conv1D": {"weight": partial(matrix, transposed=True), "bias": bias},
    "transformers.models.gpt2.modeling_gpt2.GPT2Attention": {
        # cross-attention packs key and value only; its query is a matrix of its own
        "c_attn.weight": lambda w, m: matrix(
            w, stack=2 if getattr(m, "is_cross_attention", False) else 3, transposed=True
        ),
        "c_attn.bias": lambda w, m: bias(w, stack=2 if getattr(m, "is_cross_attention", False) else 3),
    },
    "transformers.models.mixtral.modeling_mixtral.MixtralTopKRouter": {"weight": matrix},
    "transformers.models.mixtral.modeling_mixtral.MixtralExperts": {
        "gate_up_proj": partial(experts, stack=2),
        "down_proj": experts,
    },
    # one bias a head for each relative position, added to the attention's logits
    "transformers.models.swin.modeling_swin.SwinRelativePositionBias": {"relative_position_bias_table": token},
    # the logarithms of each channel's rates: numbers, not a map
    "transformers.models.mamba.modeling_mamba.MambaMixer": {"A_log": partial(gain, start="as it is")},
    **{name: {"q.weight": _t5_query} for name in _T5_ATTENTIONS},
    **{name: {"lm_head.weight": _t5_head} for name in _T5_HEADS},
    "peft.tuners.lora.layer.LoraLayer": {"lora_A.*.weight": lora_in, "lora_B.*.weight": lora_out},
}


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
        # only the lengths of rows have a known target
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


def lone(parameter: Tensor) -> Atom:
    """The likeliest atom of a lone tensor."""
    if parameter.dim() <= 1:
        return scalars(parameter)
    if parameter.dim() == 2:
        return matrix(parameter)
    if parameter.dim() <= 5:
        return kernel(parameter)
    return token(parameter)


def vectors_by_shape(parameter: Tensor) -> Atom | None:
    """The atom of a vector, or of vectors, in a module of unknown type; None if the shape may be a linear map's.

    >>> import torch
    >>> [vectors_by_shape(torch.zeros(shape)).kind for shape in ((4,), (1, 7, 4))]
    ['scalars', 'token']
    """
    if parameter.dim() <= 1:
        return scalars(parameter)
    return token(parameter) if parameter.dim() >= 3 and parameter.shape[0] == 1 else None


def provisional(parameter: Tensor) -> Atom:
    """The likeliest atom of a parameter in a module of unknown type, until a forward pass is read."""
    vectors = vectors_by_shape(parameter)
    if vectors is not None:
        return vectors
    if parameter.dim() == 2:
        return replace(matrix(parameter), start="as it is")
    *_, fan_out, fan_in = parameter.shape
    last = parameter.dim() - 1
    scale = math.sqrt(fan_out / max(fan_in, 1))
    return Atom("matrix", tuple(parameter.shape), (last - 1,), (last,), scale, "as it is")
