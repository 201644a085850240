"""Commands that help with the others: glossary and completion."""

import json
import tempfile
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro

__all__ = ["WORDS", "Completion", "Glossary", "markdown", "script"]

WORDS = {
    "atom": "A parameter's role in the theory: matrix, kernel, embedding, bias or gain. It says how the tensor is cut "
    "into linear maps, how a change of it is measured, and which size it should have.",
    "depth L": "The number of layers that share a step. A matrix or kernel counts 1, a bias or gain less.",
    "share": "A parameter's part of the depth, and so of every step. All shares add up to one.",
    "target, size": "The target is the size that keeps activations at a root-mean-square of one; the size is what the "
    "weight has now: its largest singular value.",
    "Prescription 1": "The paper's rule for sizes: a weight from d_in to d_out has the size √(d_out/d_in), inputs have "
    "the norm √d_in. `initialise_(model)` starts there.",
    "η": "The relative size of a step, `optimiser.learning_rate`. In one step a layer moves by η times its share of "
    "its target. It is derived, not set; it is not comparable with a learning rate of Adam or SGD.",
    "G": "The gradient summary, `optimiser.gradient_summary`: by how much the loss falls per unit of η, as far as the "
    "gradient can tell. AGD derives η from it.",
    "averaged weights": "A mean of the weights over the last part of training. They are better than the weights in "
    "training; `with optimiser.averaged():` puts them into the model. Evaluate and ship them.",
    "update size": "How far a step moved the weights, ‖ΔW‖/‖W‖, as a mean over the layers. It is the same quantity for "
    "every optimiser.",
    "noise floor": "Rounding leaves a small gradient where the true one is zero, as in a bias before a norm layer. "
    "Such a gradient does not move its weight.",
}
"""Each word and its meaning."""


@dataclass(frozen=True)
class Glossary:
    """Print the ten words that the other commands use, and their meanings.

    example: autogd glossary
    """

    json: bool = False
    """print JSON instead of text"""

    def run(self) -> int:
        """Print the words."""
        if self.json:
            print(json.dumps(WORDS, ensure_ascii=False, indent=1))
        else:
            for word, meaning in WORDS.items():
                print(word)
                print(textwrap.fill(meaning, 78, initial_indent="  ", subsequent_indent="  "))
        return 0


def markdown() -> str:
    """The words as a page of the site, docs/glossary.md.

    >>> markdown().splitlines()[0]
    '# Glossary'
    """
    lines = [
        "# Glossary",
        "",
        "The ten words of `explain`, `doctor`, `train` and `report`; `autogd glossary` prints them.",
    ]
    for word, meaning in WORDS.items():
        lines += ["", f"**{word}**: {meaning}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Completion:
    """Print a script for a shell, to complete the commands and their options.

    example: autogd completion bash >> ~/.bashrc
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """which shell"""
    json: bool = False
    """print JSON instead of the bare script"""

    def run(self) -> int:
        """Print the script."""
        text = script(self.shell)
        print(json.dumps({"shell": self.shell, "script": text}) if self.json else text)
        return 0


def script(shell: str) -> str:
    """The shell's completion script, for every command.

    >>> "--optimiser" in script("bash")
    True
    """
    from autogd.cli.main import COMMANDS, find  # imported late: main imports this file

    commands = [
        Annotated[find(name)[0], tyro.conf.subcommand(name=name, description=purpose)]
        for name, purpose in COMMANDS.items()
    ]
    every: Any = Union[tuple(commands)]  # noqa: UP007  # `|` does not take a list
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "script"
        with suppress(SystemExit):  # tyro exits after it has written the script
            tyro.cli(every, prog="autogd", args=["--tyro-write-completion", shell, str(written)])
        return written.read_text()
