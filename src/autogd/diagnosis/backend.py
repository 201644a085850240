"""Say whether the compiled passes are in use, and if not, why not and what to do."""

import ctypes
import os
import shutil
from pathlib import Path

__all__ = ["backend"]

COMPILE = "python -m autogd.engine.library"


def backend() -> str:
    """The backend of a step on float32 CPU tensors, as text.

    >>> backend().startswith(("compiled passes", "torch's operations"))
    True
    """
    from autogd.engine.library import LIBRARY, library  # imported late, so that the module can run as a program

    return "compiled passes" if library() is not None else f"torch's operations: {_obstacle(LIBRARY)}"


def _obstacle(place: Path) -> str:
    if os.environ.get("AUTOGD_NATIVE") == "0":
        return "AUTOGD_NATIVE=0 turns the compiled passes off"
    if not place.exists():
        compiler = (os.environ.get("CC") or "cc").split()[0]
        if shutil.which(compiler) is None:
            return f"not compiled, and there is no C compiler ({compiler}); install one, then run {COMPILE}"
        return f"not compiled; run {COMPILE}"
    try:
        ctypes.CDLL(str(place))
    except OSError as trouble:
        return f"{trouble}; run {COMPILE}"
    return f"compiled from other sources; run {COMPILE}"
