"""The cells: each fixes data, network, loss, batch size and number of steps. To add one, add it to `CELLS`."""

from collections.abc import Callable, Iterator

from torch import nn

from autogd.experiments.quality.nets import GRU, NormCNN, flat_mlp, mlp
from autogd.experiments.trust.cell import Cell, Start
from autogd.experiments.trust.other_losses import Bandit, Equation, Ring, W, oscillator, poisson
from autogd.experiments.trust.supervised import Disturbance, Supervised, at_first, spikes, undisturbed

__all__ = ["CELLS", "FAMILIES", "named"]

BATCHES = (1, 2, 4, 8, 16)
FACTORS = (0.001, 10, 100, 1000)  # of the first batch's inputs or loss
SIZES = (0.1, 10)  # of all weights
STANDARD = "MLP 64-64 on digits, batch 32"


def _digits_mlp() -> nn.Module:
    return flat_mlp(64, 64, 64, 10)


def _tumours_mlp() -> nn.Module:
    return mlp(30, 64, 64, 2)


def _small_batches() -> Iterator[Cell]:
    # name, what, data, network, samples in all
    networks: list[tuple[str, str, str, Callable[[], nn.Module], int]] = [
        ("gru", "GRU of width 64 on characters", "text, windows of 16", lambda: GRU(65, 64), 640),
        ("mlp", "MLP 64-64 on digits", "digits", _digits_mlp, 1600),
        ("cnn", "two convolutions with norms on digits", "digits", NormCNN, 1600),
        ("tumours", "MLP 64-64 on breast cancer, 455 rows", "tumours", _tumours_mlp, 1600),
    ]
    for name, what, data, model, samples in networks:
        for batch in BATCHES:
            task = Supervised(data, model, batch, samples // batch)
            yield Cell(f"{name}-{batch}", "small-batches", f"{what}, batch {batch}", task.steps, task)


def _on_digits(
    name: str,
    family: str,
    content: str,
    disturbance: Disturbance = undisturbed,
    start: Start | None = None,
    size: float = 1.0,
    twin: str | None = None,
) -> Cell:
    task = Supervised("digits", _digits_mlp, 32, 300, start, size, disturbance)
    return Cell(name, family, f"{STANDARD}: {content}", task.steps, task, twin)


def _bad_starts() -> Iterator[Cell]:
    starts: list[tuple[str, str, Start]] = [
        ("own", "torch's own weights", "torch"),
        ("ours", "weights of initialise_", "dimensional"),
    ]
    for name, words, start in starts:
        yield _on_digits(name, "bad-starts", f"{words}, undisturbed", start=start)
        for factor in FACTORS:
            content, hit = f"{words}, first inputs × {factor:g}", at_first(inputs=factor)
            yield _on_digits(f"{name}-inputs-{factor:g}", "bad-starts", content, hit, start, twin=name)
        for factor in FACTORS:
            content, hit = f"{words}, first loss × {factor:g}", at_first(loss=factor)
            yield _on_digits(f"{name}-loss-{factor:g}", "bad-starts", content, hit, start, twin=name)
        for size in SIZES:
            content = f"{words}, all × {size:g}"
            yield _on_digits(f"{name}-weights-{size:g}", "bad-starts", content, undisturbed, start, size, twin=name)


def _spikes() -> Iterator[Cell]:
    yield _on_digits("spikes", "spikes", "every 50th loss × 1000", spikes(1e3, every=50))
    yield _on_digits("spike", "spikes", "the loss half way × 1,000,000", spikes(1e6, at=150))


def _uneven_losses() -> Iterator[Cell]:
    for every, words in ((2, "every second loss × 3"), (3, "every third loss × 3")):
        yield _on_digits(f"uneven-{every}", "uneven-losses", words, spikes(3.0, every=every))


def _wrong_labels() -> Iterator[Cell]:
    noisy = Supervised("digits, half of the labels random", _digits_mlp, 32, 450)
    yield Cell("label-noise", "label-noise", f"{STANDARD}: half of the labels random, clean test", noisy.steps, noisy)
    for weights in ("average", "trained"):
        change = Supervised(
            "digits", _digits_mlp, 32, 600, then="digits, every label moved by one", averaged=weights == "average"
        )
        content = f"{STANDARD}: every label moves by one half way; test with the new labels, {weights} weights"
        yield Cell(f"change-{weights}", "task-change", content, change.steps, change)


def _other_losses() -> Iterator[Cell]:
    gan = Ring(600)
    content = f"eight Gaussians on a ring, two MLPs 64-64, gradient penalty; energy distance, at least {gan.floor:g}"
    yield Cell("gan", "gan", content, gan.steps, gan)
    bandit = Bandit(600)
    content = "REINFORCE on a contextual bandit, four actions, MLP 32-32, batch 16; regret"
    yield Cell("bandit", "policy-gradient", content, bandit.steps, bandit)
    for name, residual, exact, words in (
        ("poisson", poisson, lambda x: (W * x).sin(), "−u'' = 4π² sin(2πx)"),
        ("oscillator", oscillator, lambda x: (W * x).cos(), "u'' + 4π²u = 0"),
    ):
        task = Equation(residual, exact, 600)
        content = f"{words}, tanh MLP 32-32, 32 random points; relative L2 error, at least {task.floor:g}"
        yield Cell(name, "physics", content, task.steps, task)


def _fitted_tables() -> Iterator[Cell]:
    for batch in (8, 32):
        task = Supervised("tumours", _tumours_mlp, batch, 600)
        content = f"MLP 64-64 on breast cancer, 455 rows, batch {batch}, fitted exactly"
        yield Cell(f"fitted-{batch}", "fitted-tables", content, task.steps, task)


CELLS: dict[str, Cell] = {
    cell.name: cell
    for family in (_small_batches, _bad_starts, _spikes, _uneven_losses, _wrong_labels, _other_losses, _fitted_tables)
    for cell in family()
}
"""All cells, by name."""

FAMILIES = tuple(dict.fromkeys(cell.family for cell in CELLS.values()))
"""The kinds of difficulty."""


def named(words: tuple[str, ...]) -> list[Cell]:
    """The cells with these names or families; all cells if there are none.

    >>> [cell.name for cell in named(("bandit", "spikes"))]
    ['spikes', 'spike', 'bandit']
    """
    unknown = [word for word in words if word not in CELLS and word not in FAMILIES]
    if unknown:
        known = ", ".join((*FAMILIES, *CELLS))
        raise ValueError(f"cells: {', '.join(unknown)}: not known; choose from {known}")
    return [cell for cell in CELLS.values() if not words or cell.name in words or cell.family in words]
