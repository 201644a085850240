"""Catalogue and graph together: what each parameter is once a forward pass was read."""

from collections.abc import Sequence
from dataclasses import replace

from autogd.geometry.atom import Atom
from autogd.reading.catalogue import Role
from autogd.reading.graph import Reading, same_cut

__all__ = ["disagreements", "merged"]


def merged(roles: Sequence[Role], reading: Reading) -> list[Role]:
    """The roles after a forward pass: the pass decides what the catalogue does not know, and refines what it knows.

    A product that is split afterwards packs several maps, which the catalogue cannot see. If the two contradict each
    other, the catalogue stands, and `disagreements` tells. What you registered always stands.

    Args:
        roles: what `read_roles(model, readout=False)` gives.
        reading: of the pass.

    >>> import torch
    >>> from torch import nn
    >>> from autogd.reading.graph import read_graph
    >>> from autogd.reading.catalogue import read_roles
    >>> layer = nn.Linear(4, 6, bias=False)
    >>> gate, up = layer(torch.ones(1, 4)).chunk(2, -1)
    >>> reading = read_graph(gate * up, dict(layer.named_parameters()))
    >>> [(role.atom.parts, role.source) for role in merged(read_roles(layer, readout=False), reading)]
    [(2, 'graph')]
    """
    result = []
    for role in roles:
        told = reading.atoms.get(role.parameter)
        if told is not None and role.source != "you":
            atom, free = role.atom, role.atom.free or told.free
            if role.source == "shape":
                role = replace(role, atom=told, source="graph")
            elif not same_cut(atom, told) and not _contradicts(atom, told, reading.candidates[role.parameter]):
                role = replace(role, atom=replace(told, start=atom.start), source="graph")
            role = replace(role, atom=replace(role.atom, free=free))
        result.append(role)
    return result


def disagreements(roles: Sequence[Role], reading: Reading) -> list[tuple[Role, Atom]]:
    """The roles of the catalogue that a forward pass cuts otherwise, each with the pass's atom."""
    return [
        (role, told)
        for role in roles
        if role.source == "catalogue"
        and (told := reading.atoms.get(role.parameter)) is not None
        and _contradicts(role.atom, told, reading.candidates[role.parameter])
        # only the catalogue knows what multiplies a product by a constant (T5, a low-rank pair), and whether a
        # table that is sliced was meant to be looked up
        and not same_cut(role.atom, _counted_like(told, role.atom))
    ]


def _contradicts(known: Atom, told: Atom, candidates: Sequence[Atom]) -> bool:
    """Whether the pass contradicts the catalogue, and does not just add maps in one tensor, or one more use."""
    alike = known.kind == told.kind and known.fan_in == told.fan_in and known.depth_share == told.depth_share
    more = alike and told.parts > known.parts and known.fan_out * known.parts == told.fan_out * told.parts
    return not more and not any(same_cut(known, atom) for atom in candidates)


def _counted_like(told: Atom, known: Atom) -> Atom:
    return replace(told, scale=known.scale, depth_share=known.depth_share, stack=known.stack)
