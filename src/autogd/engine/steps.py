"""Around the mathematics of a step. Before it: plan, backend and state of the tensors; after it: what the step did."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from autogd.engine.backend import Backend, SingleTensor
from autogd.engine.base import ReadsArchitecture
from autogd.engine.distributed.dtensor import Sharded, shares_work
from autogd.engine.distributed.ranks import find_peers, others_of
from autogd.engine.distributed.shards import aligned, is_sharded, local
from autogd.engine.foreach import Foreach
from autogd.engine.native import Native, takes
from autogd.engine.plan import Plan
from autogd.geometry.atom import Atom
from autogd.geometry.complex import as_real
from autogd.geometry.direction import Geometry
from autogd.geometry.norms import accumulation_dtype
from autogd.reading.initialise import measured_sizes

__all__ = ["LastStep", "PlansSteps", "choose_backend", "gradients"]

PLANS_KEPT = 4  # different parameters may get gradients from step to step, as with dropped layers


def choose_backend(
    plan: Plan, geometry: Geometry, momentum: float = 0.0, foreach: bool | None = None, copies: Any = None
) -> Backend:
    """The fastest backend that can take the plan's tensors; `foreach=False` asks for the reference."""
    from autogd.engine.library import library  # not before it can be run as a program

    if any(is_sharded(parameter) for parameter in plan.parameters) or shares_work(plan, geometry, momentum, copies):
        return Sharded(plan, geometry, momentum, copies)
    # a rank without gradients has no tensors here, but takes part in its group's sums
    if foreach is False or not plan.parameters or not plan.one_device or (plan.sparse and not momentum):
        return SingleTensor(plan, geometry, momentum)
    if takes(plan) and (passes := library()) is not None:
        return Native(plan, passes, geometry, momentum)
    return Foreach(plan, geometry, momentum)


def gradients(plan: Plan, dense: bool = False) -> list[Any]:
    """The gradients of a plan's tensors as they are now, each sharded as its parameter is."""
    if plan.complex:  # a parameter may have moved in memory since the last step
        plan.weights[:] = map(as_real, plan.parameters)
    grads: list[Any] = [as_real(aligned(parameter.grad, parameter)) for parameter in plan.parameters]
    return [(grad.to_dense() if dense else grad.coalesce()) if grad.is_sparse else grad for grad in grads]


@dataclass(frozen=True, eq=False)
class LastStep:
    r"""One step; all numbers are 0-d tensors on the parameters' device.

    Args:
        learning_rate: η.
        gradient_summary: G.
        names: of the tensors that took part, in the plan's order.

    >>> from autogd import AGD
    >>> model = torch.nn.Linear(4, 2, bias=False)
    >>> optimiser = AGD(model)
    >>> model(torch.randn(8, 4)).square().mean().backward()
    >>> optimiser.step()
    >>> step = optimiser.last_step
    >>> bool(step.dual_norms["weight"] == step.gradient_summary)  # one layer: L = 1
    True
    >>> bool(step.update_sizes["weight"] == step.learning_rate)
    True
    """

    learning_rate: Tensor
    gradient_summary: Tensor
    names: tuple[str, ...]
    _plan: Plan = field(repr=False)
    _summary: Any = field(repr=False)  # `autogd.optim.rule.Summary`
    _multipliers: Any = field(repr=False)  # per tensor, or one for all: the step multiplier of its group

    @cached_property
    def dual_norms(self) -> dict[str, Tensor]:
        """What each tensor's gradient adds to L·G: its parts' dual norms, times scale and share of the depth."""
        return dict(zip(self.names, self._plan.sums(self._summary.duals).unbind(), strict=True))

    @cached_property
    def update_sizes(self) -> dict[str, Tensor]:
        """How far each tensor moved, in units of its target size: its largest part counts, and all have the same."""
        moved = self._plan.sums(self._summary.active.to(self._summary.duals.dtype))
        sizes = self.learning_rate / self._summary.depth * self._plan.depth_shares * abs(self._multipliers)
        return dict(zip(self.names, torch.where(moved > 0, sizes, 0).unbind(), strict=True))


class PlansSteps(ReadsArchitecture):
    """A torch optimiser that has a backend for the tensors with a gradient."""

    def _new_backend(self, key: tuple[Any, ...] = ()) -> Backend | None:
        """The backend for the tensors that have a gradient now; the rest are left out of G and of L.

        None if there are none; but a rank whose group may have some takes part in the group's sums.
        """
        if self._peers is not None and not self._peers.settled:
            self._peers = None
        every = [(p, group) for group in self.param_groups for p in group["params"]]
        entries = [(p, group) for p, group in every if p.grad is not None and p.numel()]  # an empty one cannot move
        if entries:
            self._settle([p for p, _ in entries])
        if self._peers is None:  # the ranks that train the same model
            named: dict[str, Tensor] = {}
            for parameter, name in self._architecture.names.items():  # two Modules may have a name in common
                named[f"{name} ({len(named)})" if name in named else name] = parameter
            self._peers = find_peers(self._process_group, named, type(self).__name__, self._architecture.runs)
        peers = self._peers
        if not entries and peers.group is None:
            return None
        entered = [(p, self._atom(p, group), group) for p, group in entries]
        plan = Plan(entered, self._architecture.weights, [p for p, _ in every])
        plan.others = others_of(peers, plan.parameters, plan.atoms, plan.reach)
        backend = choose_backend(plan, self._geometry, self.momentum, self.defaults["foreach"], peers.copies)
        if peers.settled:
            while len(self._backends) >= PLANS_KEPT:
                self._backends.pop(next(iter(self._backends)))
            self._backends[self._architecture.version, *key[1:]] = backend  # the version may be newer by now
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
            group["reading"] = architecture.described(group["params"], self._every())
        architecture.changed = []

    def _atom(self, parameter: Tensor, group: dict[str, Any]) -> Atom:
        name, atom = self._architecture.names[parameter], self._architecture.atoms[parameter]
        if cast(Tensor, parameter.grad).is_sparse and atom.inner != (1,):
            raise ValueError(
                f"{name}: AGD takes sparse gradients of embeddings only, and this is a {atom.kind}; "
                "build its layer with sparse=False, or pass the Module so that AGD can tell"
            )
        if parameter.is_conj():
            raise ValueError(
                f"{name}: a conjugate view, whose real view would be a copy that no step reaches; "
                "make the parameter from weight.resolve_conj()"
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
        """The readout's measured size over its target, at least 1; 1 for StochasticAGD.

        A unit perturbation should move the output by one unit. A perturbation relative to larger weights moves it by
        this many. StochasticAGD's rate is relative to the weights as they are.
        """
        sizes, atoms = self._measured(), self._architecture.atoms
        readout = next((p for p in reversed(atoms) if atoms[p].free and p in sizes), None)
        return 1.0 if readout is None or self.momentum else max(1.0, sizes[readout] / atoms[readout].scale)

    def _prepare_state(self, backend: Backend, grads: list[Any]) -> None:
        """Allocate every tensor's momentum and average; not for gradients that an error is raised for."""
        if backend.plan.on_cpu and backend.plan.others is None:
            finite = backend.measure(grads).gradients.sum() < torch.inf
            if not finite:
                self._raise_not_finite(backend.plan, grads)
        for parameter in backend.plan.parameters:
            wide, state = accumulation_dtype(parameter.dtype), self.state[parameter]
            # Momentum takes half of float32's bytes: a tenth of it is renewed in every step, so its rounding does not
            # matter. The average moves by ever smaller shares, and must not round.
            types = {"average": (parameter, wide.to_complex() if parameter.is_complex() else wide)}
            if self.momentum:  # there is no complex bfloat16
                types["momentum"] = as_real(parameter), torch.float64 if wide == torch.float64 else torch.bfloat16
            for name, (like, dtype) in types.items():
                if name not in state:
                    new = torch.zeros_like(like, dtype=dtype, memory_format=torch.preserve_format)
                    state[name] = new.copy_(like) if name == "average" else new
                elif state[name].dtype != dtype or state[name].device != parameter.device:
                    state[name] = state[name].to(parameter.device, dtype)  # loaded, or the model was moved
        self._ready = backend

    def _raise_not_finite(self, plan: Plan, grads: list[Any]) -> None:
        """Name the gradient that is not finite, before any weight changes. On the CPU alone."""
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
