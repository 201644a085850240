r"""Automatic gradient descent: Theorem 2 as a `torch.optim.Optimizer`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd.engine.ranks import Peers, find_peers, refuse_flat, refuse_zero_redundancy
from autogd.geometry.atoms import Atom, Rule
from autogd.geometry.chain import chain_of
from autogd.geometry.directions import check_geometry
from autogd.geometry.roles import read_roles, roles_from_shape, weight_of
from autogd.geometry.sizes import measured_sizes
from autogd.optim.groups import as_groups, check_number, check_parameters, named_tensors
from autogd.optim.majorisation import ExponentialMajorisation, Majorisation
from autogd.optim.paths import Path, choose_path
from autogd.optim.plan import Plan, Solution, Summary, idle, make_plan, solve
from autogd.optim.telemetry import LastStep
from autogd.optim.turned import Turned

__all__ = ["AGD"]

PLANS_KEPT = 4  # where different parameters get gradients from step to step, as with dropped layers


class AGD(Optimizer):
    r"""The optimiser of the paper: no learning rate, no schedule, no state.

    .. math::
        G = \frac1L \sum_k \sqrt{d_k/d_{k-1}} \, \|\nabla_k\|_F, \qquad
        \eta = \log\frac{1 + \sqrt{1 + 4G}}2, \qquad
        \Delta W_k = -\frac{\eta}{L} \sqrt{d_k/d_{k-1}} \, \frac{\nabla_k}{\|\nabla_k\|_F}

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step; 1 is the derived one.
        geometry: how a step is measured; "frobenius" is the paper's, with Assumption 2. Without it, "operator" keeps
            the direction, at the price of power iterations and a vector of state; "spectral" takes the best direction.
        sizes: what a step is relative to: "dimensional", the paper's, is Prescription 1; "measured" is the size of the
            weights as they are now, for fine-tuning.
        majorisation: another bound on the objective, and so another η(G); None is Lemma 5.
        weight_decay: λ shrinks a weight by λ times its relative step; λ = 1 keeps it within its target size.
        foreach: False takes the readable path; None and True a fast one, where all tensors share a device.
        maximize: ascend instead.
        atoms: for parameters, by their full name, that are to be read otherwise than the catalogue says.
        process_group: a group, or a mesh, whose ranks hold parts of one model as plain tensors (pipeline stages,
            experts); False if every rank trains a model of its own. DDP, FSDP2 and DTensors need none.

    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    >>> optimiser = AGD(model)
    >>> model(torch.randn(16, 4)).square().mean().backward()
    >>> optimiser.step()
    >>> bool(optimiser.learning_rate > 0)
    True
    """

    def __init__(
        self,
        params: Any,
        *,
        gain: float = 1.0,
        geometry: str = "frobenius",
        sizes: str = "dimensional",
        majorisation: Majorisation | None = None,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        atoms: Mapping[str, Rule] | None = None,
        process_group: Any = None,
    ) -> None:
        refuse_zero_redundancy(type(self).__name__)
        check_number("gain", gain)
        check_number("weight_decay", weight_decay, zero_too=True)
        self._geometry = check_geometry(geometry)
        if sizes not in ("dimensional", "measured"):
            raise ValueError(f"sizes: {sizes!r} is not known; use 'dimensional' or 'measured'")
        self._sizes = sizes
        self._overrides = dict(atoms or {})
        self.majorisation: Majorisation = majorisation or ExponentialMajorisation()
        self._atoms: dict[Tensor, Atom] = {}
        self._names: dict[Tensor, str] = {}
        self._weights: dict[Tensor, Tensor] = {}  # of each bias, the weight that it belongs to
        self._chain = 0.0  # how many layers compound, D
        self._plans: dict[object, Plan] = {}
        self._process_group = process_group
        self._peers: Peers | None = None  # found in the first step
        # what a step leaves behind to look at; nothing is read back from it, so it is not state
        self.learning_rate = self.gradient_summary = torch.zeros(())
        self.skipped_steps = torch.zeros((), dtype=torch.int64)
        self._last: tuple[Plan, Tensor, Tensor, Tensor] | None = None
        # lr is a multiplier for the schedulers and trainers that read it; 1 is the derived step
        defaults = {"lr": 1.0, "gain": gain, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize}
        super().__init__(as_groups(params, type(self).__name__), defaults)
        if self._overrides:
            raise ValueError(f"{', '.join(self._overrides)}: there is no parameter of that name to override")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or a whole Module as `params`; L and G then run over all groups."""
        group = dict(param_group)
        if isinstance(group["params"], Iterator):
            group["params"] = list(group["params"])
        named = named_tensors(group["params"], len(self.param_groups))
        refuse_flat(named, type(self).__name__)
        check_parameters(named, self._names)
        check_number("gain", group.get("gain", self.defaults["gain"]))
        check_number("weight_decay", group.get("weight_decay", self.defaults["weight_decay"]), zero_too=True)
        if isinstance(group["params"], nn.Module):
            names = dict(group["params"].named_parameters(remove_duplicate=False))
            roles = read_roles(group["params"], {n: self._overrides.pop(n) for n in names if n in self._overrides})
            self._chain = max(self._chain, chain_of(group["params"], roles))
            group["params"] = list(named.values())
        else:
            roles = roles_from_shape(named, {n: self._overrides.pop(n) for n in named if n in self._overrides})
            self._chain += sum(role.atom.weight for role in roles)  # of lone tensors, all may stand in one chain
        if self._sizes == "measured":
            sizes = measured_sizes(roles)
            group["sizes"] = [sizes.get(parameter) for parameter in named.values()]
        super().add_param_group(group)
        self._atoms.update({role.parameter: role.atom for role in roles})
        self._weights.update({parameter: role.parameter for parameter, role in weight_of(roles).items()})
        self._names.update({parameter: name for name, parameter in named.items()})
        self._plans.clear()
        self._peers = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; returns the closure's loss, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        peers = self._find_peers()
        plan = self._plan()
        if plan is not None:
            self._update(plan, peers)
        elif peers.group is not None:
            self._sit_out(peers)
        return loss

    def _find_peers(self) -> Peers:
        if self._peers is None or not self._peers.settled:
            self._plans.clear()
            named = {name: parameter for parameter, name in self._names.items()}
            self._peers = find_peers(self._process_group, named, type(self).__name__, self._chain)
        return self._peers

    def _sit_out(self, peers: Peers, more: int = 0) -> Summary:
        """A step for which this rank alone has no gradient."""
        first = self.param_groups[0]["params"][0]
        wide = any(p.dtype == torch.float64 for group in self.param_groups for p in group["params"])
        like = torch.zeros((), device=first.device, dtype=torch.float64 if wide else torch.float32)
        summary = idle(like, peers, more)
        self.gradient_summary = summary.gradient_summary
        self.learning_rate = self.majorisation.learning_rate(self.gradient_summary)
        return summary

    def _update(self, plan: Plan, peers: Peers) -> None:
        """Measure, solve, apply."""
        grads = plan.gradients()
        norms = self._path(grads, plan).measure(grads, plan)
        solution = solve(norms, plan, self.majorisation.learning_rate, peers)
        if plan.looks:
            self._refuse_non_finite(solution.finite, plan, grads)
        multipliers = plan.per_tensor(lambda g: g["lr"] * g["gain"] * (-1 if g["maximize"] else 1))
        keep = None  # of every tensor, what weight decay leaves
        if any(group["weight_decay"] for group in plan.groups):
            decay = plan.per_tensor(lambda group: group["lr"] * group["gain"] * group["weight_decay"])
            keep = (1 - solution.learning_rate / solution.depth * plan.weights * decay).clamp(min=0)
        self._move(grads, solution, solution.coefficients * plan.per_part(multipliers), keep, plan)

        self.learning_rate, self.gradient_summary = solution.learning_rate, solution.gradient_summary
        self._last = (plan, solution.duals, solution.heard, multipliers)
        if not plan.looks:
            self.skipped_steps = self.skipped_steps.to(solution.finite.device) + ~solution.finite

    def _move(
        self, grads: list[Tensor], solution: Solution, coefficients: Tensor, keep: Tensor | None, plan: Plan
    ) -> None:
        """Shrink what is to be shrunk, and add to every part its gradient times its coefficient."""
        path = self._path(grads, plan)
        if keep is not None:
            path.shrink(keep, plan)
        path.apply(grads, coefficients, plan, None if plan.looks else solution.finite)

    def _path(self, grads: list[Tensor], plan: Plan) -> Path:
        if "path" not in plan.kept:
            plan.kept["path"] = self._choose_path(grads, plan)
        path: Path = plan.kept["path"]
        return path

    def _choose_path(self, grads: list[Tensor], plan: Plan) -> Path:
        if self._geometry == "frobenius":
            return choose_path(grads, plan, self.defaults["foreach"])
        return Turned(self._geometry, self.state, self._peers and self._peers.copies)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model holds the weights to evaluate and to ship; AGD's own are just those."""
        yield

    @property
    def last_step(self) -> LastStep | None:
        """What the last step did, tensor by tensor; None before the first. It costs nothing unless it is read."""
        if self._last is None:
            return None
        names = tuple(self._names[parameter] for parameter in self._last[0].parameters)
        return LastStep(self.learning_rate, self.gradient_summary, names, *self._last)

    def _plan(self) -> Plan | None:
        """The plan for the tensors that have a gradient now; the rest are left out of G and of L."""
        key = tuple(
            (id(p), p.device, p.dtype, grad.layout, None if type(grad) is Tensor else _spread(grad))
            for group in self.param_groups for p in group["params"] if (grad := p.grad) is not None
        )  # fmt: skip
        if key not in self._plans and key:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.pop(next(iter(self._plans)))
            entries = ((p, group) for group in self.param_groups for p in group["params"] if p.grad is not None)
            self._plans[key] = make_plan([(p, self._atom(p, group), group) for p, group in entries], self._weights)
        return self._plans.get(key)

    def _atom(self, parameter: Tensor, group: dict[str, Any]) -> Atom:
        name, atom = self._names[parameter], self._atoms.get(parameter)
        if atom is None:
            raise ValueError(f"{name}: it was frozen and AGD knows no atom for it; name one with AGD(model, atoms=...)")
        if cast(Tensor, parameter.grad).is_sparse and atom.inner != (1,):
            raise ValueError(
                f"{name}: AGD takes sparse gradients of embeddings only, and this is a {atom.kind}; "
                "build its layer with sparse=False, or pass the Module so that AGD can tell"
            )
        for known, size in zip(group["params"], group.get("sizes", ()), strict=False):
            if known is parameter and size is not None:
                return replace(atom, scale=size)
        return atom

    def _refuse_non_finite(self, finite: Tensor, plan: Plan, grads: list[Tensor]) -> None:
        """On the CPU, where looking is free: raise before any weight is touched."""
        if finite:
            return
        for parameter, grad in zip(plan.parameters, grads, strict=True):
            numbers: Any = grad._values() if grad.is_sparse else grad
            numbers = numbers.to_local() if hasattr(numbers, "to_local") else numbers
            if not torch.isfinite(numbers).all():
                what = "its gradient is not finite; no weight was changed. Look for a loss that is inf or nan"
                raise ValueError(f"{self._names[parameter]}: {what}")
        raise ValueError(
            "the gradients' norm overflows, or is not finite on another process; no weight was changed. "
            "Scale the loss down"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a saved state, each number in the precision that it was saved in."""
        super().load_state_dict(state_dict)
        # torch casts a parameter's state to the parameter's own type; what is held more precisely must not be rounded
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        ours = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, ours, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor) and value.dtype != parameter.dtype:
                    self.state[parameter][name] = value.to(parameter.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name in _KEPT}
        return {**super().__getstate__(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # another optimiser's state, or an older one's, may lack settings of ours
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            if self._sizes == "measured" and "sizes" not in group:
                raise ValueError("sizes: this state was saved without measured sizes; load it into AGD(model)")
        self.__dict__.setdefault("_process_group", None)  # groups of processes cannot be saved
        self.__dict__.setdefault("_peers", None)
        # a loaded state brings its own groups: what was planned on the old ones is void
        self._plans = {}
        self._last = None


_KEPT = (
    "majorisation", "learning_rate", "gradient_summary", "skipped_steps", "_atoms", "_chain", "_names", "_weights",
    "_sizes", "_overrides", "_geometry",
)  # fmt: skip


def _spread(grad: Tensor) -> object:
    """How a DTensor lies over the processes; nothing for any other tensor."""
    return getattr(grad, "placements", None), getattr(grad, "device_mesh", None)
