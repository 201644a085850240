"""Architectures of `transformers`, shrunk by their configurations until they run in milliseconds, each with a batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from autogd.experiments.zoo import Specimen

__all__ = ["FAMILIES", "shrunk", "shrunk_names"]

WIDTH, LAYERS, HEADS, VOCABULARY, PLACES = 32, 2, 4, 64, 64

# what a configuration may call its sizes
_NAMES = [
    (WIDTH, """hidden_size d_model n_embd dim embed_dim embedding_size decoder_hidden_size encoder_hidden_size emb_dim
        projection_dim hidden_dim lru_width attention_hidden_size word_embed_proj_dim"""),
    (LAYERS, """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers
        num_decoder_layers depth"""),
    (HEADS, """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        encoder_num_attention_heads num_key_value_heads num_kv_heads"""),
    (8, """head_dim d_kv d_head kv_channels qk_rope_head_dim qk_nope_head_dim v_head_dim ssm_state_size state_size
        mamba_d_state num_labels"""),
    (2 * WIDTH, """intermediate_size ffn_dim n_inner d_ff d_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size
        moe_intermediate_size shared_expert_intermediate_size dense_intermediate_size mlp_dim ffn_intermediate_size
        intermediate_size_mlp"""),
    (4, "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts window_size"),
    (2, "num_experts_per_tok moe_top_k moe_k top_k_experts num_experts_per_token num_stages eos_token_id sep_token_id"),
    (1, "n_group topk_group first_k_dense_replace n_shared_experts bos_token_id decoder_start_token_id"),
    (0, "pad_token_id"),
    (16, "q_lora_rank kv_lora_rank num_patches"),
    (PLACES, """max_position_embeddings n_positions max_source_positions max_target_positions n_ctx attention_window
        sliding_window max_seq_len max_sequence_length"""),
    (VOCABULARY, "vocab_size src_vocab_size tgt_vocab_size"),
]  # fmt: skip
SIZES: dict[str, Any] = {name: size for size, names in _NAMES for name in names.split()}
SIZES |= {"image_size": 32, "patch_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "use_cache": False}


def _shrink(config: Any) -> None:
    """Make every size that the configuration has small, in its parts too; leave out all dropout."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            _shrink(value)
        elif name == "layer_types" and isinstance(value, list | tuple):
            config.layer_types = _some(value)
        elif name in ("mlp_layer_types", "block_types", "layers_block_type") and isinstance(value, list | tuple):
            setattr(config, name, _some(value))
        elif name in SIZES and value is not None and isinstance(value, type(SIZES[name])):
            setattr(config, name, SIZES[name])
        elif isinstance(value, float) and ("drop" in name or name.endswith("_pdrop") or name.endswith("_prob")):
            setattr(config, name, 0.0)


def _some(kinds: Any) -> list[Any]:
    """Two layers, of different kinds if there are some."""
    first = kinds[0]
    return [first, next((kind for kind in kinds if kind != first), first)]


def _text(labels: bool = True) -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (8, 16))
    return {"input_ids": ids, "labels": ids} if labels else {"input_ids": ids}


def _translation() -> dict[str, Any]:
    return {"input_ids": torch.randint(3, VOCABULARY, (8, 16)), "labels": torch.randint(3, VOCABULARY, (8, 12))}


def _images() -> dict[str, Any]:
    return {"pixel_values": torch.randn(16, 3, 32, 32), "labels": torch.randint(8, (16,))}


FAMILIES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "causal": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", _text),
    "masked": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", _text),
    "translation": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", _translation),
    "images": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", _images),
}
"""Tasks whose batch is the same for every architecture: transformers' table of them, and the batch."""


def shrunk_names() -> list[tuple[str, str]]:
    """Every pair of a task and a type of model that transformers has."""
    from transformers.models.auto import modeling_auto

    tables = {family: getattr(modeling_auto, table) for family, (table, _) in FAMILIES.items()}
    return [(family, name) for family, table in tables.items() for name in sorted(table)]


def shrunk(family: str, name: str, seed: int = 0) -> Specimen:
    """One architecture of a family, small, with its own weights and a batch; raises if it cannot be shrunk so."""
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    transformers.logging.set_verbosity_error()
    table, batch = FAMILIES[family]
    kind = getattr(modeling_auto, table)[name]
    config = configuration_auto.CONFIG_MAPPING[name]()
    _shrink(config)
    if family == "images":
        config.num_labels = 8
    torch.manual_seed(seed)
    model: nn.Module = getattr(transformers, kind if isinstance(kind, str) else kind[0])(config)
    if sum(p.numel() for p in model.parameters()) > 6_000_000:
        raise ValueError(f"{name}: it has {sum(p.numel() for p in model.parameters())} parameters, still too many")
    model.train()
    inputs = batch()

    def loss() -> Tensor:
        value = model(**inputs).loss
        assert isinstance(value, Tensor)
        return value

    return Specimen(f"{name}, {family}", model, loss)
