"""Rivals from other packages, at those packages' defaults. The extra `bench` installs them.

Each function takes a model and a learning rate; None is the package's default. Packages are imported on first use.
"""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = [
    "PACKAGES",
    "DoG",
    "dadaptation",
    "package",
    "prodigy",
    "prodigy_plus",
    "psgd",
    "require",
    "schedule_free_adamw",
    "schedule_free_radam",
    "scion",
    "soap",
]

PACKAGES = {
    "schedulefree-adamw": "schedulefree",
    "schedulefree-radam": "schedulefree",
    "prodigy": "prodigyopt",
    "prodigy-plus": "prodigyplus",
    "dadaptation": "dadaptation",
    "dog": "dog",
    "soap": "heavyball",
    "psgd": "heavyball",
    "scion": "pytorch_optimizer",
}
"""The module that each rival needs."""
_INSTALLED_AS = {
    "dog": "dog-optimizer",
    "prodigyplus": "prodigy-plus-schedule-free",
    "pytorch_optimizer": "pytorch-optimizer",
}


def package(module: str) -> Any:
    """The module, or an error that names the package and the extra that has it.

    >>> package("json").loads("1")
    1
    >>> package("no_such_module")
    Traceback (most recent call last):
    ValueError: optimiser: this one needs the package no_such_module: pip install 'autogd[bench]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = _INSTALLED_AS.get(module, module)
        raise ValueError(f"optimiser: this one needs the package {name}: pip install 'autogd[bench]'") from error


def require(*names: str) -> None:
    """Raise one error, before any work, that names all optimisers whose packages are missing.

    >>> require("adam", "agd")
    """
    missing = {name: PACKAGES[name] for name in names if name in PACKAGES and find_spec(PACKAGES[name]) is None}
    if missing:
        told = ", ".join(f"{name} needs {_INSTALLED_AS.get(module, module)}" for name, module in missing.items())
        raise ValueError(f"optimisers: {told}, which is not installed: pip install 'autogd[bench]'")


def schedule_free_adamw(model: nn.Module, lr: float | None) -> Any:
    """Schedule-free AdamW."""
    return _training(package("schedulefree").AdamWScheduleFree(model.parameters(), **_rate(lr)))


def schedule_free_radam(model: nn.Module, lr: float | None) -> Any:
    """Schedule-free RAdam: the newest class of that package; it needs no warm-up."""
    return _training(package("schedulefree").RAdamScheduleFree(model.parameters(), **_rate(lr)))


def prodigy(model: nn.Module, lr: float | None) -> Any:
    """Prodigy."""
    return package("prodigyopt").Prodigy(model.parameters(), **_rate(lr))


def prodigy_plus(model: nn.Module, lr: float | None) -> Any:
    """Prodigy with schedule-free averaging and a factored second moment."""
    # there is one group: with its default, one d per group, the package prints a line and turns that off
    kind = _resumable(package("prodigyplus").ProdigyPlusScheduleFree)
    return _training(kind(model.parameters(), split_groups=False, **_rate(lr)))


def dadaptation(model: nn.Module, lr: float | None) -> Any:
    """D-Adapt Adam."""
    return package("dadaptation").DAdaptAdam(model.parameters(), **_rate(lr))


def soap(model: nn.Module, lr: float | None) -> Any:
    """SOAP, from heavyball."""
    return _resumable(_heavyball().SOAP)(model.parameters(), **_rate(lr))


def psgd(model: nn.Module, lr: float | None) -> Any:
    """PSGD with Kronecker factors, from heavyball."""
    module = _heavyball()

    class PSGDKron(_resumable(module.PSGDKron)):  # type: ignore[misc]
        """If the first gradient vanishes, restarts as heavyball's error message asks, and as its own benchmark does."""

        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            try:
                return super().step(closure)
            except module.utils.PrecondInitError:
                if closure is None:  # the gradients are gone
                    raise
                for group in self.param_groups:
                    group["precond_init_scale"] = 0.1
                self.state.clear()
                with warnings.catch_warnings(action="ignore"):
                    return super().step(closure)

    return PSGDKron(model.parameters(), **_rate(lr))


def scion(model: nn.Module, lr: float | None) -> Any:
    """Scion, from pytorch-optimizer; its authors have no package.

    heavyball's Scion initialises the weights again at the first step, so it cannot fine-tune.
    """
    kind = package("pytorch_optimizer").SCION
    oracles = importlib.import_module(kind.__module__)

    class Scion(kind):  # type: ignore[misc, valid-type]
        """Orthogonalises in float32 on the CPU: bfloat16 is many times slower there."""

        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            if self.param_groups[0]["params"][0].device.type != "cpu":
                return super().step(closure)
            name = "zero_power_via_newton_schulz_5"
            with mock.patch.object(oracles, name, partial(getattr(oracles, name), dtype=torch.float32)):
                return super().step(closure)

    optimiser = Scion(model.parameters(), **_rate(lr))
    for group in optimiser.param_groups:  # an enumeration: a checkpoint takes plain numbers
        group["norm_type"] = int(group["norm_type"])
    return optimiser


class DoG:
    """DoG with the iterate averaging that its authors call crucial, from their package."""

    def __init__(self, model: nn.Module, lr: float | None) -> None:
        dog = package("dog")
        normed = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
        # the authors' values, without and with batch norm
        self._inner: Optimizer = dog.DoG(model.parameters(), reps_rel=1e-4 if normed else 1e-6, lr=lr or 1.0)
        self._average = dog.PolynomialDecayAverager(model)
        self._model = model

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameters and their settings."""
        return self._inner.param_groups

    def step(self, closure: Callable[[], Any]) -> Any:
        """Take DoG's step, then update the average."""
        loss = self._inner.step(closure)
        self._average.step()
        return loss

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the model holds the average."""
        trained = {name: tensor.clone() for name, tensor in self._model.state_dict().items()}
        self._model.load_state_dict(self._average.averaged_model.state_dict())
        try:
            yield
        finally:
            self._model.load_state_dict(trained)

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""
        return {"dog": self._inner.state_dict(), "average": self._average.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state."""
        self._inner.load_state_dict(state_dict["dog"])
        self._average.load_state_dict(state_dict["average"])


def _heavyball() -> Any:
    module = package("heavyball")
    # torch.compile takes minutes on heavyball's kernels: run them as plain torch, with the same arithmetic
    module.utils.compile_mode = None
    # ignore its warnings about schedules, which are wanted here, and about one of its defaults
    warnings.filterwarnings("ignore", message="Learning rate changed between steps")
    warnings.filterwarnings("ignore", message="The computed precond_init_scale")
    return module


def _resumable(kind: Any) -> Any:
    """The class with a state_dict of tensors and plain values, which loads in the precisions it was saved in."""

    class Resumable(kind):  # type: ignore[misc]
        def state_dict(self) -> dict[str, Any]:
            saved = _plain(super().state_dict())
            saved.get("heavyball", {}).pop("precond_schedule", None)  # pickled objects; the constructor makes the same
            return saved

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            # torch would cast the state to the parameters' precision
            super().load_state_dict({**state_dict, "state": {}})
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            for index, state in state_dict["state"].items():
                self.state[parameters[index]] = _loaded(state, parameters[index].device)

    Resumable.__name__ = Resumable.__qualname__ = kind.__name__
    return Resumable


def _plain(tree: Any) -> Any:
    if isinstance(tree, set):
        return {"set": sorted(tree)}
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    return tree


def _loaded(tree: Any, device: torch.device) -> Any:
    if isinstance(tree, Tensor):
        return tree.to(device, copy=True)
    if isinstance(tree, dict):
        return set(tree["set"]) if tree.keys() == {"set"} else {k: _loaded(v, device) for k, v in tree.items()}
    return type(tree)(_loaded(value, device) for value in tree) if isinstance(tree, list | tuple) else tree


def _training(optimiser: Any) -> Any:
    optimiser.train()
    return optimiser


def _rate(lr: float | None) -> dict[str, Any]:
    return {} if lr is None else {"lr": lr}
