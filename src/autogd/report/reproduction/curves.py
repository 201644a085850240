"""What the figures share: colours, lines from records, titles, axes and legends."""

import io
import math
import re
import textwrap
from typing import Any

from autogd.training import Run

__all__ = [
    "COLOURS",
    "MARKERS",
    "NAMES",
    "accuracy",
    "band",
    "below",
    "dress",
    "empty",
    "line",
    "mark",
    "picture",
    "wrapped",
]

# distinct for colour-blind readers; in grey the markers tell the lines apart
COLOURS = {"agd": "#0072b2", "agd-stochastic": "#009e73", "adam": "#d55e00", "sgd": "#555555", "sgd-plain": "#cc79a7"}
MARKERS = dict(zip(COLOURS.values(), "oDsv^", strict=True))
MARKED = 6  # about the most markers on a line
PAGE, LEGENDS = 9.2, 1.25  # inches across; factor of the height, for legends below panels
NAMES = {"agd": "AGD", "agd-stochastic": "StochasticAGD (ours)"}
"""What each row of a figure shows."""


def empty(across: float, down: float, title: str, caption: str) -> Any:
    """A figure with its title and, in smaller letters, its settings.

    >>> empty(4, 3, "a title", "a caption").get_suptitle()
    'a title\\na caption'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    # as wide as a page, so that fonts keep their nominal size; legends below panels need extra height
    shrink = min(1.0, PAGE / across)
    tall = down * (shrink * LEGENDS if shrink < 1 else 1)
    figure = Figure(figsize=(across * shrink, tall), dpi=105 if shrink == 1 else 130, layout="constrained")
    figure.suptitle("\n".join(filter(None, (title, caption))), fontsize=9.5)
    return figure


def dress(axes: Any, title: str, x: str = "epoch", y: str = "", legend: bool = True, wrap: int = 42) -> None:
    """Title (in lines of at most `wrap` letters), labels, grid and legend of a panel.

    >>> axes = empty(2, 2, "", "").subplots()
    >>> dress(axes, "a panel", y="objective")
    >>> axes.get_ylabel()
    'objective'
    """
    from matplotlib.ticker import MaxNLocator

    title = re.sub(r"(batch|depth|width) (\d)", "\\1\u00a0\\2", title)  # keep a number next to its word
    axes.set_title(
        "\n".join(textwrap.fill(part, wrap, break_on_hyphens=False) for part in title.split("\n")), fontsize=9
    )
    if x == "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7.5, labelbottom=True, labelleft=True)  # shared axes would hide tick labels
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[1]:
        below(axes, *axes.get_legend_handles_labels())


def below(axes: Any, handles: Any, labels: Any) -> None:
    """A legend below a panel, so that it covers nothing.

    >>> axes = empty(2, 2, "", "").subplots()
    >>> below(axes, axes.plot([1, 2]), ["a line"])
    >>> axes.get_legend().get_texts()[0].get_text()
    'a line'
    """
    from matplotlib.transforms import ScaledTranslation

    across = 1 if max(map(len, labels)) > 16 else 2
    # below the axis' label, however tall the panel is
    place = axes.transAxes + ScaledTranslation(0, -0.42, axes.figure.dpi_scale_trans)
    axes.legend(
        handles, labels, fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=place,
        ncols=across, borderaxespad=0, handlelength=1.6, columnspacing=1.0,
    )  # fmt: skip


def line(axes: Any, run: Run, name: str, factor: float = 1.0, **style: Any) -> None:
    """One quantity of a run over its epochs, if it is recorded.

    >>> from pathlib import Path
    >>> line(None, Run(Path("nowhere")), "objective")
    """
    known = [row for row in run.metrics() if row.get(name) is not None and math.isfinite(row[name])]
    if known:
        marker = MARKERS.get(style.get("color", ""), "o" if len(known) < 4 else "")
        marked = {"marker": marker, "ms": 3.5, "markevery": max(1, len(known) // MARKED)}
        values = [factor * row[name] for row in known]
        axes.plot([row["epoch"] for row in known], values, **{"lw": 1.6, **marked, **style})


def band(axes: Any, run: Run, name: str, colour: str, label: str | None = None, **style: Any) -> None:
    """The mean over the steps of each epoch as a line, and their range as a band.

    >>> from pathlib import Path
    >>> band(None, Run(Path("nowhere")), "learning_rate", "black")
    """
    known = [row for row in run.metrics() if row.get(f"{name}_mean") is not None]
    if known:
        line(axes, run, f"{name}_mean", color=colour, label=label, **style)
        low, high = [row[f"{name}_min"] for row in known], [row[f"{name}_max"] for row in known]
        axes.fill_between([row["epoch"] for row in known], low, high, color=colour, alpha=0.15, lw=0)


def accuracy(axes: Any, run: Run, colour: str, label: str, **style: Any) -> None:
    """Train accuracy as a solid line, test accuracy as a dotted one, in per cent.

    >>> from pathlib import Path
    >>> accuracy(None, Run(Path("nowhere")), "black", "")
    """
    line(axes, run, "train_accuracy", 100, color=colour, label=label, **style)
    line(axes, run, "test_accuracy", 100, color=colour, **{**style, "ls": ":"})


def mark(axes: Any, value: float, text: str, colour: str = "black", above: bool = True) -> None:
    """The paper's number as a thin line across the panel.

    >>> axes = empty(2, 2, "", "").subplots()
    >>> mark(axes, 65.5, "paper 65.5%")
    >>> axes.texts[0].get_text()
    'paper 65.5%'
    """
    axes.axhline(value, color=colour, lw=0.8, ls=(0, (6, 3)), alpha=0.8)
    place = {"xytext": (0, 2 if above else -3), "textcoords": "offset points", "ha": "right"}
    across = axes.get_yaxis_transform()  # x as a fraction of the panel, y in data coordinates
    axes.annotate(
        text, (0.99, value), xycoords=across, color=colour, fontsize=6, va="bottom" if above else "top", **place
    )


def picture(figure: Any) -> bytes:
    """A figure as a PNG of 256 colours, a third of the size of one in full colour.

    >>> picture(empty(1, 1, "", ""))[1:4]
    b'PNG'
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    small = io.BytesIO()
    figure.draw_without_rendering()  # lay out, so that legends outside of panels are in their place
    canvas.draw()
    seen = Image.frombytes("RGBA", canvas.get_width_height(), canvas.buffer_rgba().tobytes())
    seen.convert("RGB").quantize(256).save(small, format="png", optimize=True)
    return small.getvalue()


def wrapped(text: str) -> str:
    """A budget on two lines: the network, and the rest.

    >>> wrapped("FCN depth 2; digits; batch 128")
    'FCN depth 2\\ndigits; batch 128'
    """
    head, _, tail = text.partition("; ")
    return f"{head}\n{tail}"
