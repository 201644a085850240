"""Find what a user points to: package.module:name, in installed packages or in the current folder."""

import importlib
import inspect
import os
import sys
from typing import Any

__all__ = ["call"]


def call(place: str, wanted: str) -> Any:
    """Import `package.module:factory` and call it without arguments; its own errors are shown as they are.

    >>> call("torch.nn:Identity", "a Module")
    Identity()
    """
    package, colon, name = place.partition(":")
    if not colon:
        raise ValueError(f"{place}: expected package.module:factory, a callable that returns {wanted}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not look there by itself
    try:
        factory = getattr(importlib.import_module(package), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"{place}: {error}") from error
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ValueError(f"{place}: it cannot be called without arguments: {error}; point to a factory") from error
    return factory()
