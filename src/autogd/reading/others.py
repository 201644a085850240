"""Layers of packages that need not be installed: the catalogue knows them by their full name."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from autogd.geometry.atoms import Atom, Rule, bias, gain, matrix, token

__all__ = ["OTHERS", "divided", "experts", "lora_in", "lora_out"]


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
    """T5's attention has no 1/√d: the query makes up for it."""
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
