"""Algorithm 1 in NumPy, float64, with its own forward and backward pass."""

import numpy as np


def forward(weights, x):
    """Activations of a bias-free network with relu(z)·√2 between its layers."""
    activations = [x]
    for i, w in enumerate(weights):
        x = x @ w.T
        if i + 1 < len(weights):
            x = np.sqrt(2) * np.maximum(x, 0)
        activations.append(x)
    return activations


def gradients(weights, x, y):
    """Gradients of the mean over the batch of ‖f − y‖² / (2 d_L)."""
    activations = forward(weights, x)
    delta = (activations[-1] - y) / y.size
    grads = []
    for i in range(len(weights) - 1, -1, -1):
        grads.insert(0, delta.T @ activations[i])
        delta = (delta @ weights[i]) * np.sqrt(2) * (activations[i] > 0)
    return grads


def algorithm_1(weights, grads):
    """One step on matrices and kernels (out, in, taps...): the new weights, η and G."""
    depth = len(weights)
    G = 0.0
    for w, g in zip(weights, grads, strict=True):
        for tap in np.ndindex(*w.shape[2:]):
            G += scale(w) * np.sqrt((g[(slice(None), slice(None), *tap)] ** 2).sum()) / depth
    eta = np.log((1 + np.sqrt(1 + 4 * G)) / 2)
    moved = []
    for w, g in zip(weights, grads, strict=True):
        w = w.copy()
        for tap in np.ndindex(*w.shape[2:]):
            at = (slice(None), slice(None), *tap)
            w[at] -= eta / depth * scale(w) * g[at] / np.sqrt((g[at] ** 2).sum())
        moved.append(w)
    return moved, eta, G


def scale(w):
    """√(d_out/d_in), over √taps for a kernel."""
    return np.sqrt(w.shape[0] / w.shape[1] / np.prod(w.shape[2:]))
