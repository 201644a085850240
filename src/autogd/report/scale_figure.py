"""What a step costs a rank, drawn over the number of ranks."""

from collections.abc import Mapping, Sequence

from autogd.experiments.scale.cost import Cost
from autogd.report.figures import png_with_legend, series_styles

__all__ = ["draw_scale"]


def draw_scale(found: Sequence[Cost], counted: Sequence[Mapping[str, int]] = ()) -> bytes:
    """Bytes received and FLOPs of the rank that has the most, as a PNG.

    Args:
        found: the model's costs.
        counted: what was counted on real ranks, with `ranks`, `received` and `flops`.

    >>> from autogd.experiments.scale.cost import Load
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
