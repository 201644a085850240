"""Hugging Face's Trainer: evaluates and saves the averaged weights, and logs η as the learning rate."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

from autogd.integrations.rate import DerivedRate
from autogd.integrations.shipping import averaged, recall, ship

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError("transformers is not installed: pip install 'autogd[integrations]'") from error

__all__ = ["AveragedTrainer", "DerivedRate"]

TRAINING = "training_weights.pt"  # the file in a checkpoint
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # all-gathered, if the parameters are sharded


class _WithoutModes:
    """An optimiser without train() and eval(), which Trainer would call."""

    def __init__(self, optimiser: Any) -> None:
        self._optimiser = optimiser

    def __getattr__(self, name: str) -> Any:
        if name in ("train", "eval"):
            raise AttributeError(name)
        return getattr(self._optimiser, name)


class AveragedTrainer(Trainer):
    """Evaluates, predicts and saves with the averaged weights, and leaves them in the model.

    The model of a checkpoint has the averaged weights, to ship. The weights in training are saved beside it, and
    `train(resume_from_checkpoint=...)` resumes from those. After `train` the model holds the averaged weights, or those
    of the best checkpoint with `load_best_model_at_end`; another `train` resumes from the weights in training.

    It combines with any other Trainer:

    >>> from transformers import Seq2SeqTrainer
    >>> class AveragedSeq2SeqTrainer(AveragedTrainer, Seq2SeqTrainer):
    ...     pass
    """

    _training: list[Tensor] | None = None  # the weights in training, while the model holds the averaged ones
    _best = False  # the model holds the best checkpoint's weights

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and leave the averaged weights in the model."""
        if self._training is not None:
            recall([self.optimizer], self._training)
        self._training, self._best = None, False
        result = super().train(*args, **kwargs)
        if not self._best:
            self._training = ship([self.optimizer])
        return result

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate or predict with the averaged weights."""
        if not self._best and self._training is None:
            with self._averaged():
                return super().evaluation_loop(*args, **kwargs)
        # the model already holds the weights to evaluate: Trainer must not swap others in
        optimiser, self.optimizer = self.optimizer, cast(Any, _WithoutModes(self.optimizer))
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            self.optimizer = optimiser

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Save the averaged weights."""
        with self._averaged():
            super().save_model(*args, **kwargs)

    def _averaged(self) -> Any:
        optimisers = [] if self.optimizer is None or self._best or self._training is not None else [self.optimizer]
        return averaged(optimisers)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self._best = True

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        weights = get_model_state_dict(cast(nn.Module, self.model), options=WHOLE)
        if self.args.should_save:
            torch.save(weights, Path(output_dir) / TRAINING)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (Path(checkpoint) / TRAINING).exists():
            weights = torch.load(Path(checkpoint) / TRAINING, map_location="cpu", weights_only=True)
            set_model_state_dict(cast(nn.Module, self.model), weights, options=WHOLE)
