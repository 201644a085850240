"""Ours beside tuned rivals in one small figure: one column per workload, one marker per optimiser."""

from collections.abc import Sequence

from autogd.experiments.quality.summary import Standing
from autogd.report.reproduction.curves import empty, picture

__all__ = ["draw_versus"]

# colour, marker, size, name: the markers are distinct in grey
_STYLES = {
    "agd-stochastic": ("#0b3d91", "*", 13.0, "StochasticAGD, nothing set"),
    "adam": ("#e6730a", "D", 6.0, "Adam, best of its grid"),
    "muon": ("#c2185b", "^", 7.0, "Muon, best of its grid"),
    "sgd": ("#333333", "s", 5.5, "SGD, best of its grid"),
    "schedulefree-adamw": ("#8a8a8a", "v", 5.5, "schedule-free AdamW, as it comes"),
    "prodigy": ("#8a8a8a", "P", 6.5, "Prodigy, as it comes"),
}
_LOW, _HIGH = 0.7, 1.3  # beyond these ratios a marker is an arrow at the edge


def draw_versus(every: Sequence[Standing]) -> bytes:
    """Validation loss relative to tuned Adam's, for each workload.

    >>> draw_versus([Standing("gpt", "adam", 0.1, "cosine", 5, False, 3, 0, 1.5, 0.01, 0.5, 9.0, 1.0, 1.0, 1.0)])[1:4]
    b'PNG'
    """
    names = list(dict.fromkeys(standing.workload for standing in every))
    figure = empty(8.6, 3.9, "Validation loss after the same number of steps, over tuned Adam's (lower is better)", "")
    axes = figure.subplots()
    for standing in every:
        if standing.ratio is None or standing.optimiser not in _STYLES:
            continue
        colour, marker, size, name = _STYLES[standing.optimiser]
        held = min(max(standing.ratio, _LOW), _HIGH)
        ours = standing.optimiser == "agd-stochastic"
        shape = marker if ours or held == standing.ratio else "v" if held == _LOW else "^"
        x = names.index(standing.workload) + 0.1 * (list(_STYLES).index(standing.optimiser) - 2.5)
        axes.plot(
            x, held, color=colour, marker=shape, ms=size, ls="none", mec="black" if ours else colour, mew=0.5,
            zorder=4 if ours else 2, clip_on=False, label=name,
        )  # fmt: skip
        if ours and held != standing.ratio:
            axes.annotate(f"{standing.ratio:.2g}", (x, held), (8, 2), textcoords="offset points", fontsize=8)
    axes.axhline(1, color=_STYLES["adam"][0], lw=0.9, zorder=1)
    for number in range(0, len(names), 2):
        axes.axvspan(number - 0.5, number + 0.5, color="black", alpha=0.045, lw=0)
    axes.set_xticks(range(len(names)), names, rotation=25, fontsize=9)
    axes.tick_params(axis="y", labelsize=9)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(_LOW, _HIGH)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return picture(figure)
