"""The parts of the front page that come from records: verdicts, costs, what is not won, and a small figure."""

from collections.abc import Sequence

from autogd.experiments.quality.summary import Standing, tally
from autogd.experiments.speed.step_cost import Share
from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.summary import RECOVERY, count
from autogd.experiments.trust.summary import Standing as TrustStanding
from autogd.report.markdown import grid
from autogd.report.reproduction.curves import empty, picture

__all__ = ["costs", "draw_versus", "not_below", "not_won", "verdicts"]

NAMES = {
    "agd-stochastic": "StochasticAGD", "agd-averaged": "AGD, averaging", "agd": "AGD", "adam": "Adam", "muon": "Muon",
    "schedulefree-adamw": "schedule-free AdamW", "prodigy": "Prodigy", "soap": "SOAP",
}  # fmt: skip
COSTS = {
    **{name: NAMES[name] for name in ("agd-stochastic", "agd-averaged", "agd", "adam")},
    "adam-fused": "Adam, fused",
    "muon": NAMES["muon"],
}
TUNED = ("adam", "muon", "sgd")
_STYLES = {
    "agd-stochastic": ("#0b3d91", "*", 13.0, "StochasticAGD, nothing set"),
    "adam": ("#e6730a", "D", 6.0, "Adam, best of its grid"),
    "muon": ("#c2185b", "^", 7.0, "Muon, best of its grid"),
    "sgd": ("#333333", "s", 5.5, "SGD, best of its grid"),
    "schedulefree-adamw": ("#8a8a8a", "v", 5.5, "schedule-free AdamW, at its defaults"),
    "prodigy": ("#8a8a8a", "P", 6.5, "Prodigy, at its defaults"),
}
_LOW, _HIGH = 0.7, 1.3  # a marker beyond these ratios becomes an arrow at the edge


def verdicts(quality: Sequence[Standing], trust: Sequence[TrustStanding]) -> str:
    """Compare StochasticAGD with tuned and untuned rivals, one line each.

    >>> one, two = (Standing("gpt", name, None, None, 0, False, 3, 0, loss, 0.1, None, 1.0)
    ...             for name, loss in (("agd-stochastic", 1.0), ("adam", 2.0)))
    >>> verdicts([one, two], [])
    '- Against Adam at the best of a grid of rates and schedules: lower loss on 1 of 1 workloads, within the spread...'
    """
    lines = []
    for each in tally(quality):
        if each.rival in NAMES and not each.rival.startswith("agd"):
            name, total = NAMES[each.rival], each.below + each.within + each.above
            which = "at the best of a grid of rates and schedules" if each.rival in TUNED else "at its defaults"
            lines.append(
                f"- Against {name} {which}: lower loss on {each.below} of {total} workloads, within the spread on "
                f"{each.within}, higher on {each.above}."
            )
    if trust:
        every = count(trust)[-1]
        starts = [each.recovery for each in trust if each.recovery is not None]
        adam = [each.adam_recovery for each in trust if each.adam_recovery is not None]
        lines.append(
            f"- On {every.won + every.even + every.lost} difficult cells (batches of one, bad starts, spikes, changing "
            f"tasks), against the best of three Adams: won {every.won}, even {every.even}, lost {every.lost}."
        )
        lines.append(
            f"- Of {len(starts)} disturbed starts, {_recovered(starts)} end within {RECOVERY - 1:.0%} of the "
            f"undisturbed loss (Adam: {_recovered(adam)})."
        )
    return "\n".join(lines)


def costs(shares: Sequence[Share]) -> str:
    """Time of a training step (forward and backward pass included) relative to Adam's, as Markdown.

    >>> rows = [Share("gpt", 32, "agd-stochastic", 0.4, 0.2, 0.5), Share("gpt", 32, "adam", 0.4, 0.1, 0.25)]
    >>> print(costs(rows))
    | network | batch | StochasticAGD | Adam |
    | --- | --- | --- | --- |
    | `gpt` | 32 | 1.20 | 1 (500 ms) |
    """
    table = {(each.network, each.optimiser): each.training + each.step for each in shares}
    batches = {each.network: each.batch for each in shares}
    columns = [name for name in COSTS if any(optimiser == name for _, optimiser in table)]
    rows = []
    for network, batch in batches.items():
        adam = table[network, "adam"]
        cells = [f"{table[network, name] / adam:.2f}" for name in columns]
        cells[columns.index("adam")] = f"1 ({1e3 * adam:.0f} ms)"
        rows.append((f"`{network}`", str(batch), *cells))
    return "\n".join(grid(("network", "batch", *(COSTS[name] for name in columns)), rows)) if rows else ""


def not_won(trust: Sequence[TrustStanding]) -> str:
    """The cells of `bench trust` that StochasticAGD does not win, worst first, as Markdown.

    >>> not_won([TrustStanding("gan", "gan", "agd-stochastic", None, None, 1.26, "lost", None, None)]).splitlines()[2]
    '| `gan` | eight Gaussians on a ring, ... | 1.26 | lost |'
    """
    rest = sorted(
        (each for each in trust if each.verdict != "won" and each.ratio is not None), key=_ratio, reverse=True
    )
    rows = [(f"`{each.cell}`", CELLS[each.cell].content, f"{_ratio(each):.2f}", each.verdict or "") for each in rest]
    return "\n".join(grid(("cell", "what is trained", "loss ÷ best Adam's", "verdict"), rows)) if rows else ""


def not_below(quality: Sequence[Standing]) -> str:
    """The workloads on which a rival ends below StochasticAGD by more than the spread, as Markdown.

    >>> one, two = (Standing("gpt", name, None, None, 0, False, 3, 0, loss, 0.1, None, 1.0)
    ...             for name, loss in (("agd-stochastic", 2.0), ("adam", 1.0)))
    >>> not_below([one, two]).splitlines()[2]
    '| `gpt` | Adam | 2.00 |'
    """
    ours = {each.workload: each for each in quality if each.optimiser == "agd-stochastic"}
    rows = []
    for each in quality:
        mine = ours.get(each.workload)
        if mine is not None and each is not mine and each.loss < mine.loss - max(mine.spread or 0, each.spread or 0):
            rows.append(
                (f"`{each.workload}`", NAMES.get(each.optimiser, each.optimiser), f"{mine.loss / each.loss:.2f}")
            )
    return "\n".join(grid(("workload", "rival", "our loss ÷ the rival's"), rows)) if rows else ""


def draw_versus(every: Sequence[Standing]) -> bytes:
    """Draw the validation loss relative to tuned Adam's: one column per workload, one marker per optimiser.

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
            axes.annotate(
                f"{standing.ratio:.2g}", (x, held), (0, 9), textcoords="offset points", fontsize=8, ha="center"
            )
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


def _ratio(standing: TrustStanding) -> float:
    assert standing.ratio is not None
    return standing.ratio


def _recovered(ratios: Sequence[float]) -> int:
    return sum(ratio <= RECOVERY for ratio in ratios)


# colour, marker, size, name; in grey the markers tell them apart
