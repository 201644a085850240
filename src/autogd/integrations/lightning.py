"""Lightning: `Trainer(callbacks=[AveragedWeights()])`, and η in every log."""

from contextlib import ExitStack
from typing import Any

from torch import Tensor

from autogd.integrations.shipping import averaged, rates_taken, recall, ship

try:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise ImportError("Lightning is not installed: pip install 'autogd[integrations]'") from error

__all__ = ["AveragedWeights"]

TRAINING = "autogd_training_weights"  # the key in a checkpoint


class AveragedWeights(Callback):
    """Validates with the averaged weights, keeps them in checkpoints and in the trained model, and logs η.

    The rate of each step's first group is logged as `learning_rate` (with several optimisers, `learning_rate/0` and so
    on). A checkpoint's `state_dict` is what to ship; the weights that training goes on from stand beside it, and
    `trainer.fit(ckpt_path=...)` takes those. Lightning tells no callback of checkpoints with `save_weights_only=True`:
    they hold the weights in training.

    >>> trainer = Trainer(callbacks=[AveragedWeights()], logger=False, barebones=False)
    >>> any(isinstance(callback, AveragedWeights) for callback in trainer.callbacks)
    True
    """

    def __init__(self) -> None:
        self._judging = ExitStack()
        self._training: list[Tensor] | None = None  # while the model holds what to ship: the weights to go on from

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget an earlier training: Lightning makes new optimisers for this one."""
        if stage == "fit":
            self._training = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Log the rate of the step; a tensor, which Lightning reads when it writes."""
        optimisers = trainer.optimizers
        for index, optimiser in enumerate(optimisers):
            name = "learning_rate" if len(optimisers) == 1 else f"learning_rate/{index}"
            pl_module.log(name, rates_taken(optimiser)[0])

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the averaged weights in, if this is a validation in the course of training."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._judging.enter_context(averaged(trainer.optimizers))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the weights in training back."""
        self._judging.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Put the weights in training back, should a validation have ended early."""
        self._judging.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the averaged weights in the model: it is tested, used and saved with them."""
        self._training = ship(trainer.optimizers)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the averaged weights, and beside them those that training goes on from."""
        shipped = self._training is not None
        if self._training is not None:
            recall(trainer.optimizers, self._training)
        checkpoint[TRAINING] = _copies(trainer.strategy.lightning_module_state_dict())
        with averaged(trainer.optimizers):
            checkpoint["state_dict"] = _copies(trainer.strategy.lightning_module_state_dict())
        if shipped:
            self._training = ship(trainer.optimizers)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Go on from the weights in training; testing and predicting keep the averaged ones."""
        if trainer.state.fn == "fit" and TRAINING in checkpoint:
            trainer.strategy.load_model_state_dict({"state_dict": checkpoint[TRAINING]}, strict=True)


def _copies(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in weights.items()}
