"""Every optimiser by name: AGD and its rivals, with the paper's learning-rate grid.

Rivals from other packages are built in `autogd.rivals`. To add one, add a line to `OPTIMISERS`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd import rivals
from autogd.optim import AGD, StochasticAGD
from autogd.reading.catalogue import read_roles

__all__ = ["OPTIMISERS", "PAPER_GRID", "Entry", "Optimiser", "averaged", "build", "entry", "learning_rate"]

PAPER_GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The learning rates that the paper tunes Adam and SGD over."""


class Optimiser(Protocol):
    """What a training loop needs from an optimiser; torch's optimisers have it."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameters and their settings."""
        ...

    def step(self, closure: Callable[[], Any]) -> Any:
        """Call the closure, which computes gradients and returns the loss; then update."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state."""
        ...


@dataclass(frozen=True)
class Entry:
    """How an optimiser is built and used.

    Args:
        build: takes a model and a learning rate; None for the optimiser's default rate.
        start: the initialisation: "dimensional" is Prescription 1, "torch" is torch's own.
        rated: whether it has a learning rate to set and to schedule.
        averages: whether the weights to evaluate differ from the weights in training.
        shards: whether it is correct on parameters that are sharded over processes.
    """

    build: Callable[[nn.Module, float | None], Optimiser]
    start: Literal["dimensional", "torch"] = "torch"
    rated: bool = True
    averages: bool = False
    shards: bool = False


def build(name: str, model: nn.Module, lr: float | None = None) -> Optimiser:
    """The optimiser of that name for all of a model's parameters.

    >>> type(build("adam", nn.Linear(2, 2), lr=0.01)).__name__
    'Adam'
    """
    found = entry(name)
    if lr is not None and not found.rated:
        raise ValueError(f"lr: {name} has no learning rate to set; leave it out")
    return found.build(model, lr)


def entry(name: str) -> Entry:
    """The entry of that name in the table.

    >>> entry("agd").start
    'dimensional'
    """
    if name not in OPTIMISERS:
        raise ValueError(f"optimiser: {name!r} is not known; choose one of {', '.join(OPTIMISERS)}")
    return OPTIMISERS[name]


def averaged(optimiser: Optimiser) -> AbstractContextManager[None]:
    """Inside the block the model holds the weights to evaluate and to ship, for every optimiser.

    >>> with averaged(torch.optim.SGD([torch.zeros(1)])):
    ...     pass
    """
    if hasattr(optimiser, "averaged"):
        return optimiser.averaged()
    if hasattr(optimiser, "eval") and hasattr(optimiser, "train"):
        return _evaluation_mode(optimiser)
    return nullcontext()


def learning_rate(optimiser: Optimiser) -> Tensor | float:
    """The learning rate of the last step: derived, estimated or set.

    >>> learning_rate(torch.optim.SGD([torch.zeros(1)], lr=0.5))
    0.5
    """
    if hasattr(optimiser, "learning_rate"):
        return optimiser.learning_rate
    group = optimiser.param_groups[0]
    if "eta" in group:  # DoG
        return group["eta"][0]
    # Prodigy and D-Adaptation estimate d; muP multiplies each layer's rate
    return group["lr"] * group.get("d", 1.0) / group.get("multiplier", 1.0)


@contextmanager
def _evaluation_mode(optimiser: Any) -> Iterator[None]:
    optimiser.eval()
    try:
        yield
    finally:
        optimiser.train()


class _MuonAdamW(Optimizer):
    """Muon for matrices; AdamW for kernels, vectors and embeddings, which Muon does not take."""

    def __init__(
        self, model: nn.Module, lr: float | None, scaling: str = "match_rms_adamw", rest_share: float = 1.0
    ) -> None:
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        every = list(model.parameters())
        matrices = [p for p in every if p.dim() == 2 and id(p) not in embeddings]
        rest = [p for p in every if p.dim() != 2 or id(p) in embeddings]
        # by default Muon's rate is in AdamW's units, so both get the same one
        rate = _rate(lr)
        rest_rate = _rate(None if lr is None else rest_share * lr)
        self._parts: list[Optimizer] = []
        if matrices:
            self._parts.append(torch.optim.Muon(matrices, adjust_lr_fn=scaling, **rate))
        if rest:
            self._parts.append(torch.optim.AdamW(rest, **rest_rate))
        super().__init__([{"params": part.param_groups[0]["params"]} for part in self._parts], {})
        self.param_groups = [part.param_groups[0] for part in self._parts]
        self._link()

    def _link(self) -> None:
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with _full_precision_on_the_cpu(self.param_groups[0]["params"][0]):
            for part in self._parts:
                part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._link()


@contextmanager
def _full_precision_on_the_cpu(parameter: Tensor) -> Iterator[None]:
    """Muon orthogonalises in bfloat16, which is fifty times slower than float32 on a CPU without units for it."""
    if parameter.device.type != "cpu":
        yield
        return
    with mock.patch.object(Tensor, "bfloat16", Tensor.clone):
        yield


def _rate(lr: float | None) -> dict[str, Any]:
    return {} if lr is None else {"lr": lr}


def _torch(kind: Callable[..., Optimizer], **settings: Any) -> Callable[[nn.Module, float | None], Optimiser]:
    return lambda model, lr: kind(model.parameters(), **{**settings, **_rate(lr)})


def _mup(model: nn.Module, lr: float | None, momentum: float = 0.9) -> Optimiser:
    # a layer's rate is the square of its size under Prescription 1: fan_out / fan_in for a matrix
    roles = [role for role in read_roles(model) if role.parameter.requires_grad]
    base = 1e-3 if lr is None else lr  # torch's default for SGD
    groups = [
        {"params": [role.parameter], "lr": base * role.atom.scale**2, "multiplier": role.atom.scale**2}
        for role in roles
    ]
    return torch.optim.SGD(groups, momentum=momentum)


OPTIMISERS: dict[str, Entry] = {
    "agd": Entry(lambda model, lr: AGD(model), start="dimensional", rated=False, shards=True),
    "agd-averaged": Entry(
        lambda model, lr: AGD(model, averaging=True), start="dimensional", rated=False, averages=True, shards=True
    ),
    "agd-stochastic": Entry(
        lambda model, lr: StochasticAGD(model), start="dimensional", rated=False, averages=True, shards=True
    ),
    "adam": Entry(_torch(torch.optim.Adam), shards=True),
    "adamw": Entry(_torch(torch.optim.AdamW), shards=True),
    "sgd": Entry(_torch(torch.optim.SGD, momentum=0.9), shards=True),
    "sgd-plain": Entry(_torch(torch.optim.SGD), shards=True),
    "sgd-mup": Entry(_mup, start="dimensional", shards=True),
    "sgd-mup-plain": Entry(lambda model, lr: _mup(model, lr, 0.0), start="dimensional", shards=True),
    "muon": Entry(_MuonAdamW),
    # as its authors scale it: 0.02 for Muon, 0.003 for AdamW
    "muon-original": Entry(lambda model, lr: _MuonAdamW(model, lr, scaling="original", rest_share=0.15)),
    "schedulefree-adamw": Entry(rivals.schedule_free_adamw, averages=True),
    "schedulefree-radam": Entry(rivals.schedule_free_radam, averages=True),
    "prodigy": Entry(rivals.prodigy),
    "prodigy-plus": Entry(rivals.prodigy_plus, averages=True),
    "dadaptation": Entry(rivals.dadaptation),
    "dog": Entry(rivals.DoG, averages=True),
    "soap": Entry(rivals.soap),
    "psgd": Entry(rivals.psgd),
    "scion": Entry(rivals.scion),
}
