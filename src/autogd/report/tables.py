"""Runs that differ only in their seed are one row: mean and spread over the seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autogd.training.config import Config
from autogd.training.records import Run

__all__ = ["COLUMNS", "Group", "cell", "columns", "group_runs", "one_a_seed", "summarise"]

# settings of the machine, not of the run
_ASIDE = ("seed", "device", "compile", "shard", "data_dir", "checkpoint_seconds", "checkpoints", "threads")

COLUMNS = {
    "label": "run",
    "runs": "seeds",
    "epochs": "epochs",
    "objective": "objective",
    "train_accuracy": "train accuracy",
    "test_accuracy": "test accuracy",
    "test_objective": "test objective",
    "seconds": "seconds",
}


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The columns of a table: accuracies, or the test objective if no row has an accuracy, as in a regression.

    >>> list(columns([{"test_accuracy_mean": None, "test_objective_mean": 0.5}]).values())
    ['run', 'seeds', 'epochs', 'objective', 'test objective', 'seconds']
    """
    known = {name for name in COLUMNS if any(row.get(f"{name}_mean") is not None for row in rows)}
    regression = "test_objective" in known and "test_accuracy" not in known
    left_out = ("train_accuracy", "test_accuracy") if regression else ("test_objective",)
    return {name: title for name, title in COLUMNS.items() if name not in left_out}


@dataclass(frozen=True)
class Group:
    """Runs of one config with several seeds, and their label."""

    label: str
    runs: list[Run]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ only in their seed; a label has the settings in which groups differ.

    >>> group_runs([])
    []
    """
    kinds: dict[tuple[Any, ...], list[Run]] = {}
    configs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        settings = {name: value for name, value in run.config().as_dict().items() if name not in _ASIDE}
        key = tuple(settings.values())
        kinds.setdefault(key, []).append(run)
        configs[key] = settings
    telling = [name for name in Config().as_dict() if len({str(c.get(name)) for c in configs.values()}) > 1]
    extra = [name for name in telling if name != "optimiser"]

    def label(settings: dict[str, Any]) -> str:
        words = [f"{name}={_short(settings[name])}" for name in extra if settings[name] is not None]
        return " ".join([settings["optimiser"], *words])

    return [Group(label(configs[key]), members) for key, members in kinds.items()]


def summarise(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One row per group: mean and spread (standard deviation) over the seeds of the last epoch's numbers.

    A seed counts once: if it has several runs, the longest counts, or the last of equally long ones. A run without an
    epoch does not count. Diverged runs count as runs, but the means leave them out. The spread of one seed is None.

    >>> summarise([Group("nothing yet", [])])[0]["objective_mean"] is None
    True
    """
    rows = []
    for group in groups:
        counted = one_a_seed(group.runs)
        diverged = [run for run in counted if _diverged(run)]
        lines = [run.metrics() for run in counted if run not in diverged]
        last = [metrics[-1] for metrics in lines if metrics]
        row: dict[str, Any] = {
            "label": group.label,
            "runs": len(counted),
            "diverged": len(diverged),
            "repeated": sum(_counts(run) for run in group.runs) - len(counted),
            "epochs": max((line["epoch"] for line in last), default=0),
        }
        names = ("objective", "train_accuracy", "test_accuracy", "test_objective")
        values = {name: [line[name] for line in last if line.get(name) is not None] for name in names}
        values["seconds"] = [sum(line["seconds"] for line in metrics) for metrics in lines if metrics]
        for name, found in values.items():
            row[f"{name}_mean"] = statistics.fmean(found) if found else None
            row[f"{name}_spread"] = statistics.stdev(found) if len(found) > 1 else None
        rows.append(row)
    return rows


def one_a_seed(runs: Sequence[Run]) -> list[Run]:
    """The longest run of each seed, or the last of equally long ones; without runs that have no epoch.

    >>> one_a_seed([])
    []
    """
    best: dict[int, Run] = {}
    for run in runs:
        seed = run.config().seed
        if _counts(run) and (seed not in best or len(run.metrics()) >= len(best[seed].metrics())):
            best[seed] = run
    return list(best.values())


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _diverged(run: Run) -> bool:
    return (run.summary() or {}).get("status") == "diverged"


def _counts(run: Run) -> bool:
    return bool(run.metrics()) or _diverged(run)


def cell(row: dict[str, Any], column: str) -> str:
    """One number of a row as text, with its spread if it has one.

    >>> cell({"test_accuracy_mean": 0.5, "test_accuracy_spread": 0.01}, "test_accuracy")
    '50.00% ± 1.00'
    """
    if column == "label":
        return str(row["label"])
    if column == "runs":
        return f"{row['runs']} ({row['diverged']} diverged)" if row["diverged"] else str(row["runs"])
    if column == "epochs":
        return str(row["epochs"])
    mean, spread = row[f"{column}_mean"], row[f"{column}_spread"]
    if mean is None:
        return "–"
    if column.endswith("accuracy"):
        return f"{mean:.2%}" + ("" if spread is None else f" ± {100 * spread:.2f}")
    digits = ".1f" if column == "seconds" else ".4f"
    return f"{mean:{digits}}" + ("" if spread is None else f" ± {spread:{digits}}")
