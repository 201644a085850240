r"""Three known methods, derived from the same functional expansion.

Theorem 1's right-hand side, 𝓛 + ∇𝓛ᵀΔw + mean D(f, Δf), is minimised over Δw

* as it is, for a model that is linear in its weights: mirror descent;
* with Δf replaced by ∇f Δw and square loss: Gauss-Newton;
* with Δf replaced by ∇f Δw and cross-entropy to second order: natural gradient.

The last two are one function, `functional_step`, with two losses. It forms no matrix: curvature products go through the
model, and conjugate gradients solve the system.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from autogd.theory.s1_bregman import directional
from autogd.theory.s1_losses import cross_entropy, square

__all__ = ["functional_step", "gauss_newton_step", "mirror_descent_step", "natural_gradient_step"]

LossFunction = Callable[[Tensor, Tensor], Tensor]


def mirror_descent_step(
    loss: LossFunction,
    weight: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    step: float = 1.0,
    iterations: int = 50,
) -> Tensor:
    r"""The ΔW that minimises step·∇𝓛ᵀΔW + mean D(Wx, ΔWx) for f = Wx, by damped Newton.

    The mean divergence is itself the Bregman divergence of a convex potential in W, so this is a mirror-descent step:
    ∇Φ(W + ΔW) = ∇Φ(W) − step·∇𝓛(W). Of all minimisers it returns the one nearest to W. A step of 1 minimises Theorem
    1's right-hand side, which for a linear model is the objective itself.

    >>> x = torch.eye(2, dtype=torch.float64)
    >>> y = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    >>> mirror_descent_step(square, torch.zeros(1, 2, dtype=torch.float64), x, y)
    tensor([[3., 4.]], dtype=torch.float64)
    """

    def objective(flat: Tensor) -> Tensor:
        return loss(inputs @ flat.view_as(weight).T, targets)

    gradient, hessian = torch.func.grad(objective), torch.func.jacrev(torch.func.grad(objective))
    start = weight.detach().flatten()
    wanted = (1 - step) * gradient(start)

    def surrogate(flat: Tensor) -> Tensor:
        return objective(flat) - wanted @ flat

    w = start
    for _ in range(iterations):
        residual = gradient(w) - wanted
        if float(residual.abs().max()) <= 64 * torch.finfo(w.dtype).eps * (1 + float(wanted.abs().max())):
            break
        # the least-norm Newton direction: a potential may be flat along some directions, as softmax is
        direction = torch.linalg.lstsq(hessian(w), -residual.unsqueeze(1), driver="gelsd").solution.squeeze(1)
        length, slope = 1.0, float(residual @ direction)
        while length > 1e-10 and float(surrogate(w + length * direction) - surrogate(w)) > 0.25 * length * slope:
            length /= 2
        w = w + length * direction
    return (w - start).view_as(weight)


def gauss_newton_step(model: nn.Module, inputs: Tensor, targets: Tensor, *, damping: float = 0.0) -> dict[str, Tensor]:
    """Corollary 1 with Δf = ∇f Δw, minimised: the Gauss-Newton step of square loss, by parameter name.

    >>> model = nn.Linear(1, 1, bias=False).double()
    >>> x = torch.ones(1, 1, dtype=torch.float64)
    >>> step = gauss_newton_step(model, x, 5 * x)
    >>> round(float(model.weight.detach() + step["weight"]), 6)
    5.0
    """
    return functional_step(model, square, inputs, targets, damping=damping)


def natural_gradient_step(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, damping: float = 0.0
) -> dict[str, Tensor]:
    """Corollary 2 with Δf = ∇f Δw and the KL to second order, minimised: F⁻¹ times the gradient, by parameter name.

    >>> model = nn.Linear(1, 2, bias=False).double()
    >>> x, y = torch.ones(4, 1, dtype=torch.float64), torch.tensor([0, 0, 0, 1])
    >>> sorted(natural_gradient_step(model, x, y, damping=0.1))
    ['weight']
    """
    return functional_step(model, cross_entropy(), inputs, targets, damping=damping)


def functional_step(
    model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor, *, damping: float = 0.0
) -> dict[str, Tensor]:
    """The Δw that minimises Theorem 1's right-hand side with Δf = ∇f Δw and the divergence to second order.

    Args:
        model: any Module.
        loss: from (output, target) to the mean over the batch.
        inputs: a batch.
        targets: its targets.
        damping: λ adds λ‖Δw‖²/2.

    >>> from autogd.theory.s1_losses import logistic
    >>> x, y = torch.randn(8, 3), torch.ones(8, 1)
    >>> functional_step(nn.Linear(3, 1, bias=False), logistic(), x, y, damping=0.1)["weight"].shape
    torch.Size([1, 3])
    """
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    sizes = [w.numel() for w in weights.values()]

    def unflatten(flat: Tensor) -> dict[str, Tensor]:
        pieces = flat.split(sizes)
        return {name: piece.view_as(w) for (name, w), piece in zip(weights.items(), pieces, strict=True)}

    def forward(flat: Tensor) -> Tensor:
        return torch.func.functional_call(model, unflatten(flat), (inputs,))

    start = torch.cat([w.flatten() for w in weights.values()])
    output, pull = cast(tuple[Tensor, Callable[[Any], Any]], torch.func.vjp(forward, start))
    loss_gradient = torch.func.grad(lambda f: loss(f, targets))

    def curvature(v: Tensor) -> Tensor:
        # ∇fᵀ (∇² l) ∇f v: through the model, through the loss, and back
        moved = directional(forward, start, v)[1]
        return pull(directional(loss_gradient, output, moved)[1])[0] + damping * v

    solution = _conjugate_gradients(curvature, -pull(loss_gradient(output))[0])
    return unflatten(solution)


def _conjugate_gradients(apply: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """Solve apply(x) = right from zero; on a singular system, the least-norm solution."""
    x, residual = torch.zeros_like(right), right.clone()
    direction, squared = residual.clone(), float(right @ right)
    tolerance = squared * torch.finfo(right.dtype).eps ** 2
    for _ in range(20 * len(right)):  # with rounding, more than the n steps of exact arithmetic are needed
        if squared <= tolerance:
            break
        image = apply(direction)
        length = squared / float(direction @ image)
        x = x + length * direction
        residual = residual - length * image
        previous, squared = squared, float(residual @ residual)
        direction = residual + squared / previous * direction
    return x
