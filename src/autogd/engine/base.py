"""What torch's contract asks of an optimiser: groups, state, copies, errors. The mathematics is elsewhere."""

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd.engine.architecture import Architecture
from autogd.engine.backend import Backend
from autogd.engine.distributed.ranks import Peers
from autogd.engine.distributed.wrappers import refuse_flat, refuse_zero_redundancy
from autogd.engine.groups import (
    as_groups,
    check_geometry,
    check_parameters,
    check_settings,
    named_tensors,
    refuse_settings,
    split_by_name,
)
from autogd.engine.hooks import Reminder
from autogd.engine.plan import Plan
from autogd.engine.swap import AFTER_EVAL, SwapsWeights
from autogd.geometry.atom import Rule
from autogd.reading.initialise import measured_sizes

__all__ = ["ReadsArchitecture"]

VERSION = 3  # of what a state holds; an older one is refused


def _check_origin(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Refuse the state of another optimiser, or of an older version, before anything changes; else remember it."""
    assert isinstance(optimiser, ReadsArchitecture)
    ours = optimiser.defaults["made_by"]
    for group in state["param_groups"]:
        made_by = group.get("made_by", "an older version" if "gain" in group else "another optimiser")
        if made_by == ours + AFTER_EVAL and not any("training" in held for held in state["state"].values()):
            raise ValueError(
                "load_state_dict: this state was saved after eval() and has lost the weights in training, since "
                "torch.distributed.checkpoint loads only what an optimiser in training saves; save it after "
                "optimiser.train(). No state was changed"
            )
        if made_by.removesuffix(AFTER_EVAL) != ours:
            raise ValueError(
                f"load_state_dict: this state was made by {made_by}, and this is {ours}; start without it: leave "
                "load_state_dict out and load the model's weights alone. No state was changed"
            )
    optimiser._loading = state


class ReadsArchitecture(SwapsWeights):
    """A torch optimiser that knows the atom of every parameter."""

    momentum = 0.0  # the share of the momentum that a step keeps
    _loading: dict[str, Any] | None = None  # the state that is being loaded, after every hook
    _process_group: Any = None
    _peers: Peers | None = None  # found in the first step
    _ready: Backend | None = None  # the one whose tensors have a state
    _last: tuple[Plan, Any, Any] | None = None  # plan, summary and multipliers of the last step

    def __init__(
        self, params: Any, *, geometry: str, sizes: str, atoms: Mapping[str, Rule] | None, averaging: bool,
        groups: Mapping[str, Mapping[str, Any]] | None, process_group: Any, refused: Mapping[str, Any], **settings: Any,
    ) -> None:  # fmt: skip
        refuse_settings(type(self).__name__, refused)
        refuse_zero_redundancy(type(self).__name__)
        if groups and not isinstance(params, nn.Module):
            raise ValueError("groups: names are those of a Module's parameters; pass the Module, AGD(model, groups=…)")
        check_settings(settings)
        self._geometry = check_geometry(geometry)
        if sizes not in ("dimensional", "measured"):
            raise ValueError(f"sizes: {sizes!r} is not known; use 'dimensional' or 'measured'")
        self._sizes, self._averaging, self._process_group = sizes, averaging, process_group
        self._overrides = dict(atoms or {})
        self._architecture = Architecture(biases_by_layer=self.momentum > 0)
        self._backends: dict[object, Backend] = {}
        self._modules = weakref.WeakSet()
        # for users to read; no step reads it, so it is not state
        self.learning_rate = self.gradient_summary = torch.zeros(())
        self.skipped_steps = torch.zeros((), dtype=torch.int64)
        # lr is a multiplier for the schedulers and trainers that read it; 1 is the derived step
        # made_by goes with the state, and is checked when one is loaded
        defaults = {"lr": 1.0, **settings, "made_by": f"{self._state_name} {VERSION}"}
        super().__init__(as_groups(params, type(self).__name__), defaults)
        if self._overrides:
            raise ValueError(f"{', '.join(self._overrides)}: there is no parameter of that name to override")
        if groups:
            self.param_groups = split_by_name(self.param_groups[0], self._architecture.names, groups)
            for group in self.param_groups:
                check_settings(group)
        self._reminder = Reminder(params if averaging and isinstance(params, nn.Module) else None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or a whole Module as `params`; L and G then run over all groups."""
        group = dict(param_group)
        if isinstance(group["params"], Iterator):
            group["params"] = list(group["params"])
        named = named_tensors(group["params"], len(self.param_groups))
        refuse_flat(named, type(self).__name__)
        check_parameters(named, self._architecture.names)
        check_settings(group)
        module = group["params"] if isinstance(group["params"], nn.Module) else None
        names = named if module is None else dict(module.named_parameters(remove_duplicate=False))
        overrides = {n: self._overrides.pop(n) for n in names if n in self._overrides}
        if module is None:
            roles = self._architecture.add_tensors(named, overrides)
        else:
            roles = self._architecture.add_module(module, overrides)
            self._modules.add(module)
            group["params"] = list(named.values())
        if self._sizes == "measured":
            sizes = measured_sizes(roles)
            group["sizes"] = [sizes.get(parameter) for parameter in named.values()]
        super().add_param_group(group)
        self._architecture.names.update({parameter: name for name, parameter in named.items()})
        self._backends.clear()
        self._peers = None

    @property
    def _state_name(self) -> str:
        """The kind of state that this optimiser saves and loads."""
        return "StochasticAGD" if self.momentum else "AGD with averaging" if self._averaging else "AGD"

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state, each number in the precision that it was saved in; refuse another optimiser's."""
        if self._swapped:
            self._refuse_if_swapped("load_state_dict()")
        last = self.register_load_state_dict_pre_hook(_check_origin)  # sees what the hooks before it made of the state
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
            self._loading = None

    def _restore_precision(self, loaded: dict[str, Any]) -> None:
        # torch casts a parameter's state to the parameter's type, or else shares it with the saved one
        saved = [index for group in loaded["param_groups"] for index in group["params"]]
        for index, parameter in zip(saved, self._every(), strict=True):
            for name, value in loaded["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.to(parameter.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        if self._kept is None and self._swapped:
            self._refuse_if_swapped("a copy")
        kept = {name: value for name, value in self.__dict__.items() if name in _KEPT}
        if self._process_group is False:  # a group cannot be copied
            kept["_process_group"] = False
        return {**super().__getstate__(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # torch adds it; with it, a group would have one more key than it was saved with
        self.defaults.pop("differentiable", None)
        for group in self.param_groups:  # a state of an older version may lack settings
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            group["made_by"] = self.defaults["made_by"]
            if self._sizes == "measured" and "sizes" not in group:
                raise ValueError("sizes: this state was saved without measured sizes; load it into AGD(model)")
        if self._loading is not None:
            self._restore_precision(self._loading)
        # a loaded state brings its own groups, so plans on the old ones are void
        self._backends, self._last, self._ready = {}, None, None
        self._swapped = self._kept is not None
        self._awaits_train = any("training" in state for state in self.state.values())
        for group in self.param_groups:
            if "reading" in group:
                self._architecture.restore(group["params"], group["reading"], self._every())
        if "_modules" not in self.__dict__:  # a copy, or an optimiser read from a file
            self._modules, self._reminder = weakref.WeakSet(), Reminder()


_KEPT = (
    "majorisation", "learning_rate", "gradient_summary", "skipped_steps", "_architecture", "_averaging", "_sizes",
    "_overrides", "_geometry", "_kept",
)  # fmt: skip
