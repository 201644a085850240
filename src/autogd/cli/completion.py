"""Print a script with which a shell completes the commands and their options.

example: autogd completion bash >> ~/.bashrc
"""

import importlib
import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro

__all__ = ["Options", "run", "script"]


@dataclass(frozen=True)
class Options:
    """What `autogd completion` takes."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """which shell"""
    json: bool = False
    """print JSON instead of the bare script"""


def script(shell: str) -> str:
    """The shell's completion script, for every command.

    >>> "--optimiser" in script("bash")
    True
    """
    from autogd.cli.main import COMMANDS  # a late import: this command is in the table too

    modules = {name: importlib.import_module(f"autogd.cli.{name}") for name in COMMANDS}
    commands = [
        Annotated[module.Options, tyro.conf.subcommand(name=name, description=COMMANDS[name])]
        for name, module in modules.items()
    ]
    every: Any = Union[tuple(commands)]  # noqa: UP007  # `|` does not take a list
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "script"
        with suppress(SystemExit):  # tyro exits after writing the script
            tyro.cli(every, prog="autogd", args=["--tyro-write-completion", shell, str(written)])
        return written.read_text()


def run(options: Options) -> int:
    """Print the script."""
    text = script(options.shell)
    print(json.dumps({"shell": options.shell, "script": text}) if options.json else text)
    return 0
