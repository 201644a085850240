"""Find the command, read its options, run it, and print an error as one clear line."""

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any

from autogd import __version__
from autogd.diagnosis.backend import backend

__all__ = ["COMMANDS", "find", "main"]

# what each command does
COMMANDS = {
    "demo": "a 32-layer network that AGD trains and that Adam and SGD at their defaults do not",
    "train": "train a network on a data set, with records, checkpoints and a figure",
    "compare": "several optimisers on the same task, side by side",
    "sweep": "a rival's grid of learning rates",
    "reproduce": "a figure or a table of the paper, at the scale of the machine",
    "report": "one self-contained page about any number of runs",
    "check": "every statement of the paper, measured on random networks",
    "explain": "the atom of each of a model's parameters, its size and its share of the depth",
    "doctor": "what is wrong with a training set-up, and what to do",
    "glossary": "the ten words that these commands use",
    "bench": "measure AGD against its rivals on this machine",
    "completion": "a script for a shell, to complete commands and options",
}
# the files that hold several commands; every other command has a file of its own name
FILES = {
    "compare": "study",
    "sweep": "study",
    "report": "study",
    "explain": "model",
    "doctor": "model",
    "glossary": "help",
    "completion": "help",
}

PIPE_CLOSED = 141  # 128 + SIGPIPE, as of every program that a closed pipe ends


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 only on success.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    autogd ...
    backend: ...
    0
    """
    try:
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:  # None if it was closed before the start
                sys.stdout.flush()  # raise here if the pipe is closed, also when help ends with SystemExit
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        # Python flushes again at exit, which would raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def find(name: str) -> tuple[Any, str | None]:
    """The class of a command, and its help text; its fields are the options, and its method `run` does the work.

    >>> find("glossary")[0].__name__
    'Glossary'
    """
    module = importlib.import_module(f"autogd.cli.{FILES.get(name, name)}")
    command = getattr(module, name.capitalize())
    return command, inspect.getdoc(command if isinstance(command, type) else module)  # bench is several classes


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"autogd {__version__}\nbackend: {backend()}")
        return 0
    if words[0] not in COMMANDS:
        print(f"autogd: there is no command {words[0]!r}; `autogd --help` lists them", file=sys.stderr)
        return 2
    try:
        return _run(words[0], words[1:])
    except KeyboardInterrupt:
        print(f"autogd {words[0]}: stopped", file=sys.stderr)
        return 130


def _run(name: str, words: list[str]) -> int:
    try:
        import tyro
    except ImportError:
        print("autogd: the commands need the extra 'cli': pip install 'autogd[cli]'", file=sys.stderr)
        return 1
    command, description = find(name)
    options = tyro.cli(command, prog=f"autogd {name}", description=description, args=words)
    try:
        return int(options.run())
    except BrokenPipeError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may call exit(0): the command has still failed
        return _tell(name, error)


def _tell(command: str, error: Exception | SystemExit) -> int:
    """Print one line about an error and return the exit status; an error of autogd itself keeps its traceback."""
    from autogd.training.own_code import culprit
    from autogd.training.process import Stopped

    if isinstance(error, Stopped):
        print(f"autogd {command}: {error}", file=sys.stderr)
        return 128 + error.signal_number
    if _out_of_memory(error):
        said = (str(error).strip().splitlines() or ["no more memory"])[0]
        print(f"autogd {command}: not enough memory ({said}); take a smaller network or batch", file=sys.stderr)
        return 1
    place = culprit(error)
    if place is not None:
        words = [type(error).__name__, *str(error).strip().splitlines()[:1]]
        print(f"autogd {command}: {': '.join(words)} (in {place})", file=sys.stderr)
        return 1
    if isinstance(error, ValueError | OSError | ImportError):
        print(f"autogd {command}: {error}", file=sys.stderr)
        return 1
    print(f"autogd {command}: an error of autogd itself, please report it with these lines:", file=sys.stderr)
    raise error


def _out_of_memory(error: BaseException) -> bool:
    """Whether the machine or the device has no memory left; torch has no class for it on the CPU."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "usage: autogd COMMAND [options]; `autogd COMMAND --help` tells more",
            "",
            *lines,
            "",
            "example: autogd demo",
        ]
    )
