"""Which architectures of `transformers` the optimisers take, and how far they lower the loss of shrunk ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from autogd.experiments.zoo import RATES, Specimen, descend
from autogd.optim import AGD, StochasticAGD
from autogd.reading.agreement import disagreements
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_graph

__all__ = ["FAMILIES", "Built", "Trained", "architectures", "build", "built", "shrunk", "shrunk_names", "trained"]


@dataclass(frozen=True)
class Built:
    """One architecture in its default size, on the meta device, and how its parameters were recognised."""

    architecture: str
    parameters: int
    known: int  # recognised by the catalogue, or vectors
    shape: int  # recognised by their shape only, until the first forward pass
    error: str = ""


@dataclass(frozen=True)
class Trained:
    """One shrunk architecture: what its forward pass showed, and how far 30 steps lowered the loss of one batch."""

    family: str
    architecture: str
    parameters: int
    unread: int  # tensors of two or more dimensions that the pass uses, but recognised by their shape only
    contradicted: int  # parameters on which catalogue and pass disagree
    ours: float
    adam: float  # the best of three rates

    @property
    def ratio(self) -> float:
        """The drop of the loss, relative to Adam's."""
        return self.ours / self.adam


def architectures() -> list[str]:
    """Every type of model that transformers has a configuration for."""
    from transformers.models.auto import configuration_auto

    return sorted(configuration_auto.CONFIG_MAPPING.keys())


def build(name: str) -> nn.Module | None:
    """The architecture in its default size, on the meta device; None if it cannot be built there."""
    import transformers
    from transformers.models.auto import configuration_auto

    transformers.logging.set_verbosity_error()
    try:
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(configuration_auto.CONFIG_MAPPING[name]())
    except Exception:  # another package is missing, or the default configuration fits no model
        return None
    assert isinstance(model, nn.Module)
    return model if any(True for _ in model.parameters()) else None


def built(name: str, model: nn.Module) -> Built:
    """Construct both optimisers on a model, and count how its parameters were recognised."""
    parameters = sum(1 for _ in model.parameters())
    try:
        roles = read_roles(model)
        AGD(model)
        StochasticAGD(model)
    except Exception as error:
        return Built(name, parameters, 0, 0, f"{type(error).__name__}: {error}".splitlines()[0])
    provisional = sum(role.source == "shape" and role.parameter.dim() > 1 for role in roles)
    return Built(name, parameters, len(roles) - provisional, provisional)


def trained(family: str, name: str, steps: int = 30, rates: Sequence[float] = RATES) -> Trained | None:
    """Read and train one shrunk architecture from its own weights; None if it does not run."""
    try:
        subject = shrunk(family, name)
        start = subject.loss()
    except Exception:  # its sizes do not fit each other, or it takes other inputs
        return None
    if not torch.isfinite(start):
        return None
    model = subject.model
    roles = read_roles(model, readout=False)
    reading = read_graph(start, dict(model.named_parameters()))
    recognised = {role.parameter for role in roles if role.source != "shape"} | set(reading.atoms)
    unread = sum(p.dim() > 1 and p.numel() > 0 and p not in recognised for p in reading.graph.leaves)
    contradicted = len(disagreements(roles, reading))
    del start, reading

    def drop(optimiser_of: type[torch.optim.Optimizer], **settings: float) -> float:
        run = shrunk(family, name)
        model = run.model
        optimiser = optimiser_of(model if optimiser_of is StochasticAGD else model.parameters(), **settings)  # type: ignore[arg-type]
        losses = descend(run.loss, optimiser, steps)
        return losses[0] - losses[-1] if losses[-1] == losses[-1] else float("-inf")

    ours = drop(StochasticAGD)
    best = max(drop(torch.optim.Adam, lr=rate) for rate in rates)
    return Trained(family, name, sum(1 for _ in model.parameters()), unread, contradicted, ours, best)


WIDTH, LAYERS, HEADS, VOCABULARY, PLACES = 32, 2, 4, 64, 64

# the names that configurations use for their sizes
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
    """Make all sizes of a configuration and of its parts small, and set all dropout to zero."""
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
    """Two layers, of different kinds if there are several."""
    first = kinds[0]
    return [first, next((kind for kind in kinds if kind != first), first)]


def _text() -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (8, 16))
    return {"input_ids": ids, "labels": ids}


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
"""By task: the name of transformers' table of architectures, and a batch that all of them take."""


def shrunk_names() -> list[tuple[str, str]]:
    """Every pair of a task and a type of model that transformers has."""
    from transformers.models.auto import modeling_auto

    tables = {family: getattr(modeling_auto, table) for family, (table, _) in FAMILIES.items()}
    return [(family, name) for family, table in tables.items() for name in sorted(table)]


def shrunk(family: str, name: str, seed: int = 0) -> Specimen:
    """One shrunk architecture of a family, with its own weights and a batch; raises if it cannot be shrunk."""
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
        raise ValueError(
            f"{name}: it has {sum(p.numel() for p in model.parameters())} parameters after shrinking, too many"
        )
    model.train()
    inputs = batch()

    def loss() -> Tensor:
        value = model(**inputs).loss
        assert isinstance(value, Tensor)
        return value

    return Specimen(f"{name}, {family}", model, loss)
