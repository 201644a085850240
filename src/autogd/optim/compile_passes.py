"""Compile the C passes of the folder `c`: `python -m autogd.optim.compile_passes`.

An install from source does it by itself if there is a C compiler. Without the library everything works at the speed of
torch's own operations.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["LIBRARY", "SOURCES", "compile_passes", "fingerprint"]

SOURCES = Path(__file__).with_name("c")
LIBRARY = Path(__file__).with_name("passes.library")
# Apple's compiler wants to be told twice, and takes OpenMP's functions from the library that torch brings
OPENMP = ["-Xclang", "-fopenmp", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-fopenmp"]


def fingerprint() -> str:
    """Of the sources as they are now.

    >>> len(fingerprint())
    64
    """
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(SOURCES.glob("*.[ch]")))).hexdigest()


def compile_passes(compiler: str | None = None, target: Path | None = None) -> str | None:
    """Compile into `target`; returns what prevented it, None on success.

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
            made.replace(target)  # whole or not at all, for processes that load it meanwhile
    except OSError as trouble:  # such as a folder that may not be written to
        return f"{compiler}: {trouble}"
    return None


if __name__ == "__main__":
    if trouble := compile_passes():
        sys.exit(trouble)
    print(f"{LIBRARY} is there: AGD uses it from now on")
