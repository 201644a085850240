"""The width test as a figure."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["draw"]


def draw(moves: Mapping[int, float], path: Path) -> None:
    """Draw how far the first step moves the output, against the width.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw({1: 0.1, 2: 0.1}, Path(folder) / "width.png")
    ...     (Path(folder) / "width.png").exists()
    True
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(list(moves), list(moves.values()), "o-", color="#0b6fb8", lw=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(moves), [f"×{factor}" for factor in moves])
    axes.minorticks_off()
    axes.set_ylim(0, 1.3 * max(moves.values()))
    axes.set_xlabel("width of the network")
    axes.set_ylabel("root-mean-square move of the output")
    axes.set_title("AGD's first step, at several widths:\na flat line is right", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
