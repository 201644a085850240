"""Which architectures of `transformers` the optimisers take, and what they make of those that can be shrunk to run."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from autogd.experiments.shrunk import shrunk
from autogd.experiments.zoo_race import RATES, descend
from autogd.optim import AGD, StochasticAGD
from autogd.reading.agreement import disagreements
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_graph

__all__ = ["Built", "Trained", "architectures", "build", "built", "trained"]


@dataclass(frozen=True)
class Built:
    """One architecture in its default size, on the meta device: of its parameters, how many are known from where."""

    architecture: str
    parameters: int
    known: int  # to the catalogue; a vector is known well enough
    shape: int  # provisional, until the first forward pass
    error: str = ""


@dataclass(frozen=True)
class Trained:
    """One architecture, shrunk: what its forward pass told, and how far 30 steps lowered the loss of one batch."""

    family: str
    architecture: str
    parameters: int
    unread: int  # used in the pass, of two dimensions or more, and told from their shape alone all the same
    contradicted: int  # the catalogue says one thing, the pass another
    ours: float
    adam: float  # the best of three rates

    @property
    def ratio(self) -> float:
        """The drop of the loss beside Adam's."""
        return self.ours / self.adam


def architectures() -> list[str]:
    """Every type of model that transformers has a configuration for."""
    from transformers.models.auto import configuration_auto

    return sorted(configuration_auto.CONFIG_MAPPING.keys())


def build(name: str) -> nn.Module | None:
    """The architecture in its default size, without numbers; None if it does not build so."""
    import transformers
    from transformers.models.auto import configuration_auto

    transformers.logging.set_verbosity_error()
    try:
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(configuration_auto.CONFIG_MAPPING[name]())
    except Exception:  # another package is missing, or the default configuration fits no model
        return None
    assert isinstance(model, nn.Module)
    return model if any(True for _ in model.parameters()) else None


def built(name: str, model: nn.Module) -> Built:
    """Construct both optimisers on a model."""
    parameters = sum(1 for _ in model.parameters())
    try:
        roles = read_roles(model)
        AGD(model)
        StochasticAGD(model)
    except Exception as error:
        return Built(name, parameters, 0, 0, f"{type(error).__name__}: {error}".splitlines()[0])
    provisional = sum(role.source == "shape" and role.parameter.dim() > 1 for role in roles)
    return Built(name, parameters, len(roles) - provisional, provisional)


def trained(family: str, name: str, steps: int = 30, rates: Sequence[float] = RATES) -> Trained | None:
    """Read and train one architecture, shrunk, from its own weights; None if it cannot be shrunk so that it runs."""
    try:
        subject = shrunk(family, name)
        start = subject.loss()
    except Exception:  # sizes that do not fit each other, inputs of another kind
        return None
    if not torch.isfinite(start):
        return None
    model = subject.model
    roles = read_roles(model, readout=False)
    reading = read_graph(start, dict(model.named_parameters()))
    told = {role.parameter for role in roles if role.source != "shape"} | set(reading.atoms)
    unread = sum(p.dim() > 1 and p.numel() > 0 and p not in told for p in reading.graph.leaves)
    contradicted = len(disagreements(roles, reading))
    del start, reading

    def drop(optimiser_of: type[torch.optim.Optimizer], **settings: float) -> float:
        run = shrunk(family, name)
        model = run.model
        optimiser = optimiser_of(model if optimiser_of is StochasticAGD else model.parameters(), **settings)  # type: ignore[arg-type]
        losses = descend(run.loss, optimiser, steps)
        return losses[0] - losses[-1] if losses[-1] == losses[-1] else float("-inf")

    ours = drop(StochasticAGD)
    best = max(drop(torch.optim.Adam, lr=rate) for rate in rates)
    return Trained(family, name, sum(1 for _ in model.parameters()), unread, contradicted, ours, best)
