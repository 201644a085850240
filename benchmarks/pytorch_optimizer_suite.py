"""Do AGD and StochasticAGD pass what kozistr/pytorch_optimizer asks of its optimisers, and work in its wrappers?

The package does not ship its tests. These are the generic ones, written anew: train its logistic regression in float32
and bfloat16 to less than two thirds of the first loss, take closures and missing, zero, sparse and complex gradients,
save and load, and serve as the base of its wrappers. NOT_APPLICABLE lists what is left out, with the reason.

Install: pip install pytorch-optimizer==4.1.0
Run: python benchmarks/pytorch_optimizer_suite.py
"""

import copy
import sys
import warnings

import torch
from pytorch_optimizer import SAM, TRAC, Lookahead, OrthoGrad, PCGrad
from torch import nn

from autogd import AGD, StochasticAGD

NOT_APPLICABLE = {
    "eps, betas, momentum": "there are no such settings",
    "lr below zero": "lr is no argument; `gain` and `weight_decay` below zero are refused (checked)",
    "adanorm, cautious, stable variants": "options of the package's own update rules",
    "schedule-free wrapper": "StochasticAGD averages weights itself; two averages would be of each other",
    "TRAC around AGD": "TRAC scales steps up from 1e-8 and stays there; with SGD at 0.1 and AdamW at 0.001 too",
    "load by name": "its registry has its own classes only",
}


def problem(dtype=torch.float32):
    """Two layers on 1,000 points of two classes, as in the package's tests."""
    torch.manual_seed(42)
    inputs = torch.randn(1000, 2, dtype=torch.float32)
    labels = (inputs[:, :1] + inputs[:, 1:] > 0).float()
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).to(dtype)
    return model, lambda: nn.functional.binary_cross_entropy_with_logits(model(inputs.to(dtype)).float(), labels)


def falls(model, loss_of, optimiser, steps=40, step=None):
    """Train; the loss must end below two thirds of the first."""
    first = loss_of().item()
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of()
        if step is None:
            loss.backward()
            optimiser.step()
        else:
            step(optimiser, loss_of, loss)
    assert loss_of().item() < first / 1.5, f"{first:.3f} to {loss_of().item():.3f}"
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def float32(kind):
    model, loss_of = problem()
    falls(model, loss_of, kind(model.parameters()))


def bfloat16(kind):
    model, loss_of = problem(torch.bfloat16)
    falls(model, loss_of, kind(model.parameters()))


def a_module_instead_of_parameters(kind):
    model, loss_of = problem()
    falls(model, loss_of, kind(model))


def closure(kind):
    parameter = nn.Parameter(torch.zeros(1, 1))
    optimiser = kind([parameter])
    optimiser.zero_grad()
    assert optimiser.step(lambda: 1.0) == 1.0


def missing_gradients_in_some_groups(kind):
    one, frozen, other, alone = (nn.Parameter(torch.randn(1, 1), requires_grad=on) for on in (True, False, True, False))
    optimiser = kind([{"params": [one, frozen]}, {"params": [other]}, {"params": [alone]}])
    (one + other).square().sum().backward()
    optimiser.step(lambda: 0.1)
    optimiser.zero_grad(set_to_none=True)


def zero_gradient(kind):
    parameter = nn.Parameter(torch.ones(1, 1))
    optimiser = kind([parameter])
    parameter.grad = torch.zeros(1, 1)
    optimiser.step()
    assert parameter.item() == 1.0


def scalar_parameter(kind):
    parameter = nn.Parameter(torch.tensor(1.0))
    optimiser = kind([parameter])
    parameter.square().backward()
    optimiser.step()
    assert parameter.isfinite()


def sparse_gradients_of_embeddings(kind):
    weights = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=sparse)
        optimiser = kind(table)
        for _ in range(3):
            optimiser.zero_grad()
            table(torch.tensor([1, 2, 2])).square().sum().backward()
            optimiser.step()
        weights.append(table.weight.detach())
    torch.testing.assert_close(*weights)


def sparse_gradients_of_matrices_are_refused(kind):
    parameter = nn.Parameter(torch.ones(2, 2))
    try:
        optimiser = kind([parameter])
        parameter.grad = torch.eye(2).to_sparse()
        optimiser.step()
    except ValueError:
        return
    raise AssertionError("a sparse gradient of a matrix was taken")


def complex_parameters_are_trained(kind):
    parameter = nn.Parameter(torch.tensor([[1 + 1j, 2.0], [1j, 3.0]]))
    optimiser, losses = kind([parameter]), []
    for _ in range(20):
        optimiser.zero_grad()
        loss = parameter.abs().square().sum()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 2 / 3 * losses[0], losses


def settings_below_zero_are_refused(kind):
    for setting in ("gain", "weight_decay"):
        try:
            kind([nn.Parameter(torch.ones(1, 1))], **{setting: -1.0})
        except ValueError:
            continue
        raise AssertionError(f"{setting}=-1 was taken")


def saved_and_loaded(kind):
    model, loss_of = problem()
    optimiser = kind(model.parameters())
    falls(model, loss_of, optimiser)
    again = kind(copy.deepcopy(model).parameters())
    again.load_state_dict(optimiser.state_dict())
    for one, other in zip(again.param_groups, optimiser.param_groups, strict=True):
        assert one["made_by"] == other["made_by"]
    torch.testing.assert_close(again.state_dict()["state"], optimiser.state_dict()["state"])


def lookahead(kind):
    model, loss_of = problem()
    falls(model, loss_of, Lookahead(kind(model.parameters()), pullback_momentum="none"))


def sharpness_aware(kind):
    model, loss_of = problem()

    def step(optimiser, loss_of, loss):
        loss.backward()
        optimiser.first_step(zero_grad=True)
        loss_of().backward()
        optimiser.second_step(zero_grad=True)

    falls(model, loss_of, SAM(model.parameters(), kind), step=step)


def projected_conflicting_gradients(kind):
    model, loss_of = problem()

    def step(optimiser, loss_of, loss):
        optimiser.pc_backward([loss, loss_of() + 0.01 * sum(p.square().sum() for p in model.parameters())])
        optimiser.step()

    falls(model, loss_of, PCGrad(kind(model.parameters())), step=step)


def trac(kind):
    model, loss_of = problem()
    falls(model, loss_of, TRAC(kind(model.parameters())), steps=200)


def orthogonal_gradients(kind):
    model, loss_of = problem()
    falls(model, loss_of, OrthoGrad(kind(model.parameters())), steps=500)


CHECKS = [
    float32, bfloat16, a_module_instead_of_parameters, closure, missing_gradients_in_some_groups, zero_gradient,
    scalar_parameter, sparse_gradients_of_embeddings, sparse_gradients_of_matrices_are_refused,
    complex_parameters_are_trained, settings_below_zero_are_refused,
    saved_and_loaded, lookahead, sharpness_aware, projected_conflicting_gradients, trac, orthogonal_gradients,
]  # fmt: skip


def main() -> int:
    warnings.filterwarnings("ignore", message=".*its atom is told from shape alone")
    failures = 0
    for check in CHECKS:
        for kind in (StochasticAGD,) if check is trac else (AGD, StochasticAGD):
            try:
                check(kind)
                result = "passes"
            except Exception as error:
                failures += 1
                result = f"FAILS: {type(error).__name__}: {error}".partition("\n")[0]
            print(f"{check.__name__.replace('_', ' '):40} {kind.__name__:15} {result}")
    for name, reason in NOT_APPLICABLE.items():
        print(f"{name:40} {'both':15} does not apply: {reason}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
