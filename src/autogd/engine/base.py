"""What torch's contract asks of an optimiser: groups, state, copies, errors. The mathematics is elsewhere."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd.engine.architecture import Architecture
from autogd.engine.backend import Backend
from autogd.engine.distributed.dtensor import Sharded, is_sharded, local, shares_work
from autogd.engine.distributed.ranks import Peers, find_peers, others_of, refuse_flat, refuse_zero_redundancy
from autogd.engine.foreach import Foreach
from autogd.engine.groups import (
    as_groups,
    check_number,
    check_parameters,
    multiplier,
    named_tensors,
    refuse_settings,
)
from autogd.engine.named_groups import split_by_name
from autogd.engine.native import Native, takes
from autogd.engine.plan import Plan, make_plan
from autogd.engine.reminder import Reminder
from autogd.engine.single_tensor import SingleTensor
from autogd.engine.swap import put, swapped
from autogd.engine.telemetry import LastStep
from autogd.geometry.atom import Atom, Rule
from autogd.geometry.direction import Geometry, check_geometry
from autogd.geometry.norms import accumulation_dtype
from autogd.reading.sizes import measured_sizes

__all__ = ["ReadsArchitecture", "choose_backend"]

VERSION = 2  # of what a state holds; an older one is refused
PLANS_KEPT = 4  # different parameters may get gradients from step to step, as with dropped layers


def choose_backend(
    plan: Plan, geometry: Geometry, momentum: float = 0.0, foreach: bool | None = None, copies: Any = None
) -> SingleTensor:
    """The fastest backend that can take the plan's tensors; `foreach=False` asks for the reference."""
    from autogd.engine.library import library  # not before it can be run as a program

    if any(is_sharded(parameter) for parameter in plan.parameters) or shares_work(plan, geometry, momentum, copies):
        return Sharded(plan, geometry, momentum, copies)
    if foreach is False or not plan.one_device or (plan.sparse and not momentum):
        return SingleTensor(plan, geometry, momentum)
    if takes(plan) and (passes := library()) is not None:
        return Native(plan, passes, geometry, momentum)
    return Foreach(plan, geometry, momentum)


def _check_origin(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Refuse the state of another optimiser, or of an older version, before anything is changed; remember it if not."""
    assert isinstance(optimiser, ReadsArchitecture)
    ours = optimiser.defaults["made_by"]
    for group in state["param_groups"]:
        made_by = group.get("made_by", "an older version" if "gain" in group else "another optimiser")
        if made_by != ours:
            raise ValueError(
                f"load_state_dict: this state was made by {made_by}, and this is {ours}; start without it: leave "
                "load_state_dict out and load the model's weights alone. No state was changed"
            )
    optimiser._loading = state


class ReadsArchitecture(Optimizer):
    """A torch optimiser that knows the atom of every parameter, and has a backend for those with a gradient."""

    momentum = 0.0  # the share of the momentum that a step keeps
    _loading: dict[str, Any] | None = None  # the state that is being loaded, after every hook

    def __init__(
        self, params: Any, *, geometry: str, sizes: str, atoms: Mapping[str, Rule] | None, averaging: bool,
        gain: float, weight_decay: float, foreach: bool | None, maximize: bool,
        groups: Mapping[str, Mapping[str, Any]] | None, process_group: Any, refused: Mapping[str, Any],
    ) -> None:  # fmt: skip
        refuse_settings(type(self).__name__, refused)
        refuse_zero_redundancy(type(self).__name__)
        if groups and not isinstance(params, nn.Module):
            raise ValueError("groups: names are those of a Module's parameters; pass the Module, AGD(model, groups=…)")
        check_number("gain", gain)
        check_number("weight_decay", weight_decay, zero_too=True)
        self._geometry = check_geometry(geometry)
        if sizes not in ("dimensional", "measured"):
            raise ValueError(f"sizes: {sizes!r} is not known; use 'dimensional' or 'measured'")
        self._sizes = sizes
        self._overrides = dict(atoms or {})
        self._averaging = averaging
        self._architecture = Architecture(biases_by_layer=self.momentum > 0)
        self._process_group = process_group
        self._peers: Peers | None = None  # found in the first step
        self._backends: dict[object, Backend] = {}
        self._ready: Backend | None = None  # the one whose tensors have room in the state
        self._swapped = False  # whether the model holds the averaged weights
        self._modules: list[weakref.ref[nn.Module]] = []
        self._reminder = Reminder()
        self._kept: dict[Tensor, Tensor] | None = None  # between eval() and train(): the weights in training
        self._awaits_train = False  # a state was loaded that was saved between the two
        # what a step leaves behind to look at; nothing is read back from it, so it is not state
        self.learning_rate = self.gradient_summary = torch.zeros(())
        self.skipped_steps = torch.zeros((), dtype=torch.int64)
        self._last: tuple[Plan, Tensor, Tensor, Any] | None = None
        # lr is a multiplier for the schedulers and trainers that read it; 1 is the derived step
        defaults: dict[str, Any] = {
            "lr": 1.0, "gain": gain, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "made_by": f"{self._state_name} {VERSION}",  # goes with the state, and is checked when one is loaded
        }  # fmt: skip
        super().__init__(as_groups(params, type(self).__name__), defaults)
        if self._overrides:
            raise ValueError(f"{', '.join(self._overrides)}: there is no parameter of that name to override")
        if groups:
            self.param_groups = split_by_name(self.param_groups[0], self._architecture.names, groups)
            for group in self.param_groups:
                check_number("gain", group["gain"])
                check_number("weight_decay", group["weight_decay"], zero_too=True)
        if averaging and isinstance(params, nn.Module):
            self._reminder = Reminder(params)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or a whole Module as `params`; L and G then run over all groups."""
        group = dict(param_group)
        if isinstance(group["params"], Iterator):
            group["params"] = list(group["params"])
        named = named_tensors(group["params"], len(self.param_groups))
        refuse_flat(named, type(self).__name__)
        check_parameters(named, self._architecture.names)
        multiplier(group)  # raises
        check_number("gain", group.get("gain", self.defaults["gain"]))
        check_number("weight_decay", group.get("weight_decay", self.defaults["weight_decay"]), zero_too=True)
        if isinstance(group["params"], nn.Module):
            self._modules.append(weakref.ref(group["params"]))
            names = dict(group["params"].named_parameters(remove_duplicate=False))
            overrides = {n: self._overrides.pop(n) for n in names if n in self._overrides}
            roles = self._architecture.add_module(group["params"], overrides)
            group["params"] = list(named.values())
        else:
            overrides = {n: self._overrides.pop(n) for n in named if n in self._overrides}
            roles = self._architecture.add_tensors(named, overrides)
        if self._sizes == "measured":
            sizes = measured_sizes(roles)
            group["sizes"] = [sizes.get(parameter) for parameter in named.values()]
        super().add_param_group(group)
        self._architecture.names.update({parameter: name for name, parameter in named.items()})
        self._backends.clear()
        self._peers = None

    def _join(self) -> Peers:
        """The ranks that train the same model; compared in the first step with a gradient."""
        if self._peers is None:
            named = {name: parameter for parameter, name in self._architecture.names.items()}
            self._peers = find_peers(self._process_group, named, type(self).__name__, self._architecture.runs)
        return self._peers

    @property
    def _state_name(self) -> str:
        """What tells one kind of state from another."""
        return "StochasticAGD" if self.momentum else "AGD with averaging" if self._averaging else "AGD"

    def _new_backend(self, key: tuple[Any, ...] = ()) -> Backend | None:
        """The backend for the tensors that have a gradient now; the rest are left out of G and of L."""
        trained = ((p, group) for group in self.param_groups for p in group["params"] if p.grad is not None)
        entries = [(p, group) for p, group in trained if p.numel()]  # an empty tensor has nothing to move
        if not entries:
            return None
        self._settle([p for p, _ in entries])
        peers = self._join()
        plan = make_plan([(p, self._atom(p, group), group) for p, group in entries], self._architecture.weights)
        plan.others = others_of(peers, plan.parameters, plan.atoms, plan.reach)
        while len(self._backends) >= PLANS_KEPT:
            self._backends.pop(next(iter(self._backends)))
        backend = choose_backend(plan, self._geometry, self.momentum, self.defaults["foreach"], peers.copies)
        self._backends[self._architecture.version, *key[1:]] = backend  # the version may be a later one now
        return backend

    def _settle(self, parameters: list[Tensor]) -> None:
        """Have the architecture read before a step, and note what changed; it is saved with the groups."""
        architecture = self._architecture
        # torch.distributed.checkpoint makes room for a state by a step of size 0, before any forward pass
        architecture.settle(parameters, warn=any(torch.is_tensor(g["lr"]) or g["lr"] != 0 for g in self.param_groups))
        sizes = measured_sizes(architecture.changed) if self._sizes == "measured" else {}
        for group in self.param_groups:
            if sizes:
                group["sizes"] = [sizes.get(p, size) for p, size in zip(group["params"], group["sizes"], strict=True)]
            group["reading"] = architecture.described(group["params"])
        architecture.changed = []

    def _atom(self, parameter: Tensor, group: dict[str, Any]) -> Atom:
        name, atom = self._architecture.names[parameter], self._architecture.atoms[parameter]
        if cast(Tensor, parameter.grad).is_sparse and atom.inner != (1,):
            raise ValueError(
                f"{name}: AGD takes sparse gradients of embeddings only, and this is a {atom.kind}; "
                "build its layer with sparse=False, or pass the Module so that AGD can tell"
            )
        if parameter is self._architecture.readout and self._peers is not None and self._peers.inner:
            atom = replace(atom, free=False)
        size = self._measured().get(parameter)
        return atom if size is None else replace(atom, scale=size / self._output_size())

    def _measured(self) -> dict[Tensor, float]:
        """The measured sizes; they go with the groups, and so with the state."""
        pairs = (zip(group["params"], group.get("sizes", ()), strict=False) for group in self.param_groups)
        return {parameter: size for group in pairs for parameter, size in group if size is not None}

    def _output_size(self) -> float:
        """How far the output may be above unit root-mean-square: the readout's measured size over its target, or 1.

        A unit perturbation is to move the output by one unit, and a relative one moves it by so many. StochasticAGD's
        rate is relative to the weights as they are.
        """
        sizes, atoms = self._measured(), self._architecture.atoms
        readout = next((p for p in reversed(atoms) if atoms[p].free and p in sizes), None)
        return 1.0 if readout is None or self.momentum else max(1.0, sizes[readout] / atoms[readout].scale)

    def _make_room(self, backend: Backend, grads: list[Tensor]) -> None:
        """Room in the state for every tensor's momentum and average; none is made for gradients that are refused."""
        if backend.plan.on_cpu and backend.plan.others is None:
            finite = backend.measure(grads).gradients.sum() < torch.inf
            if not finite:
                self._refuse(backend.plan, grads)
        for parameter in backend.plan.parameters:
            wide, state = accumulation_dtype(parameter.dtype), self.state[parameter]
            # Momentum is held in half of float32's bytes: a tenth of it is renewed in every step, so its rounding does
            # not matter. The average moves by ever smaller shares, and must not round.
            types = {"average": wide}
            if self.momentum:
                types["momentum"] = torch.float64 if parameter.dtype == torch.float64 else torch.bfloat16
            for name, dtype in types.items():
                if name not in state:
                    held = torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
                    state[name] = held.copy_(parameter) if name == "average" else held
                elif state[name].dtype != dtype or state[name].device != parameter.device:
                    state[name] = state[name].to(parameter.device, dtype)  # loaded, or the model was moved
        self._ready = backend

    def _refuse(self, plan: Plan, grads: list[Tensor]) -> None:
        """Raise before any weight is touched; on the CPU, where looking is free."""
        for parameter, grad in zip(plan.parameters, grads, strict=True):
            numbers = grad._values() if grad.is_sparse else local(grad)
            if not torch.isfinite(numbers).all():
                what = "its gradient is not finite; no weight was changed. Look for a loss that is inf or nan"
                raise ValueError(f"{self._architecture.names[parameter]}: {what}")
        raise ValueError(
            "the gradients' norm overflows, or is not finite on another process; no weight was changed. "
            "Scale the loss down"
        )

    @property
    def last_step(self) -> LastStep | None:
        """What the last step did, tensor by tensor; None before the first. It costs nothing unless it is read."""
        if self._last is None:
            return None
        names = tuple(self._architecture.names[parameter] for parameter in self._last[0].parameters)
        return LastStep(self.learning_rate, self.gradient_summary, names, *self._last)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model holds the weights to evaluate and to ship; on the way out, exactly what it held before.

        Without averaging these are the weights themselves. Under FSDP2 pass the Module, so that stale unsharded weights
        are freed.
        """
        self._reminder.dismiss()
        if self._kept is not None:  # after eval() they are there already, and stay
            yield
            return
        if self._swapped:
            raise RuntimeError("averaged() inside averaged(): the model holds its averaged weights already")
        averages = self._averages()
        self._swapped = bool(averages)
        try:
            with swapped(averages, self._live_modules()):
                yield
        finally:
            self._swapped = False

    def eval(self) -> None:
        """Put the averaged weights into the model, until `train()`: for loops that are written this way.

        >>> from autogd import StochasticAGD
        >>> optimiser = StochasticAGD(nn.Linear(2, 1))
        >>> optimiser.eval()
        >>> optimiser.train()
        """
        self._reminder.dismiss()
        averages = self._averages()
        if averages and not self._swapped and not self._awaits_train:
            self._kept = {parameter: local(parameter).detach().clone() for parameter in averages}
            put(averages, self._live_modules())
            self._swapped = True

    def train(self) -> None:
        """Put the weights in training back, those of a state that was saved after `eval()` too."""
        if self._awaits_train:
            self._awaits_train = False
            put({p: state.pop("training") for p, state in self.state.items() if "training" in state})
        if self._kept is not None:
            put(self._kept, self._live_modules())
            self._kept, self._swapped = None, False

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs beside the weights; after `eval()`, the weights in training are in it too."""
        if self._kept is None:
            self._outside("state_dict()")
            return super().state_dict()
        saved = super().state_dict()
        indices = [index for group in saved["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(indices, parameters, strict=True):
            if parameter in self._kept:
                saved["state"][index] = {**saved["state"][index], "training": self._kept[parameter]}
        return saved

    def _averages(self) -> dict[Tensor, Tensor]:
        return {p: state["average"] for p, state in self.state.items() if "average" in state}

    def _live_modules(self) -> list[nn.Module]:
        return [module for each in self._modules if (module := each()) is not None]

    def _outside(self, what: str) -> None:
        """Refuse what would mix the averaged weights with the state of those in training."""
        if self._swapped or self._awaits_train:
            where, mend = "inside averaged()", "leave the block first"
            if self._kept is not None or self._awaits_train:
                where, mend = "after eval()", "call optimiser.train() first"
            raise RuntimeError(f"{what} {where}: the model holds its averaged weights; {mend}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a saved state, each number in the precision that it was saved in; another optimiser's is refused."""
        if self._swapped:
            self._outside("load_state_dict()")
        last = self.register_load_state_dict_pre_hook(_check_origin)  # sees what the hooks before it made of the state
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
            self._loading = None

    def _restore_precision(self, loaded: dict[str, Any]) -> None:
        # torch casts a parameter's state to the parameter's own type, or else shares it with whom it was saved by
        saved = [index for group in loaded["param_groups"] for index in group["params"]]
        ours = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, ours, strict=True):
            for name, value in loaded["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.to(parameter.device, copy=True)
        self._awaits_train = any("training" in state for state in self.state.values())

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name in _KEPT}
        return {**super().__getstate__(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # torch puts it there; a group that gets it has a key more than before
        self.defaults.pop("differentiable", None)
        for group in self.param_groups:  # a state of an older version may lack settings
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            if self._sizes == "measured" and "sizes" not in group:
                raise ValueError("sizes: this state was saved without measured sizes; load it into AGD(model)")
        if self._loading is not None:
            self._restore_precision(self._loading)
        # a loaded state brings its own groups: what was planned on the old ones is void
        self._backends, self._last, self._ready, self._swapped = {}, None, None, False
        for group in self.param_groups:
            if "reading" in group:
                self._architecture.restore(group["params"], group["reading"])
        # a copy, or one read from a file, holds parameters alone, and no group of processes
        absent = {"_modules": [], "_reminder": Reminder(), "_kept": None, "_awaits_train": False}
        for name, value in {**absent, "_process_group": None, "_peers": None}.items():
            self.__dict__.setdefault(name, value)


_KEPT = (
    "majorisation", "learning_rate", "gradient_summary", "skipped_steps", "_architecture", "_averaging", "_sizes",
    "_overrides", "_geometry",
)  # fmt: skip
