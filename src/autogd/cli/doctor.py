"""Look at a training set-up before it is trained: two real steps on a copy, then findings with remedies.

example: autogd doctor my_package.training:setup --figure width.png
"""

import importlib
import json as jsonlib
from dataclasses import dataclass
from pathlib import Path

import tyro

from autogd.diagnosis import doctor

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd doctor` takes."""

    setup: tyro.conf.Positional[str]
    """package.module:callable, returns (model, loss_fn, batch), or (model, loss_fn, batch, widen) for the width test"""
    figure: Path | None = None
    """where the width test's figure goes"""
    json: bool = False
    """print JSON instead of text"""


def run(options: Options) -> int:
    """Print the findings; there being some is not a failure of the command."""
    package, colon, name = options.setup.partition(":")
    if not colon:
        raise ValueError(f"{options.setup}: expected package.module:callable")
    try:
        setup = getattr(importlib.import_module(package), name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{options.setup}: {error}") from error
    if not isinstance(setup, tuple) or len(setup) not in (3, 4):
        raise ValueError(f"{options.setup}: expected (model, loss_fn, batch) or (model, loss_fn, batch, widen)")
    diagnosis = doctor(*setup)
    if options.figure is not None:
        if not diagnosis.widths:
            raise ValueError("figure: the width test needs a fourth value of the set-up, widen(k)")
        from autogd.report.width import draw

        draw(diagnosis.widths, options.figure)
    print(jsonlib.dumps(diagnosis.as_dict(), indent=1) if options.json else diagnosis)
    return 0
