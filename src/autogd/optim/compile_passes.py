"""Compile the passes of the folder `c`, beside it: `python -m autogd.optim.compile_passes`.

An editable install does it by itself where there is a C compiler. Without the library all works as well, at the speed
of torch's own operations.
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


def fingerprint() -> str:
    """Of the sources as they are now.

    >>> len(fingerprint())
    64
    """
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(SOURCES.glob("*.[ch]")))).hexdigest()


def compile_passes(compiler: str = os.environ.get("CC") or "cc") -> str | None:
    """Make the library; gives what stood in the way, None where nothing did.

    >>> compile_passes("no-such-compiler")
    'no-such-compiler: there is no such compiler here'
    """
    if shutil.which(compiler.split()[0]) is None:
        return f"{compiler}: there is no such compiler here"
    try:
        with tempfile.TemporaryDirectory(dir=LIBRARY.parent, prefix=".passes") as folder:
            made = Path(folder, "made.library")
            sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
            options = ["-O3", "-fopenmp", "-fPIC", "-shared", f'-DAUTOGD_SOURCE="{fingerprint()}"']
            command = [*compiler.split(), *options, "-o", str(made), *sources, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return f"{compiler}: {done.stderr.strip() or f'stopped with {done.returncode}'}"
            made.replace(LIBRARY)  # whole or not at all, for those who load it meanwhile
    except OSError as trouble:  # as from a folder that may not be written to
        return f"{compiler}: {trouble}"
    return None


if __name__ == "__main__":
    if trouble := compile_passes():
        sys.exit(trouble)
    print(f"{LIBRARY} is there: AGD uses it from now on")
