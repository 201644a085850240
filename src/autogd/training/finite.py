"""If a loss is not finite, stop and name the step, the batch and the layer."""

__all__ = ["Diverged"]


class Diverged(ValueError):  # noqa: N818 - what happened, not whose fault
    """A loss, a gradient or a weight is no longer finite."""
