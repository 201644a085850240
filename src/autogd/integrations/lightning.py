"""Lightning: `Trainer(callbacks=[AveragedWeights()])`, and η in every log."""

from contextlib import ExitStack
from typing import Any

from torch import Tensor

from autogd.integrations.shipping import averaged, rates_taken, recall, ship

try:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback, LearningRateMonitor
except ImportError as error:
    raise ImportError("Lightning is not installed: pip install 'autogd[integrations]'") from error

__all__ = ["AveragedWeights", "RateMonitor"]

TRAINING = "autogd_training_weights"  # the key in a checkpoint


class AveragedWeights(Callback):
    """Validates with the averaged weights, saves them in checkpoints, leaves them in the trained model, and logs η.

    The rate of the first group is logged at each step as `learning_rate` (`learning_rate/0` and so on for several
    optimisers). The `state_dict` of a checkpoint has the averaged weights, to ship. The weights in training are saved
    beside it, and `trainer.fit(ckpt_path=...)` resumes from those. Lightning calls no callback for checkpoints with
    `save_weights_only=True`, so these hold the weights in training.

    >>> trainer = Trainer(callbacks=[AveragedWeights()], logger=False, barebones=False)
    >>> any(isinstance(callback, AveragedWeights) for callback in trainer.callbacks)
    True
    """

    def __init__(self) -> None:
        self._swapped = ExitStack()
        self._training: list[Tensor] | None = None  # the weights in training, while the model holds the averaged ones

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Reset: Lightning builds new optimisers for each `fit`."""
        if stage == "fit":
            self._training = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Log the rate of the step as a tensor, which Lightning reads only when it writes."""
        optimisers = trainer.optimizers
        for index, optimiser in enumerate(optimisers):
            name = "learning_rate" if len(optimisers) == 1 else f"learning_rate/{index}"
            pl_module.log(name, rates_taken(optimiser)[0], prog_bar=True)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Swap the averaged weights in, if this validation is part of training."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._swapped.enter_context(averaged(trainer.optimizers))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Swap the weights in training back."""
        self._swapped.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Swap the weights in training back, if a validation ended early."""
        self._swapped.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the averaged weights in the model, for testing, use and saving."""
        self._training = ship(trainer.optimizers)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the averaged weights, and the weights in training beside them."""
        shipped = self._training is not None
        if self._training is not None:
            recall(trainer.optimizers, self._training)
        checkpoint[TRAINING] = _copies(trainer.strategy.lightning_module_state_dict())
        with averaged(trainer.optimizers):
            checkpoint["state_dict"] = _copies(trainer.strategy.lightning_module_state_dict())
        if shipped:
            self._training = ship(trainer.optimizers)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Resume training from the weights in training; testing and prediction keep the averaged ones."""
        if trainer.state.fn == "fit" and TRAINING in checkpoint:
            trainer.strategy.load_model_state_dict({"state_dict": checkpoint[TRAINING]}, strict=True)


class RateMonitor(LearningRateMonitor):
    """Lightning's LearningRateMonitor, which logs the rates of the steps instead of their multipliers.

    >>> RateMonitor(logging_interval="step").logging_interval
    'step'
    """

    def _get_optimizer_stats(self, optimizer: Any, names: list[str]) -> dict[str, float]:
        stats = super()._get_optimizer_stats(optimizer, names)
        # the rate of a group has the group's name; momenta and weight decays have longer ones
        for name, rate in zip(names, rates_taken(optimizer), strict=False):
            if name in stats:
                stats[name] = self.lrs[name][-1] = float(rate)
        return stats


def _copies(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in weights.items()}
