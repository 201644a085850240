"""What real gloo processes do: how far rounding carries their weights apart, and the bytes and FLOPs of a step.

    python benchmarks/ranks.py apart      a table for docs/howto/many_gpus.md
    python benchmarks/ranks.py counted    records for docs/scale.md: 10 minutes and 4 GB

`apart` trains the network of tests/rank_cases.py by StochasticAGD. It prints the largest difference of a weight
from one process's: under FSDP2 on two processes; on one process whose gradients are multiplied by 1 ± 1e-7, which is as
far as another order of adding up moves them; the same with momentum held in float32; and FSDP2 in float64.
`counted` takes one step at the shapes of GPT-2 small on 1, 2 and 4 processes. Matrices travel in bfloat16, and are
multiplied in it too, since a CPU multiplies float16 slowly.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

from autogd import StochasticAGD

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "records" / "scale-counted.jsonl"
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


def show_apart() -> None:
    """Rounding, as a table."""
    import many_ranks
    from rank_cases import EveryAtom, Moved, apart, in_float32_alone, train

    with tempfile.TemporaryDirectory() as folder:
        wrong = many_ranks.run(2, "ranks", ["under_fsdp"], folder)
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


def count() -> None:
    """Bytes and FLOPs, a row a rank."""
    import many_ranks

    with tempfile.TemporaryDirectory() as folder:
        for world in (1, 2, 4):
            wrong = many_ranks.run(world, "count_cases", ["gpt2_small"], folder)
            assert not any(wrong.values()), many_ranks.told(wrong)
        rows = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    RECORDS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(RECORDS.read_text())


if __name__ == "__main__":
    {"apart": show_apart, "counted": count}[sys.argv[1]]()
