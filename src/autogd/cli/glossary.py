"""Print the ten words that the other commands use, and their meanings.

example: autogd glossary
"""

import json
import textwrap
from dataclasses import dataclass

__all__ = ["WORDS", "Options", "markdown", "run"]

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
class Options:
    """What `autogd glossary` takes."""

    json: bool = False
    """print JSON instead of text"""


def run(options: Options) -> int:
    """Print the words."""
    if options.json:
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
