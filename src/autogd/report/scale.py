"""What a step costs a rank: as a table, and as a figure over the number of ranks."""

from collections.abc import Mapping, Sequence

from autogd.experiments.scale import Cost
from autogd.report.figures import png_with_legend, series_styles

__all__ = ["COLUMNS", "cell", "draw_scale", "markdown"]

COLUMNS = ("sent", "received", "flops", "peak")


def markdown(found: Sequence[Cost]) -> str:
    """The largest value over the ranks, and in brackets the mean, as Markdown."""
    lines = [
        "| ranks | method | sent | received | FLOPs | state and buffers |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for cost in found:
        cells = (" ".join(cell(cost, quantity)) for quantity in COLUMNS)
        lines.append(f"| {cost.ranks:,} | {cost.method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(cost: Cost, quantity: str) -> tuple[str, str]:
    """The largest value over the ranks, and the mean.

    >>> from autogd.experiments.scale import Load
    >>> cell(Cost("ours", "fsdp", 2, (Load(0, 1000, 0, 0, 0, 0), Load(1, 2000, 0, 0, 0, 0))), "sent")
    ('2 kB', '(1.5 kB)')
    """
    unit = "" if quantity == "flops" else "B"
    return _short(cost.most(quantity), unit), f"({_short(cost.mean(quantity), unit)})"


def _short(number: float, unit: str) -> str:
    """A number with three digits and a prefix.

    >>> _short(24_500_000_000, "B")
    '24.5 GB'
    """
    for prefix in ("", "k", "M", "G", "T", "P"):
        if number < 999.5 or prefix == "P":
            return f"{number:.3g} {prefix}{unit}".strip()
        number /= 1000
    raise AssertionError


def draw_scale(found: Sequence[Cost], counted: Sequence[Mapping[str, int]] = ()) -> bytes:
    """Bytes received and FLOPs, the largest over the ranks, as a PNG.

    Args:
        found: the planned costs.
        counted: the counts on real ranks, with `ranks`, `received` and `flops`.

    >>> from autogd.experiments.scale import Load
    >>> draw_scale([Cost("ours", "fsdp", n, (Load(0, 1, 1, 1, 1, 1),)) for n in (1, 2)])[1:4]
    b'PNG'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    figure = Figure(figsize=(9.2, 3.6), dpi=130, layout="constrained")
    methods = list(dict.fromkeys(cost.method for cost in found))
    for place, (quantity, title) in enumerate({"received": "bytes received", "flops": "FLOPs"}.items(), 1):
        axes = figure.add_subplot(1, 2, place)
        for method, style in zip(methods, series_styles(len(methods)), strict=True):
            chosen = sorted((cost for cost in found if cost.method == method), key=lambda cost: cost.ranks)
            points = [(cost.ranks, cost.most(quantity)) for cost in chosen if cost.most(quantity)]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", label=method, markersize=3, **style)
        most: dict[int, int] = {}
        for row in counted:
            most[row["ranks"]] = max(most.get(row["ranks"], 0), row[quantity])
        some = {ranks: value for ranks, value in most.items() if value}
        if some:
            axes.plot(list(some), list(some.values()), "kx", label="counted on gloo processes", markersize=8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("ranks", fontsize=8)
        axes.set_title(f"{title} in a step, of the rank that has the most", fontsize=9)
        axes.tick_params(which="both", labelsize=8)
        axes.grid(alpha=0.3)
    return png_with_legend(figure)
