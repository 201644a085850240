"""What an optimiser knows about the parameters that it trains: from the catalogue first, then from a forward pass."""

import json
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from torch import Tensor, nn

from autogd.engine.distributed.wrappers import unsharded
from autogd.engine.hooks import Watch
from autogd.geometry.atom import Atom, Rule
from autogd.reading.agreement import merged
from autogd.reading.catalogue import Role, Source, read_roles, roles_from_shape, share_biases, weight_of
from autogd.reading.chain import Runs, runs_of
from autogd.reading.graph import Reading, Roots, read_graph, read_without_numbers

__all__ = ["Architecture"]


class Architecture:
    """The atom of every parameter, and the number of layers that compound.

    A Module is watched until its first forward pass with gradients, which is read before the first step. `version`
    counts the readings: what was planned on an older one is void.

    >>> import torch
    >>> model = nn.Linear(4, 6, bias=False)
    >>> architecture = Architecture()
    >>> architecture.add_module(model, {})[0].atom.parts
    1
    >>> gate, up = model(torch.ones(1, 4)).chunk(2, -1)  # nothing was split when the pass of the layer itself was over
    >>> architecture.version
    1

    Args:
        biases_by_layer: whether a bias has the share of the depth that its layer gives it, for minibatches; else 1/32.
    """

    def __init__(self, biases_by_layer: bool = False) -> None:
        self._biases_by_layer = biases_by_layer
        self.atoms: dict[Tensor, Atom] = {}
        self.names: dict[Tensor, str] = {}
        self.weights: dict[Tensor, Tensor] = {}  # bias -> the weight of its layer
        self.sources: dict[Tensor, Source] = {}  # where each atom was read from
        self.chain = 0.0  # D, how many layers compound
        self.readout: Tensor | None = None
        self._stage: Runs | None = None  # of the only Module
        self.version = 0
        self.changed: list[Role] = []  # changed by the latest reading, and not yet saved with the groups
        self._seen: set[Tensor] = set()  # parameters that a forward pass was seen to use
        self._opaque: set[Tensor] = set()  # parameters that it used in an operation that does not tell
        self._warned: set[Tensor] = set()
        self._awaited: set[Tensor] = set()  # parameters that got a gradient and had not been seen yet
        self._watches: list[Watch] = []
        self._hidden: list[tuple[weakref.ref[nn.Module], Any]] = []  # and the arguments of the pass
        self._modules: list[tuple[weakref.ref[nn.Module], dict[str, Rule], dict[str, Tensor]]] = []

    def add_module(self, model: nn.Module, overrides: Mapping[str, Rule]) -> list[Role]:
        """Add a Module's parameters, with the catalogue's atoms, and watch its first forward pass."""
        roles = self._shared(read_roles(model, overrides))
        stage = runs_of(model, roles)
        self.chain, self._stage = max(self.chain, stage.longest), None if self.atoms else stage
        self._modules.append((weakref.ref(model), dict(overrides), dict(model.named_parameters())))
        self._watches.append(Watch(model, self._read))
        self._take(roles)
        return roles

    def add_tensors(self, named: Mapping[str, Tensor], overrides: Mapping[str, Rule]) -> list[Role]:
        """Add lone tensors; there is no Module to read."""
        roles = self._shared(roles_from_shape(named, overrides))
        self.chain += sum(role.atom.depth_share for role in roles)  # all of them may stand in one chain
        self._stage = None
        self._take(roles)
        return roles

    def settle(self, parameters: Sequence[Tensor], warn: bool = True) -> None:
        """Before the first step on these parameters: read what can still be read."""
        for watch in self._watches:
            watch.finish()
        self._look_inside()
        watched = [model for ref, *_ in self._modules if (model := ref()) is not None]
        new = {p for p in parameters if p not in self._seen and p not in self._awaited} if self.version else set()
        if new:  # the pass that was read did not use them: read the next one
            self._watches = [Watch(model, self._read) for model in watched]
            self._awaited |= new
        elif watched and warn:
            self._warn([p for p in parameters if p not in self._warned], type(watched[0]).__name__)

    def _warn(self, parameters: Sequence[Tensor], model: str) -> None:
        """Warn once, by name, about what could not be read."""
        shaped = [p for p in parameters if self.sources.get(p) == "shape"]
        alone = (
            "so its atom is told from its shape alone; name it with atoms={...}, or register its layer with "
            "autogd.register_atom"
        )
        # all atoms of a vector are much alike
        unread = [p for p in shaped if p.dim() > 1 and p not in self._seen]
        opaque = [p for p in shaped if p in self._opaque]
        flat = [p for p in parameters if self.atoms[p].kind == "flat"]
        for found, what in (
            (unread, f"no forward pass of {model} could be read, {alone}"),
            (opaque, f"the forward pass of {model} uses it in a function that cannot be read, {alone}"),
            (flat, "it packs tensors of different shapes, which are measured as one vector; make each a parameter"),
        ):
            if found:
                others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
                warnings.warn(f"{self.names[found[0]]}{others}: {what}", stacklevel=6)
            self._warned.update(found)

    def stop(self) -> None:
        """Stop watching: a saved state brought the reading."""
        for watch in self._watches:
            watch.remove()
        self._watches.clear()
        self._hidden.clear()

    def _shared(self, roles: list[Role]) -> list[Role]:
        return share_biases(roles) if self._biases_by_layer else roles

    def _take(self, roles: Sequence[Role]) -> None:
        self.atoms.update({role.parameter: role.atom for role in roles})
        self.sources.update({role.parameter: role.source for role in roles})
        self.weights.update({parameter: role.parameter for parameter, role in weight_of(roles).items()})
        self.readout = next((role.parameter for role in roles if role.readout), self.readout)

    @property
    def runs(self) -> Runs:
        """The runs of layers that compound, if this is one stage of several."""
        if self._stage is None or not self._stage.broken:
            return Runs(self.chain, self.chain, self.chain, False)
        return self._stage._replace(longest=self.chain)

    def _read(self, model: nn.Module, roots: Roots, call: Any) -> None:
        sharded = unsharded(model)
        own = next((named for ref, _, named in self._modules if ref() is model), {})
        # torch.func calls the Module with other tensors for its parameters; a new layer brings parameters of its own
        present = [(now, own[name]) for name, now in model.named_parameters() if name in own and now not in self.atoms]
        swapped = {now: before for now, before in present if now.shape == before.shape}
        parameters = dict(model.named_parameters()) | {f"unsharded {i}": whole for i, whole in enumerate(sharded)}
        reading = read_graph(roots, parameters).renamed(sharded | swapped)
        if reading.uses:
            self._learn(model, reading, sharded | swapped)
        trained = {parameter for parameter in own.values() if parameter.requires_grad and parameter.numel()}
        if call is not None and reading.hides and trained - set(reading.atoms):
            self._hidden.append((weakref.ref(model), call))

    def _look_inside(self) -> None:
        """Read the Modules whose passes hid something, on tensors without numbers, if they run so."""
        for ref, call in self._hidden:
            model = ref()
            told = None if model is None else read_without_numbers(model, *call)
            if model is not None and told is not None:
                self._learn(model, told, {})
        self._hidden.clear()

    def _learn(self, model: nn.Module, reading: Reading, trained: Mapping[Tensor, Tensor]) -> None:
        overrides = next((told for ref, told, _ in self._modules if ref() is model), {})
        known = read_roles(model, overrides, readout=False)
        known = [replace(role, parameter=trained.get(role.parameter, role.parameter)) for role in known]
        roles = self._shared(merged(known, reading))
        self._seen |= set(reading.uses)
        self._opaque |= reading.opaque
        self.changed = [role for role in roles if role.parameter in self._seen]
        self._take(self.changed)
        for role in roles:  # the last in the order of registration was taken for the readout
            if reading.readouts and role.parameter in self.atoms and not role.atom.free:
                self.atoms[role.parameter] = replace(self.atoms[role.parameter], free=False)
        self.readout = reading.readouts[0] if reading.readouts else self.readout
        self.chain = reading.chain(self.atoms) or self.chain
        self.version += 1

    def described(self, parameters: Sequence[Tensor], every: Sequence[Tensor]) -> str:
        """What is known about these parameters, to be saved; a bias's weight by its place among `every` parameter."""
        place = {parameter: i for i, parameter in enumerate(every)}

        def row(p: Tensor) -> dict[str, Any]:
            weight = place.get(self.weights[p]) if p in self.weights else None
            told = {"source": self.sources[p], "seen": p in self._seen, "weight": weight, "readout": p is self.readout}
            return {**asdict(self.atoms[p]), **told}

        rows = [row(p) if p in self.atoms else None for p in parameters]  # an empty tensor has no atom
        return json.dumps({"atoms": rows, "chain": self.chain})

    def restore(self, parameters: Sequence[Tensor], described: str, every: Sequence[Tensor]) -> None:
        """Take up what was saved: a resumed run takes the same steps."""
        saved = json.loads(described)
        names = {field.name for field in fields(Atom)}
        for parameter, row in zip(parameters, saved["atoms"], strict=True):
            if row is None:
                continue
            told: Any = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items() if name in names}
            self.atoms[parameter] = Atom(**told)
            self.sources[parameter] = row["source"]
            if row["seen"]:
                self._seen.add(parameter)
            if "weight" in row:  # older states have neither this nor the readout
                self.weights.pop(parameter, None)
                if row["weight"] is not None:
                    self.weights[parameter] = every[row["weight"]]
                self.readout = parameter if row["readout"] else self.readout
        self.chain = saved["chain"]
        self.version += 1
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watches": [], "_hidden": [], "_modules": [], "changed": []}
