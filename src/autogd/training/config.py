"""What defines a run: the command line is derived from it, and every run saves it."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

__all__ = ["Config", "Loss", "Precision", "Schedule", "Start"]

Loss = Literal["square", "mse", "cross-entropy"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["float32", "float64", "bf16"]
Start = Literal["dimensional", "torch"]


@dataclass(frozen=True)
class Config:
    """A run, in full: the same config gives the same numbers.

    >>> Config(data="text").resolved().model
    'gpt'
    """

    data: str = "digits"
    """which data set: digits, mnist, fashion-mnist, cifar10, cifar100, imagenet or text; or your own, as
    package.module:loader or file.py:loader, which returns (train, test) or a Task"""
    data_dir: str | None = None
    """where its files are, or are to be put; for text, the file itself"""
    augment: bool = True
    """change training images at random (pad-4 crop and flip, where the data set has them)"""
    limit: int | None = None
    """use only the first so many samples for training, and as many for testing; left out, all there are"""
    context: int = 64
    """characters a sample, for text"""
    model: str | None = None
    """which network: fcn, vgg16, resnet18, resnet50 or gpt; left out, gpt for text and fcn for images; or your own, as
    package.module:factory or file.py:factory, which returns a Module"""
    depth: int | None = None
    """layers, for a network that leaves the choice; left out, the network's own default"""
    width: int | None = None
    """units a layer, likewise"""
    bias: bool | None = None
    """whether layers have biases; left out, the network's own default"""
    affine: bool | None = None
    """whether norm layers have gains; left out, the network's own default"""
    optimiser: str = "agd-stochastic"
    """agd or a rival by name; an unknown name lists them"""
    lr: float | None = None
    """a rival's learning rate; left out, its own default. AGD has none"""
    schedule: Schedule = "constant"
    """a rival's learning rate over the run"""
    start: Start | None = None
    """where weights start: sizes of Prescription 1, or as torch draws them; left out, what the optimiser asks for. Your
    own network starts as your factory leaves it, unless this says otherwise"""
    loss: Loss | None = None
    """square has the theory's half, mse has not; left out, square for the images that come with autogd and
    cross-entropy for all else"""
    epochs: int = 20
    """passes over the training set"""
    batch_size: int = 128
    """samples a step, over all processes together; the last, smaller batch of an epoch is left out"""
    accumulate: int = 1
    """take each step's gradient in this many pieces, to save memory"""
    precision: Precision = "float32"
    """bf16 keeps float32 weights and runs the network under autocast"""
    compile: bool = False
    """run the network through torch.compile"""
    shard: bool = False
    """spread the weights over the processes of torchrun (FSDP2) instead of copying them to each (DDP)"""
    device: str = "auto"
    """cpu, cuda, cuda:1 and so on; auto takes an accelerator if there is one"""
    trace: bool = False
    """also write every step of the first epoch, into steps.json"""
    seed: int = 0
    """everything random follows from it: weights, data order, augmentation"""
    checkpoint_seconds: float = 60.0
    """save this often within an epoch; the end of an epoch always saves"""
    checkpoints: int = 2
    """how many of the newest checkpoints to keep"""
    threads: int = 0
    """of the CPU; 0 takes one for a small network, and all for a large one, unless OMP_NUM_THREADS says otherwise"""

    def resolved(self) -> Self:
        """With every choice that the data decides filled in, and every number checked."""
        for name in ("epochs", "batch_size", "accumulate", "context", "depth", "width", "limit", "checkpoints"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, found {value}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size: {self.batch_size} does not divide into {self.accumulate} equal pieces")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr: expected a number above zero, found {self.lr}")
        if self.threads < 0:
            raise ValueError(f"threads: expected 0 or more, found {self.threads}")
        text = self.data == "text"
        words = text or ":" in self.data
        return replace(
            self,
            model=self.model or ("gpt" if text else "fcn"),
            loss=self.loss or ("cross-entropy" if words else "square"),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for config.json; the fields of `Config` alone, also from a subclass."""
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
