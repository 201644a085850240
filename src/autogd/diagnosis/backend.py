"""Say whether the compiled passes are in use, and if not, why not and what to do."""

import ctypes
import os
import shutil

from autogd.optim.native import library

__all__ = ["backend"]

COMPILE = "python -m autogd.optim.compile_passes"


def backend() -> str:
    """The backend of a step on float32 tensors of the CPU, in words.

    >>> backend().startswith(("compiled passes", "torch's operations"))
    True
    """
    return "compiled passes" if library() is not None else f"torch's operations: {_obstacle()}"


def _obstacle() -> str:
    from autogd.optim.compile_passes import LIBRARY  # late, so that it can be run as a program

    if os.environ.get("AUTOGD_NATIVE") == "0":
        return "AUTOGD_NATIVE=0 turns the compiled passes off"
    if not LIBRARY.exists():
        compiler = (os.environ.get("CC") or "cc").split()[0]
        if shutil.which(compiler) is None:
            return f"not compiled, and there is no C compiler ({compiler}); install one, then run {COMPILE}"
        return f"not compiled; run {COMPILE}"
    try:
        ctypes.CDLL(str(LIBRARY))
    except OSError as trouble:
        return f"{trouble}; run {COMPILE}"
    return f"compiled from other sources; run {COMPILE}"
