"""Other people's models: tiny `transformers` architectures, and how far optimisers lower their loss."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from autogd.optim import AGD, StochasticAGD
from autogd.reading import initialise_

__all__ = ["RATES", "RUNS", "ZOO", "Drop", "Specimen", "descend", "drops", "specimen"]


@dataclass(frozen=True)
class Specimen:
    """A model and the loss of its one fixed batch, in training mode but without dropout."""

    name: str
    model: nn.Module
    loss: Callable[[], Tensor]


def specimen(name: str, seed: int = 0) -> Specimen:
    """Build one architecture of the zoo with its own initialisation, seeded; needs the extra 'bench'."""
    if name not in ZOO:
        raise ValueError(f"{name}: the zoo has {', '.join(ZOO)}")
    try:
        import transformers
    except ImportError as error:
        raise ValueError("the zoo needs the extra 'bench': pip install 'autogd[bench]'") from error
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    model, batch = ZOO[name](transformers)
    model.train()
    return Specimen(name, model, lambda: model(**batch).loss)


TEXT: dict[str, Any] = {"vocab_size": 64, "pad_token_id": 0}
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
IMAGE: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_channels": 3}


def _ids(high: int = 64) -> Tensor:
    return torch.randint(3, high, (8, 16))


def _image_batch(classes: int = 8, size: int = 16) -> dict[str, Any]:
    return {"pixel_values": torch.randn(16, 3, size, size), "labels": torch.randint(classes, (16,))}


def _bert(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    batch = {"input_ids": ids, "labels": ids}
    return t.BertForMaskedLM(t.BertConfig(**TEXT, **SMALL, max_position_embeddings=32)), batch


def _gpt2(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    config = t.GPT2Config(
        **TEXT, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return t.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def _llama(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    config = t.LlamaConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    return t.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def _mixtral(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    config = t.MixtralConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        num_local_experts=4, max_position_embeddings=32,
    )  # fmt: skip
    return t.MixtralForCausalLM(config), {"input_ids": ids, "labels": ids}


def _t5(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    config = t.T5Config(
        **TEXT, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0,
    )  # fmt: skip
    return t.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids.flip(1)}


def _vit(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    return t.ViTForImageClassification(t.ViTConfig(**SMALL, **IMAGE, num_labels=8)), _image_batch()


def _deit(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    return t.DeiTForImageClassification(t.DeiTConfig(**SMALL, **IMAGE, num_labels=8)), _image_batch()


def _swin(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = t.SwinConfig(
        image_size=16, patch_size=2, num_channels=3, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        drop_path_rate=0.0, num_labels=8,
    )  # fmt: skip
    return t.SwinForImageClassification(config), _image_batch()


def _convnext(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = t.ConvNextConfig(
        num_channels=3, patch_size=2, hidden_sizes=[16, 32], depths=[2, 2], num_stages=2, num_labels=8
    )
    return t.ConvNextForImageClassification(config), _image_batch()


def _resnet(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = t.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic", num_labels=8,
    )  # fmt: skip
    return t.ResNetForImageClassification(config), _image_batch(size=32)


def _clip(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    part = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**part, **TEXT, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2}
    config = t.CLIPConfig(text_config=text, vision_config={**part, **IMAGE}, projection_dim=16)
    batch = {"input_ids": _ids(), "pixel_values": torch.randn(8, 3, 16, 16), "return_loss": True}
    return t.CLIPModel(config), batch


def _whisper(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = t.WhisperConfig(
        vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=16,
        max_target_positions=32, dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    batch = {"input_features": torch.randn(8, 8, 32), "labels": _ids()}
    return t.WhisperForConditionalGeneration(config), batch


def _wav2vec2(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    config = t.Wav2Vec2Config(
        **SMALL, vocab_size=64, conv_dim=(16, 16), conv_stride=(4, 4), conv_kernel=(8, 4), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0,
        activation_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0, mask_feature_prob=0.0, final_dropout=0.0,
        ctc_loss_reduction="mean", pad_token_id=0, num_labels=8, classifier_proj_size=16,
    )  # fmt: skip
    batch = {"input_values": torch.randn(8, 640), "labels": torch.randint(8, (8,))}
    return t.Wav2Vec2ForSequenceClassification(config), batch


def _mamba(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    ids = _ids()
    config = t.MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2, pad_token_id=0)
    return t.MambaForCausalLM(config), {"input_ids": ids, "labels": ids}


def _bert_lora(t: Any) -> tuple[nn.Module, dict[str, Any]]:
    import peft

    model, batch = _bert(t)
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value", "dense"], lora_dropout=0.0)
    return peft.get_peft_model(model, lora), batch


ZOO: dict[str, Callable[[Any], tuple[nn.Module, dict[str, Any]]]] = {
    "BERT": _bert,
    "GPT-2": _gpt2,
    "Llama": _llama,
    "Mixtral": _mixtral,
    "T5": _t5,
    "ViT": _vit,
    "DeiT": _deit,
    "Swin": _swin,
    "ConvNeXt": _convnext,
    "ResNet": _resnet,
    "CLIP": _clip,
    "Whisper": _whisper,
    "Wav2Vec2": _wav2vec2,
    "Mamba": _mamba,
    "BERT + LoRA": _bert_lora,
}


RATES = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Drop:
    """How far a loss fell after 30 steps and after all steps, and how many of the first 30 steps lowered it."""

    architecture: str
    optimiser: str
    start: float
    after_30: float
    after_all: float
    lowered: int


def descend(loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer, steps: int) -> list[float]:
    """The loss before every step on one fixed batch, and after the last.

    >>> p = nn.Parameter(torch.ones(()))
    >>> descend(lambda: p * p, torch.optim.SGD([p], lr=0.25), 1)
    [1.0, 0.25]
    """
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        losses.append(float(value.detach()))
        optimiser.step()
    with torch.no_grad():
        return [*losses, float(loss())]


def _adam(rate: float, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), rate)


def _adam_from_ours(rate: float, model: nn.Module) -> torch.optim.Optimizer:
    return _adam(rate, initialise_(model))


RUNS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "AGD": AGD,
    "AGD, initialise_": lambda model: AGD(initialise_(model)),
    "StochasticAGD": StochasticAGD,
    "StochasticAGD, initialise_": lambda model: StochasticAGD(initialise_(model)),
    **{f"Adam {rate:g}": partial(_adam, rate) for rate in RATES},
    **{f"Adam {rate:g}, initialise_": partial(_adam_from_ours, rate) for rate in RATES},
}
"""The runs on every architecture, from its own weights and from `initialise_`."""


def drops(architecture: str, steps: int = 30, seed: int = 0) -> Iterator[Drop]:
    """All runs on one architecture; the loss is that of the weights in training, not of their average."""
    for name, make in RUNS.items():
        subject = specimen(architecture, seed)
        optimiser = make(subject.model)
        losses = descend(subject.loss, optimiser, steps)
        lowered = sum(b < a for a, b in pairwise(losses[:31]))
        yield Drop(architecture, name, losses[0], losses[0] - losses[min(30, steps)], losses[0] - losses[-1], lowered)
