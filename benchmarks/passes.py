"""Figures of docs/speed.md: two passes compiled by inductor; StochasticAGD in C and with torch's operations.

Run: python benchmarks/passes.py [mlp|resnet18]
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from autogd import AGD, StochasticAGD
from autogd.engine import bundles, library
from autogd.engine.backend import Step
from autogd.experiments.speed.step_cost import with_gradients
from autogd.experiments.speed.tensors import SETS
from autogd.models import GPT

CPU = torch.device("cpu")


def best(calls: dict[str, Callable[[], object]], rounds: int = 20) -> dict[str, float]:
    """The best milliseconds of each call; they take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - begin))
    return found


@torch.no_grad()
def compiled(name: str) -> None:
    """AGD's two passes, and each of them as one graph of inductor."""
    model = with_gradients(SETS[name](), CPU)
    optimiser = AGD(model)
    optimiser.step()
    (backend,) = optimiser._backends.values()
    plan = backend.plan
    grads, factors = [p.grad for p in plan.parameters], torch.full_like(plan.reach, 1e-9)

    def both() -> None:
        backend.measure(grads)
        backend.update(grads, Step(factors))

    def norms(grads: list[Tensor]) -> Tensor:
        squares = (atom.cut(grad).square() for grad, atom in zip(grads, plan.atoms, strict=True))
        return torch.cat([s.sum(atom.inner).flatten() for s, atom in zip(squares, plan.atoms, strict=True)]).sqrt()

    def update(grads: list[Tensor], factors: Tensor) -> None:
        for weight, grad, atom, c in zip(plan.parameters, grads, plan.atoms, factors.split(plan.sizes), strict=True):
            atom.cut(weight).add_(atom.cut(grad) * atom.spread(c))

    fast_norms, fast_update = (torch.compile(f, fullgraph=True, dynamic=False) for f in (norms, update))
    begin = time.perf_counter()
    torch.testing.assert_close(fast_norms(grads), backend.measure(grads).gradients)
    fast_update(grads, factors)
    print(f"{name}: compiled in {time.perf_counter() - begin:.0f} s")
    calls = {
        "norms": lambda: backend.measure(grads),
        "norms, inductor": lambda: fast_norms(grads),
        "norms and update": both,
        "update, inductor": lambda: fast_update(grads, factors),
    }
    print("  " + ", ".join(f"{what}: {ms:.2f} ms" for what, ms in best(calls).items()))


def stochastic() -> None:
    """StochasticAGD in C; by torch's operations, with tensors of one shape stacked, and with each alone."""
    room, load = bundles.ROOM, library.library
    for name, model in {
        "1,000 tiny tensors": SETS["tiny"](),
        "GPT of width 96": GPT(65, 64, depth=3, width=96),
        "GPT of width 256": GPT(65, 64, depth=4, width=256),
        "MLP, 32 layers": SETS["mlp"](),
        "ResNet-18": SETS["resnet18"](),
    }.items():
        with_gradients(model, CPU)
        steps: dict[str, Callable[[], object]] = {}
        for how, bundles.ROOM, library.library in (
            ("in C", room, load),
            ("torch, stacked", room, lambda: None),
            ("torch, alone", 0, lambda: None),
        ):
            optimiser = StochasticAGD(model)
            optimiser.step()  # which way to go is worked out here
            steps[how] = optimiser.step
        print(f"{name}: " + ", ".join(f"{how} {ms:.1f} ms" for how, ms in best(steps, 5).items()), flush=True)
    bundles.ROOM, library.library = room, load


if __name__ == "__main__":
    stochastic()
    for name in sys.argv[1:] or ["mlp", "resnet18"]:
        compiled(name)
