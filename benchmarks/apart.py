"""How far do weights part from one process's, by rounding alone? For docs/howto/many_gpus.md.

StochasticAGD trains the network of tests/engine/test_meshes.py. Printed is the largest difference of a weight from one
process's: under FSDP2 on two gloo processes; on one process whose gradients are multiplied by 1 ± 1e-7, which is as far
as another order of adding up moves them; the same with momentum held in float32; and FSDP2 in float64.
Run: python benchmarks/apart.py
"""

import sys
import tempfile
from pathlib import Path

import torch

from autogd import StochasticAGD

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]
STEPS = (1, 3, 12, 50)


def with_momentum_in_float32(make):
    """An optimiser that is otherwise the same; momentum is bfloat16."""

    class Wide(make):
        def _prepare_state(self, backend, grads):
            super()._prepare_state(backend, grads)
            for parameter in backend.plan.parameters:
                self.state[parameter]["momentum"] = self.state[parameter]["momentum"].float()

    return Wide


def under_fsdp(rank, world, folder):
    """A case for `many_ranks`."""
    from rank_cases import EveryAtom, train

    for dtype in (torch.float32, torch.float64):
        found = {n: train(EveryAtom, StochasticAGD, "fsdp", steps=n, dtype=dtype)[0] for n in STEPS}
        if rank == 0:
            torch.save(found, f"{folder}/{dtype}")


def main() -> None:
    import many_ranks
    from rank_cases import EveryAtom, Moved, apart, in_float32_alone, train

    with tempfile.TemporaryDirectory() as folder:
        wrong = many_ranks.run(2, "apart", ["under_fsdp"], folder)
        assert not any(wrong.values()), many_ranks.told(wrong)
        single, double = (torch.load(f"{folder}/{dtype}") for dtype in (torch.float32, torch.float64))
    print("| steps | FSDP2 | one process, moved | moved, momentum in float32 | FSDP2 in float64 |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for n in STEPS:
        one = in_float32_alone(StochasticAGD, n)
        wide = [in_float32_alone(with_momentum_in_float32(make), n) for make in (StochasticAGD, Moved)]
        exact = train(EveryAtom, lambda model: StochasticAGD(model, process_group=False), steps=n)[0]
        each = ((single[n], one), (in_float32_alone(Moved, n), one), wide, (double[n], exact))
        print(f"| {n} | {' | '.join(f'{apart(*pair):.0e}' for pair in each)} |")


if __name__ == "__main__":
    main()
