"""The networks of the paper's experiments."""

from autogd.models.build import build
from autogd.models.fcn import FCN

__all__ = ["FCN", "build"]
