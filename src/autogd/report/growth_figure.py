"""A figure of how a step's time and memory grow."""

from collections.abc import Sequence

from autogd.experiments.speed.growth import Point
from autogd.report.figures import png_with_legend, series_styles

__all__ = ["draw_growth"]


def draw_growth(points: Sequence[Point]) -> bytes:
    """Time and memory of a step, against weights and against tensors, as a PNG.

    >>> draw_growth([Point("weights", "agd", 100, 1, 1e-3, 400)])[1:4]
    b'PNG'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    figure = Figure(figsize=(8.6, 6.4), dpi=130, layout="constrained")
    names = list(dict.fromkeys(point.optimiser for point in points))
    titles = {"seconds": "seconds a step", "peak": "bytes held during a step"}
    for row, (quantity, title) in enumerate(titles.items()):
        for column, along in enumerate(("weights", "tensors")):
            if all(point.along != along for point in points):
                continue
            axes = figure.add_subplot(2, 2, 2 * row + column + 1)
            for optimiser, style in zip(names, series_styles(len(names)), strict=True):
                chosen = [p for p in points if p.optimiser == optimiser and p.along == along]
                counts = [getattr(p, along) for p in chosen]
                axes.plot(
                    counts, [getattr(p, quantity) for p in chosen], marker="o", label=optimiser, markersize=3, **style
                )
            axes.set_xscale("log")
            if quantity == "peak":
                axes.set_yscale("symlog", linthresh=100)
                axes.set_ylim(bottom=0)
            else:
                axes.set_yscale("log")
            axes.set_title(f"{title}, against {along}", fontsize=9)
            axes.tick_params(which="both", labelsize=8)
            axes.grid(alpha=0.3)
    return png_with_legend(figure)
