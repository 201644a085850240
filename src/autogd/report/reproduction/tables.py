"""The paper's two tables: optimisers, with memory and scaling as measured; and theories, with what they handle."""

from dataclasses import dataclass
from typing import Any

from autogd import baselines
from autogd.experiments.optimisers_table import ROWS, SHAPES, bytes_per_weight
from autogd.report.figures import COLOURS as FIGURE_COLOURS
from autogd.report.reproduction.curves import NAMES, dress, empty
from autogd.report.reproduction.reading import Runs, best, final, moving, over_grid
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, tuned, verdict

__all__ = [
    "OPTIMISERS_HEAD",
    "THEORIES",
    "THEORIES_HEAD",
    "Theory",
    "draw",
    "optimiser_claims",
    "optimisers",
    "second_row",
    "theories",
    "theory_claims",
]

OPTIMISERS_HEAD = (
    "optimiser",
    "settings needed",
    "width scaling",
    "depth scaling",
    "schedule",
    "bytes per weight",
    "× weights",
)
TRAINS = 0.95  # a network that outputs zero has an objective of 1
STARTS = {"dimensional": "AGD's start", "torch": "torch's start"}


def optimisers(runs: Runs) -> list[tuple[str, ...]]:
    """The cells of the table of optimisers, in the order of `OPTIMISERS_HEAD`.

    >>> [row[-1] for row in optimisers({})]
    ['3.00 (the paper: 3)', '2.00 (the paper: 2)', '1.00 (the paper: 1)', '1.00 (the paper: 1)', '2.50']
    """
    found = []
    for row in ROWS:
        rated = baselines.entry(row.optimiser).rated
        measured = bytes_per_weight(row.optimiser)
        cells = [row.title, "learning rate" if rated else "none"]
        cells += [_moves(runs, row.optimiser, shape) for shape in ("wide", "deep")]
        cells += ["by hand" if rated else "automatic", f"{measured:.2f}"]
        found.append((*cells, f"{measured / 4:.2f}" + (f" (the paper: {row.memory})" if row.memory else "")))
    return found


def draw(runs: Runs) -> Any:
    """Objective against learning rate for each optimiser, on three networks; AGD dotted above, StochasticAGD below."""
    config = next((run.config() for run in runs.values()), None)
    said = f"digits, {config.epochs} epochs, batch {config.batch_size}" if config else ""
    what = "Does the best learning rate move with width and depth? AGD (above) and StochasticAGD (below) have none"
    figure = empty(11, 7.4, what, said)
    for panels, ours in zip(figure.subplots(2, 3, sharey=True), NAMES, strict=True):
        _row(panels, runs, ours)
    return figure


def _row(panels: Any, runs: Runs, ours: str) -> None:
    for axes, row in zip(panels, ROWS[:3], strict=True):
        for i, (name, (depth, width)) in enumerate(SHAPES.items()):
            grid = over_grid(runs, f"optimisers-table/{name}-{row.optimiser}")
            label = f"depth {depth}, width {width}"
            values = [final(run, "objective") for run in grid.values()]
            axes.plot(list(grid), values, marker="os^"[i], ms=4, color=FIGURE_COLOURS[i], label=label)
            mine = runs.get(f"optimisers-table/{name}-{ours}")
            if mine:
                axes.axhline(final(mine, "objective"), color=FIGURE_COLOURS[i], lw=1.2, ls=":")
        axes.set_xscale("log")
        axes.set_ylim(-0.05, 1.2)  # keep objectives near zero visible
        start = STARTS[baselines.entry(row.optimiser).start]
        dress(axes, f"{row.title}, from {start}\ndotted: {NAMES[ours]}", x="learning rate", y="objective, last epoch")


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD on the three networks, compared with the best of every grid.

    >>> second_row({})
    []
    """
    rivals = [row.optimiser for row in ROWS if baselines.entry(row.optimiser).rated]
    prefixes = {shape: f"optimisers-table/{shape}" for shape in SHAPES}
    return [
        compare(_sizes(shape), what, runs[f"{prefix}-agd"], runs[f"{prefix}-{OURS}"], tuned(runs, prefix, rivals))
        for shape, prefix in prefixes.items()
        if f"{prefix}-{OURS}" in runs
        for what in ("objective", "test_accuracy")
    ]


def optimiser_claims(runs: Runs) -> list[Claim]:
    """Claims about memory, width and depth."""
    found = []
    for row in (row for row in ROWS if row.memory):
        measured = bytes_per_weight(row.optimiser) / 4
        found.append(
            Claim(
                f"memory of {row.title}, weights and state",
                f"{row.memory}× the weights",
                f"{measured:.2f}× ({4 * measured:.2f} bytes per weight, after one step)",
                verdict(round(measured, 2) == row.memory, small=False),
                "FCN depth 3, width 256, float32",
            )
        )
    config = next(iter(runs.values())).config()
    said = f"digits, {config.epochs} epochs, batch {config.batch_size}"
    mine = {shape: runs[f"optimisers-table/{shape}-agd"] for shape in SHAPES}
    small = moving(*mine.values(), what="objective")
    expected = {"adam": (False, False), "sgd": (False, False), "sgd-mup-plain": (True, False)}
    for row in ROWS[:3]:
        wide, deep = (_steady(runs, row.optimiser, shape) for shape in ("wide", "deep"))
        words = [f"{_moves(runs, row.optimiser, shape)} ({_sizes(shape)})" for shape in ("wide", "deep")]
        paper = ", ".join(
            f"{'keeps' if kept else 'moves'} with {what}"
            for kept, what in zip(expected[row.optimiser], ("width", "depth"), strict=True)
        )
        agree = [a == b for a, b in zip((wide, deep), expected[row.optimiser], strict=True)]
        found.append(
            Claim(
                f"the best rate of {row.title}, wider and deeper",
                paper,
                "; ".join(words),
                verdict(all(agree), any(agree), small),
                said,
            )
        )
    ends = [f"{final(run, 'objective'):.3f} ({_sizes(shape)})" for shape, run in mine.items()]
    found.append(
        Claim(
            "AGD scales with width and depth, nothing set",
            "trains all",
            f"objective {', '.join(ends)}",
            verdict(all(final(run, "train_accuracy") > 0.5 for run in mine.values()), small=small),
            said,
        )
    )
    return found


def _best(runs: Runs, optimiser: str, shape: str) -> float | None:
    """The best rate; None if no rate of the grid trains."""
    pair = best(runs, f"optimisers-table/{shape}-{optimiser}")
    return pair[0] if pair and final(pair[1], "objective") < TRAINS else None


def _steady(runs: Runs, optimiser: str, shape: str) -> bool:
    rate = _best(runs, optimiser, "base")
    return rate is not None and rate == _best(runs, optimiser, shape)


def _moves(runs: Runs, optimiser: str, shape: str) -> str:
    """The best rate on the base network and on another, as text."""
    if not baselines.entry(optimiser).rated:
        mine = [runs.get(f"optimisers-table/{name}-{optimiser}") for name in ("base", shape)]
        return "nothing to set" + "".join(
            f"{word} {final(run, 'objective'):.3f}"
            for word, run in zip((": objective", " →"), mine, strict=True)
            if run
        )
    a, b = (_best(runs, optimiser, name) for name in ("base", shape))
    if a is None or b is None:
        return "no rate of the grid trains" if a is None else f"best rate {a:g} → none of the grid trains"
    return f"best rate {a:g} → {b:g}" if a != b else f"best rate stays {a:g}"


def _sizes(shape: str) -> str:
    depth, width = SHAPES[shape]
    return f"depth {depth}, width {width}"


THEORIES_HEAD = ("theory", "handles the loss", "handles the network", "shown by")


@dataclass(frozen=True)
class Theory:
    """A line of the table; `places` are the code and the tests that show its ticks, from the project's root."""

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
        ("src/autogd/theory/s4_bound.py", "tests/paper/test_lemma_4.py"),
        "bounds the change of the output; says nothing about a loss",
    ),
    Theory(
        "tensor programs", False, True,
        ("src/autogd/baselines.py", "tests/experiments/test_theories.py"),
        "gives rates at which wide and narrow networks change alike; says nothing about a loss",
    ),
    Theory(
        "automatic gradient descent", True, True,
        ("src/autogd/theory/s5_majorise.py", "tests/paper/test_lemma_5.py", "tests/paper/test_theorem_2.py"),
        "the Bregman divergence of the loss, of the change that deep relative trust allows",
    ),
)  # fmt: skip


def theories() -> list[tuple[str, ...]]:
    """The cells of the table of theories, in the order of `THEORIES_HEAD`.

    >>> theories()[-1][:3]
    ('automatic gradient descent', 'yes', 'yes')
    """
    words = {True: "yes", False: "no"}
    return [(t.name, words[t.loss], words[t.network], ", ".join(t.places)) for t in THEORIES]


def theory_claims() -> list[Claim]:
    """One claim per theory, with the code and the tests that show its ticks.

    >>> theory_claims()[0].verdict
    'reproduced'
    """
    found = []
    for theory in THEORIES:
        ticks = [what for what, held in (("the loss", theory.loss), ("the network", theory.network)) if held]
        ours = f"{theory.why}: {', '.join(theory.places)}"
        found.append(Claim(theory.name, f"handles {' and '.join(ticks)}", ours, "reproduced", "–"))
    return found
