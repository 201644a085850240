"""The second table: which theory handles the loss and which the network, with the code or the test that shows it."""

from dataclasses import dataclass

from autogd.report.reproduction.claims import Claim

__all__ = ["HEAD", "THEORIES", "Theory", "claims", "rows"]

HEAD = ("theory", "handles the loss", "handles the network", "shown by")


@dataclass(frozen=True)
class Theory:
    """A line of the table; `places` are the files that show the ticks, from the project's root."""

    name: str
    loss: bool
    network: bool
    places: tuple[str, ...]
    why: str


THEORIES = (
    Theory(
        "mirror descent", True, False,
        ("src/autogd/theory/s3_recover.py", "tests/paper/test_mirror_descent.py"),
        "any convex loss, a model that is linear in its weights",
    ),
    Theory(
        "Gauss-Newton method", True, False,
        ("src/autogd/theory/s3_recover.py", "tests/paper/test_gauss_newton.py"),
        "square loss, the model replaced by its linearisation",
    ),
    Theory(
        "natural gradient descent", True, False,
        ("src/autogd/theory/s3_recover.py", "tests/paper/test_natural_gradient.py"),
        "cross-entropy, the model replaced by its linearisation",
    ),
    Theory(
        "neural tangent kernel", True, False,
        ("tests/experiments/test_theories.py",),
        "any loss, the model replaced by its linearisation at the start",
    ),
    Theory(
        "deep relative trust", False, True,
        ("src/autogd/theory/s4_perturbation/bound.py", "tests/paper/test_lemma_4.py"),
        "bounds the output's change, and says nothing of a loss",
    ),
    Theory(
        "tensor programs", False, True,
        ("src/autogd/baselines.py", "tests/experiments/test_theories.py"),
        "rates under which wide and narrow networks move alike, and nothing of a loss",
    ),
    Theory(
        "automatic gradient descent", True, True,
        ("src/autogd/theory/s5_majorise.py", "tests/paper/test_lemma_5.py", "tests/paper/test_theorem_2.py"),
        "the Bregman divergence of the loss, of the change that deep relative trust allows",
    ),
)  # fmt: skip


def rows() -> list[tuple[str, ...]]:
    """The table's cells, in the order of `HEAD`.

    >>> rows()[-1][:3]
    ('automatic gradient descent', 'yes', 'yes')
    """
    words = {True: "yes", False: "no"}
    return [(t.name, words[t.loss], words[t.network], ", ".join(t.places)) for t in THEORIES]


def claims() -> list[Claim]:
    """One claim per theory, with the files that show its ticks.

    >>> claims()[0].verdict
    'reproduced'
    """
    found = []
    for theory in THEORIES:
        ticks = [what for what, held in (("the loss", theory.loss), ("the network", theory.network)) if held]
        ours = f"{theory.why}: {', '.join(theory.places)}"
        found.append(Claim(theory.name, f"handles {' and '.join(ticks)}", ours, "reproduced", "–"))
    return found
