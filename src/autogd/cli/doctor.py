"""Look at a training set-up before it is trained: two real steps on a copy, then findings with remedies.

The exit status is 1 if there is something to mend.

example: autogd doctor my_package.training:setup --figure width.png
"""

import json as jsonlib
from dataclasses import dataclass
from pathlib import Path

import tyro
from torch import nn

from autogd.cli.output import PICTURES, check_output
from autogd.diagnosis import doctor
from autogd.training.own_code import make

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd doctor` takes."""

    setup: tyro.conf.Positional[str]
    """package.module:callable, returns (model, loss_fn, batch), or (model, loss_fn, batch, widen) for the width test"""
    full_batch: bool = False
    """every step is to see all of the data: AGD is recommended then, StochasticAGD otherwise"""
    figure: Path | None = None
    """where the width test's figure goes"""
    json: bool = False
    """print JSON instead of text"""


def run(options: Options) -> int:
    """Print the findings; the status is 1 if any is to be mended."""
    if options.figure is not None:
        check_output("--figure", options.figure, PICTURES)
    setup = make(options.setup, "(model, loss_fn, batch)")
    if not isinstance(setup, tuple) or len(setup) not in (3, 4):
        raise ValueError(f"{options.setup}: expected (model, loss_fn, batch) or (model, loss_fn, batch, widen)")
    if not isinstance(setup[0], nn.Module):
        raise ValueError(f"{options.setup}: expected a Module first, found a {type(setup[0]).__name__}")
    if options.figure is not None and len(setup) < 4:
        raise ValueError("--figure: the width test needs a fourth value of the set-up, widen(k)")
    diagnosis = doctor(*setup, full_batch=options.full_batch)
    if options.figure is not None and diagnosis.widths:
        from autogd.report.width import draw

        draw(diagnosis.widths, options.figure)
    print(jsonlib.dumps(diagnosis.as_dict(), indent=1) if options.json else diagnosis)
    return 0 if diagnosis.sound else 1
