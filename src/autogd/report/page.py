"""One self-contained HTML page about any number of runs: nothing to fetch, readable on a phone."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autogd.report.figures import PANELS, draw
from autogd.report.tables import Group, cell, columns, group_runs, one_a_seed, summarise
from autogd.training.config import Config
from autogd.training.records import Run, write_whole

__all__ = ["page", "write_page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; white-space: nowrap; }
td:first-child, td:last-child { white-space: normal; min-width: 9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: auto; background: white; border-radius: .4rem; }
.error { color: #c33; }
"""


def write_page(runs: Sequence[Run], path: Path) -> None:
    """Write the page about these runs."""
    write_whole(path, page(runs))


def page(runs: Sequence[Run]) -> str:
    """The page as text.

    >>> page([]).startswith("<!doctype html>")
    True
    """
    groups = group_runs(runs)
    sections = [
        "<h2>Results</h2>",
        _results(summarise(groups)),
        *_aside(runs, groups),
        "<h2>Curves</h2>",
        '<div class="figures">' + "".join(_figure(groups, panel) for panel in PANELS) + "</div>",
        "<h2>Runs</h2>",
        _settings(runs),
        *_errors(runs),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # the page fetches nothing, and the policy enforces it
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">",
            '<link rel="icon" href="data:,">',
            f"<title>{_text(_title(groups))}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_text(_title(groups))}</h1>",
            *sections,
            "</body></html>\n",
        ]
    )


def _results(rows: Sequence[dict[str, Any]]) -> str:
    shown = columns(rows)
    return _table([list(shown.values()), *([cell(row, name) for name in shown] for row in rows)])


def _aside(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """What the table leaves out, and why."""
    counted = sum(len(one_a_seed(group.runs)) for group in groups)
    empty = sum(not run.metrics() and run.summary() is None for run in runs)
    repeated = len(runs) - counted - empty
    left_out = []
    if empty:
        left_out.append(f"{empty} without an epoch")
    if repeated:
        left_out.append(f"{repeated} of a seed that another run with the same settings has")
    return [f"<p>Not counted: {', '.join(left_out)}.</p>"] if left_out else []


def _title(groups: Sequence[Group]) -> str:
    configs = [run.config() for group in groups for run in group.runs]
    tasks = sorted({f"{config.model} on {config.data}" for config in configs})
    return f"autogd: {', '.join(tasks)}" if tasks else "autogd: no runs"


def _figure(groups: Sequence[Group], panel: str) -> str:
    picture = base64.b64encode(draw(groups, "png", [panel])).decode()
    name = panel.replace("_", " ")
    return f'<figure><img alt="{name} by epoch" src="data:image/png;base64,{picture}"></figure>'


def _settings(runs: Sequence[Run]) -> str:
    """One row per run: its folder, its state, and the settings that are not at their defaults."""
    defaults = Config().as_dict()
    rows = [["run", "state", "seed", "parameters", "torch", "settings"]]
    for run in runs:
        config, summary = run.config().as_dict(), run.summary() or {}
        shown = [f"{name}={value}" for name, value in config.items() if value != defaults[name] and name != "seed"]
        state = summary.get("status", f"unfinished, {len(run.metrics())} of {config['epochs']} epochs")
        size = summary.get("parameters")
        parameters = "–" if size is None else f"{size:,}"
        words = " ".join(shown) or "all defaults"
        rows.append([run.path.name, state, str(config["seed"]), parameters, str(summary.get("torch", "–")), words])
    return _table(rows)


def _errors(runs: Sequence[Run]) -> list[str]:
    found: list[tuple[str, Any]] = [(run.path.name, (run.summary() or {}).get("error")) for run in runs]
    return [f'<p class="error">{_text(name)}: {_text(str(error))}</p>' for name, error in found if error]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(word)}</th>" for word in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_text(word)}</td>" for word in row) + "</tr>" for row in rows[1:])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return html.escape(text)
