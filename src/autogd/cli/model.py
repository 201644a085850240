"""Commands about a model of your own: explain and doctor."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

from autogd.cli.output import PICTURES, check_output
from autogd.diagnosis import doctor
from autogd.diagnosis.finding import forward_of
from autogd.reading import explain
from autogd.training.own_code import culprit, make

__all__ = ["Doctor", "Explain", "build"]


@dataclass(frozen=True)
class Explain:
    """Print the atom of each of a model's parameters, its size and its share of the depth.

    example: autogd explain torch.nn:Transformer
    """

    model: tyro.conf.Positional[str]
    """package.module:factory or file.py:factory, a callable without arguments that returns a Module; or a Module"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Print the table."""
        explanation = explain(build(self.model))
        if self.json:
            print(json.dumps(explanation.as_dict(), indent=1))
        else:
            print(explanation)
            print("the words: autogd glossary")
        return 0


def build(place: str) -> nn.Module:
    """The Module that `package.module:factory` returns.

    >>> build("torch.nn:Identity")
    Identity()
    """
    model = make(place, "a Module")
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place}: expected a torch.nn.Module, found a {type(model).__name__}")
    return model


@dataclass(frozen=True)
class Doctor:
    """Examine a training set-up before training: two real steps on a copy, then findings with remedies.

    The exit status is 1 if there is something to mend.

    example: autogd doctor my_package.training:setup --figure width.png
    """

    setup: tyro.conf.Positional[str]
    """package.module:callable, returns (model, loss_fn, batch), or (model, loss_fn, batch, widen) for the width test"""
    full_batch: bool = False
    """if every step sees all of the data: recommend AGD instead of StochasticAGD"""
    figure: Path | None = None
    """the file of the width test's figure"""
    json: bool = False
    """print JSON instead of text"""

    def run(self) -> int:
        """Print the findings; the status is 1 if there is something to mend."""
        if self.figure is not None:
            check_output("--figure", self.figure, PICTURES)
        setup = make(self.setup, "(model, loss_fn, batch)")
        if not isinstance(setup, tuple) or len(setup) not in (3, 4):
            raise ValueError(f"{self.setup}: expected (model, loss_fn, batch) or (model, loss_fn, batch, widen)")
        if not isinstance(setup[0], nn.Module):
            raise ValueError(f"{self.setup}: expected a Module first, found a {type(setup[0]).__name__}")
        if self.figure is not None and len(setup) < 4:
            raise ValueError("--figure: the width test needs a fourth value of the set-up, widen(k)")
        _try(self.setup, *setup[:3])
        if len(setup) == 4:
            _try(f"{self.setup}: widen(1)", _widened(self.setup, setup[3]), *setup[1:3])
        diagnosis = doctor(*setup, full_batch=self.full_batch)
        if self.figure is not None and diagnosis.widths:
            from autogd.report.command_figures import draw_width

            draw_width(diagnosis.widths, self.figure)
        print(json.dumps(diagnosis.as_dict(), indent=1) if self.json else diagnosis)
        return 0 if diagnosis.sound else 1


def _widened(place: str, widen: Any) -> nn.Module:
    model = widen(1) if callable(widen) else None
    if not isinstance(model, nn.Module):
        found = f"widen(1) returns a {type(model).__name__}" if callable(widen) else f"found a {type(widen).__name__}"
        raise ValueError(f"{place}: the fourth value must be widen(k), which returns a Module; {found}")
    return model


@torch.no_grad()
def _try(place: str, model: nn.Module, loss_fn: Callable[..., Any], batch: Any) -> None:
    """If model, batch and loss do not fit together, raise an error that names the two."""
    if not isinstance(batch, Mapping) and not (isinstance(batch, list | tuple) and len(batch) == 2):
        raise ValueError(f"{place}: the batch must be a pair (inputs, targets) or a mapping of keyword arguments")
    what = "the model does not take the batch"
    try:
        output = forward_of(copy.deepcopy(model), batch)
        what = "the loss does not take the model's output and the targets"
        loss = loss_fn(output) if isinstance(batch, Mapping) else loss_fn(output, batch[1])
    except Exception as error:
        if culprit(error) is not None:
            raise
        raise ValueError(f"{place}: {what}: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    if not isinstance(loss, torch.Tensor):
        raise ValueError(f"{place}: the loss must be a tensor, found a {type(loss).__name__}")
