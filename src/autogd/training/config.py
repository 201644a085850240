"""What defines a run: the command line is derived from it, and every run saves it."""

import math
import os
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

__all__ = ["Config", "Loss", "Precision", "Schedule", "Start"]

Loss = Literal["square", "mse", "cross-entropy"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["float32", "float64", "bf16"]
Start = Literal["dimensional", "torch"]


@dataclass(frozen=True)
class Config:
    """All settings of a run: the same config gives the same numbers.

    >>> Config(data="text").resolved().model
    'gpt'
    """

    data: str = "digits"
    """which data set: digits, mnist, fashion-mnist, cifar10, cifar100, imagenet or text; or your own, as
    package.module:loader or file.py:loader, which returns (train, test) or a Task"""
    data_dir: str | None = None
    """the folder of its files, or where to download them; for text, the file itself"""
    augment: bool = True
    """augment training images (pad-4 crop and flip, if the data set has them)"""
    limit: int | None = None
    """use only the first N samples for training, and as many for testing; default: all"""
    context: int = 64
    """characters per sample, for text"""
    model: str | None = None
    """which network: fcn, vgg16, resnet18, resnet50 or gpt; default: gpt for text, fcn for images; or your own, as
    package.module:factory or file.py:factory, which returns a Module"""
    depth: int | None = None
    """layers of an fcn, blocks of a gpt; default: the network's own"""
    width: int | None = None
    """units per layer, or channels; default: the network's own"""
    bias: bool | None = None
    """whether layers have biases; default: the network's own"""
    affine: bool | None = None
    """whether norm layers have gains; default: the network's own"""
    optimiser: str = "agd-stochastic"
    """agd, agd-stochastic or a rival; an unknown name lists them all"""
    lr: float | None = None
    """a rival's learning rate; default: its own. AGD has none"""
    schedule: Schedule = "constant"
    """the schedule of a rival's learning rate"""
    start: Start | None = None
    """the initialisation: dimensional (Prescription 1) or torch; default: the optimiser's usual one, or for your own
    network, the weights that your factory returns"""
    loss: Loss | None = None
    """square has the theory's factor ½, mse has not; default: square for autogd's own image sets and for float
    labels, cross-entropy otherwise"""
    epochs: int = 20
    """passes over the training set"""
    batch_size: int = 128
    """samples per step, over all processes; the last, smaller batch of an epoch is dropped"""
    accumulate: int = 1
    """accumulate each step's gradient over this many pieces, to save memory"""
    precision: Precision = "float32"
    """bf16 keeps float32 weights and runs the network under autocast"""
    compile: bool = False
    """run the network through torch.compile"""
    shard: bool = False
    """shard the weights over the processes of torchrun (FSDP2) instead of replicating them (DDP)"""
    device: str = "auto"
    """cpu, cuda, cuda:1 and so on; auto takes an accelerator if there is one"""
    trace: bool = False
    """also record every step of the first epoch, in steps.json"""
    seed: int = 0
    """the seed of everything random: weights, data order, augmentation"""
    checkpoint_seconds: float = 60.0
    """seconds between checkpoints within an epoch; every epoch ends with one"""
    checkpoints: int = 2
    """how many of the newest checkpoints to keep"""
    threads: int = 0
    """CPU threads; 0: one for a small network, all for a large one, unless OMP_NUM_THREADS is set"""

    def resolved(self) -> Self:
        """The config, with every number checked, and with the defaults that depend on the data."""
        for name in ("epochs", "batch_size", "accumulate", "context", "depth", "width", "limit", "checkpoints"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, found {value}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size: {self.batch_size} does not divide into {self.accumulate} equal pieces")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"lr: expected a finite number above zero, found {self.lr}")
        cores = os.cpu_count() or 1
        if not 0 <= self.threads <= cores:
            raise ValueError(f"threads: this machine has {cores} cores; expected 0 to {cores}, found {self.threads}")
        if self.model == "":
            raise ValueError("model: the name is empty; leave the option out for the default")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds: expected 0 or more, found {self.checkpoint_seconds}")
        text = self.data == "text"
        # for a user's own data, the labels decide, once they are loaded
        usual: Loss = "cross-entropy" if text else "square"
        return replace(
            self,
            model=self.model or ("gpt" if text else "fcn"),
            loss=self.loss or (None if ":" in self.data else usual),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for config.json: only the fields of `Config`, even for a subclass."""
        return {name: value for name, value in asdict(self).items() if name in _NAMES}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Config":
        """The config of a run, from its config.json.

        >>> Config.from_dict({"data": "digits", "seed": 3}).seed
        3
        """
        unknown = sorted(set(saved) - _NAMES)
        if unknown:
            raise ValueError(
                f"config.json: {', '.join(unknown)}: no such setting; was the run made by another version?"
            )
        return Config(**saved)

    def difference(self, other: "Config") -> list[str]:
        """The names of the settings in which two configs differ.

        >>> Config().difference(Config(seed=1))
        ['seed']
        """
        mine, theirs = self.as_dict(), other.as_dict()
        return [name for name in mine if mine[name] != theirs[name]]


_NAMES = {field.name for field in fields(Config)}
