"""Which small gradients are noise? Each gradient of the architectures of the zoo beside the same in float64.

Prints, for every tensor whose dual norm is below 64 eps of the largest, that share and the gradient's relative error.
Only biases without effect are noise (an error of about 1); all else is accurate, however small.
Run: python benchmarks/noise_floor.py
"""

import copy

import torch
import transformers

from autogd.experiments.zoo import ZOO
from autogd.reading.catalogue import read_roles

EPS = torch.finfo(torch.float32).eps


def norms(role, grad):
    return torch.linalg.vector_norm(role.atom.cut(grad.double()), dim=role.atom.inner).flatten()


def shares_and_errors(model, batch):
    """Of each tensor: its dual norm over the largest tensor's, and the relative error of its gradient."""
    wide = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in batch.items()}
    twin = copy.deepcopy(model).double()
    model(**batch).loss.backward()
    twin(**wide).loss.backward()
    exact = dict(twin.named_parameters())
    found = {}
    for role in read_roles(model):
        grad, true = role.parameter.grad, exact[role.name].grad
        if grad is not None and not grad.is_sparse and grad.any():
            error = float((grad.double() - true).norm() / grad.double().norm())
            found[role.name] = (role.atom.kind, role.atom.scale * float(norms(role, grad).sum()), error)
    largest = max(size for _, size, _ in found.values())
    return {name: (kind, size / largest, error) for name, (kind, size, error) in found.items()}


def main():
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    worst = 0.0
    for name in ZOO:
        model, batch = ZOO[name](transformers)
        try:
            rows = shares_and_errors(model.train(), batch)
        except RuntimeError as error:  # not every kernel has a float64 form
            print(f"{name}: {str(error).splitlines()[0]}")
            continue
        for parameter, (kind, share, error) in rows.items():
            if share < 64 * EPS:
                print(f"{name:12} {parameter[-58:]:58} {kind:8} {share:8.1e} of the largest, error {error:.1e}")
                worst = max(worst, error if error < 0.1 else 0.0)
    print(f"largest error of what is no noise: {worst:.1e}")


if __name__ == "__main__":
    main()
