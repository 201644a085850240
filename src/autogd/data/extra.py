"""If an optional library is missing, name the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Turn an import that fails inside into an error that says what to install.

    >>> with needs_extra("moon"):
    ...     import moonpictures
    Traceback (most recent call last):
    ImportError: moon: moonpictures is not installed; pip install 'autogd[cli]' brings it
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{what}: {error.name} is not installed; pip install 'autogd[cli]' brings it") from error
