"""Find the command, read its options, run it, and turn errors into one clear line."""

import importlib
import os
import sys
from collections.abc import Sequence

from autogd import __version__
from autogd.diagnosis.backend import backend

__all__ = ["COMMANDS", "main"]

# the purpose of each command; its file has `Options`, a dataclass that defines the flags, and `run(options)`
COMMANDS = {
    "demo": "a 32-layer network that AGD trains and that Adam and SGD at their defaults do not",
    "train": "train a network on a data set, with records, checkpoints and a figure",
    "compare": "several optimisers on the same task, side by side",
    "sweep": "a rival's grid of learning rates",
    "reproduce": "a figure or a table of the paper, at the scale of the machine",
    "report": "one self-contained page about any number of runs",
    "check": "every statement of the paper, measured on random networks",
    "explain": "which of a model's parameters is which atom, and its share of the depth",
    "doctor": "what is wrong with a training set-up, and what to do",
    "glossary": "the ten words that these commands use",
    "bench": "measure AGD against its rivals on this machine",
    "completion": "a script that teaches a shell to complete all this",
}

PIPE_CLOSED = 141  # 128 + SIGPIPE: the status of a program that a closed pipe ended


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
            if sys.stdout is not None:  # None: it was closed before the start
                sys.stdout.flush()  # help ends with SystemExit: notice a closed pipe here too
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        # Python flushes again at exit, and would raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


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
    command = importlib.import_module(f"autogd.cli.{name}")
    options = tyro.cli(command.Options, prog=f"autogd {name}", description=command.__doc__, args=words)
    try:
        return int(command.run(options))
    except BrokenPipeError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may call exit(0), which is no success of the command
        return _tell(name, error)


def _tell(command: str, error: Exception | SystemExit) -> int:
    """Print one line on an error and return the exit status; an error of autogd itself keeps its traceback."""
    from autogd.training.own_code import culprit
    from autogd.training.stop import Stopped

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
