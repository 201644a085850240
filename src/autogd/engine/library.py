"""The passes in C: compile them, and load them. `python -m autogd.engine.library` compiles.

An install from source compiles them if there is a C compiler. Without the library everything works, at the speed of
torch's own operations; `AUTOGD_NATIVE=0` in the environment turns it off.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["LIBRARY", "SOURCES", "compile_passes", "fingerprint", "library"]

SOURCES = Path(__file__).with_name("c")
LIBRARY = Path(__file__).with_name("passes.library")
# Apple's compiler needs both flags, and takes OpenMP's functions from the library that torch ships
OPENMP = ["-Xclang", "-fopenmp", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-fopenmp"]


def fingerprint() -> str:
    """The hash of the sources as they are now.

    >>> len(fingerprint())
    64
    """
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(SOURCES.glob("*.[ch]")))).hexdigest()


def compile_passes(compiler: str | None = None, target: Path | None = None) -> str | None:
    """Compile the library; returns the reason if that fails, else None.

    Args:
        compiler: its command, with options; $CC or cc if None.
        target: the library to make; the package's own if None.

    >>> compile_passes("no-such-compiler")
    'no-such-compiler: there is no such compiler here'
    """
    compiler, target = compiler or os.environ.get("CC") or "cc", target or LIBRARY
    if shutil.which(compiler.split()[0]) is None:
        return f"{compiler}: there is no such compiler here"
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".passes") as folder:
            made = Path(folder, "made.library")
            sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
            options = ["-O3", *OPENMP, "-fPIC", "-shared", f'-DAUTOGD_SOURCE="{fingerprint()}"']
            command = [*compiler.split(), *options, "-o", str(made), *sources, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return f"{compiler}: {done.stderr.strip() or f'stopped with {done.returncode}'}"
            made.replace(target)  # replace it atomically: another process may load it now
    except OSError as trouble:  # a folder that cannot be written to, for example
        return f"{compiler}: {trouble}"
    return None


@cache
def library() -> ctypes.CDLL | None:
    """The compiled passes; None if missing, stale or turned off.

    >>> library() is None or callable(library().autogd_pass)
    True
    """
    if os.environ.get("AUTOGD_NATIVE") == "0":
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.autogd_source.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    if found.autogd_source().decode() != fingerprint():
        return None
    pointer, number, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    found.autogd_pass.argtypes = [pointer, number, number, number, *[pointer] * 3, threads]
    found.autogd_doubles.argtypes, found.autogd_doubles.restype = [pointer, number, number], number
    found.autogd_floats.argtypes, found.autogd_floats.restype = [number, number, number, threads], number
    found.autogd_measure.argtypes = [pointer, number, number, number, pointer, pointer, threads]
    found.autogd_update.argtypes = [pointer, number, pointer, *[number] * 4, *[pointer] * 7, threads]
    return found


if __name__ == "__main__":
    if trouble := compile_passes():
        sys.exit(trouble)
    print(f"{LIBRARY} is there: the optimisers use it from now on")
