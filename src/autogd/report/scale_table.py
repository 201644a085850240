"""What a step costs a rank, as a table of a page."""

from collections.abc import Sequence

from autogd.experiments.scale.cost import Cost

__all__ = ["COLUMNS", "cell", "markdown"]

COLUMNS = ("sent", "received", "flops", "peak")


def markdown(found: Sequence[Cost]) -> str:
    """The rank that has the most, and in brackets the mean."""
    lines = [
        "| ranks | method | sent | received | FLOPs | state and buffers |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for cost in found:
        cells = (" ".join(cell(cost, quantity)) for quantity in COLUMNS)
        lines.append(f"| {cost.ranks:,} | {cost.method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(cost: Cost, quantity: str) -> tuple[str, str]:
    """The most and the mean.

    >>> from autogd.experiments.scale.cost import Load
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
