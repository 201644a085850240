"""Shares of the depth: how many layers one part of a tensor counts for. A matrix or a kernel's tap has 1.

A matrix reaches its bound on one direction of its input only. A vector (a bias, a gain, a token, a row of a table)
reaches it whatever the input, so it gets less: `docs/depth.md` compares the rules.
"""

__all__ = ["LOOKUP", "VECTOR", "bias_share"]

VECTOR = 1 / 32
LOOKUP = 1 / 4


def bias_share(weights: int, outputs: int) -> float:
    """The share of the depth of a bias on minibatches: 1/d as one of its layer's d inputs, and at least 1/32.

    >>> [bias_share(4 * d, outputs=4) for d in (1, 8, 1000)]
    [1.0, 0.125, 0.03125]
    """
    return max(VECTOR, min(1.0, outputs / weights))
