"""Print the atom of each of a model's parameters, its size and its share of the depth.

example: autogd explain torch.nn:Transformer
"""

import json
from dataclasses import dataclass

import tyro
from torch import nn

from autogd.reading import explain
from autogd.training.own_code import make

__all__ = ["Options", "build", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd explain` takes."""

    model: tyro.conf.Positional[str]
    """package.module:factory or file.py:factory, a callable without arguments that returns a Module; or a Module"""
    json: bool = False
    """print JSON instead of a table"""


def build(place: str) -> nn.Module:
    """The Module that `package.module:factory` returns.

    >>> build("torch.nn:Identity")
    Identity()
    """
    model = make(place, "a Module")
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place}: expected a torch.nn.Module, found a {type(model).__name__}")
    return model


def run(options: Options) -> int:
    """Print the table."""
    explanation = explain(build(options.model))
    if options.json:
        print(json.dumps(explanation.as_dict(), indent=1))
    else:
        print(explanation)
        print("the words: autogd glossary")
    return 0
