"""What a polar factor costs, and how far from one its singular values are: 3, 4 and 5 steps, and two inverses.

The matrices have singular values that fall as a power law from 1 to 1/1000, as momenta's do, in random directions.
`scale` is how many times its largest singular value a matrix is divided by at first: the rest of the reach is the
steps'. Times are the best of several, interleaved, and also in multiplications of square matrices of the smaller side.
Run: python benchmarks/polar.py
"""

import time

import torch

from autogd.geometry.norms import polar
from autogd.geometry.zolotarev import by_inversion

SHAPES = ((9, 64, 64), (9, 128, 128), (4, 256, 256), (1, 256, 1024), (1, 512, 512), (1, 768, 768))
STEPS = (3, 4, 5)
FLOORS = (1 / 50, 1 / 200, 1 / 500)


def draw(batch: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.logspace(0, -3, min(rows, columns), dtype=torch.float64)
    left = torch.linalg.qr(torch.randn(batch, rows, len(values), dtype=torch.float64))[0]
    right = torch.linalg.qr(torch.randn(batch, columns, len(values), dtype=torch.float64))[0]
    return ((left * values) @ right.mT).float(), values


def worst(result: torch.Tensor, matrices: torch.Tensor, values: torch.Tensor, floor: float) -> float:
    """How far from one the singular values are that were at least `floor` of the largest."""
    u, _, vh = torch.linalg.svd(matrices.double(), full_matrices=False)
    got = torch.linalg.vecdot(u, (result.double() @ vh.mT), dim=-2)
    return float((got[:, values >= floor] - 1).abs().max())


def times(matrices: torch.Tensor, square: torch.Tensor, rounds: int = 15) -> dict[int | str, float]:
    """The best seconds of each number of steps; under 0, of one multiplication; under z, of two inverses."""
    calls = {steps: lambda steps=steps: polar(matrices, steps) for steps in STEPS} | {0: lambda: square @ square}
    calls["z"] = lambda: inverted(matrices)
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def inverted(matrices: torch.Tensor) -> torch.Tensor:
    """By two inverses, whatever the size."""
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    factor = by_inversion(x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True))
    return factor.mT if matrices.shape[-2] > matrices.shape[-1] else factor


def main() -> None:
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads")
    heads = "".join(f"{f'error from 1/{round(1 / floor)}':>20}" for floor in FLOORS)
    print(f"{'matrices':>16} {'scale':>6} {'steps':>6}{heads} {'ms':>8} {'multiplications':>16}")
    for batch, rows, columns in SHAPES:
        matrices, values = draw(batch, rows, columns)
        best = times(matrices, torch.randn(batch, *2 * (min(rows, columns),)))
        scale = float((values**8).sum() ** (1 / 8))
        for steps in STEPS:
            errors = [worst(polar(matrices, steps), matrices, values, floor) for floor in FLOORS]
            cells = "".join(f"{error:20.3f}" for error in errors)
            cells += f"{1e3 * best[steps]:9.2f} {best[steps] / best[0]:16.1f}"
            print(f"{f'{batch}x{rows}x{columns}':>16} {scale:6.2f} {steps:6}{cells}")
        errors = [worst(inverted(matrices), matrices, values, floor) for floor in FLOORS]
        cells = "".join(f"{error:20.3f}" for error in errors) + f"{1e3 * best['z']:9.2f} {best['z'] / best[0]:16.1f}"
        print(f"{f'{batch}x{rows}x{columns}':>16} {scale:6.2f} {'inv.':>6}{cells}")
        # as an accelerator has it; a processor without bfloat16 units takes far longer, so no time is given
        errors = [worst(polar(matrices, products=torch.bfloat16), matrices, values, floor) for floor in FLOORS]
        cells = "".join(f"{error:20.3f}" for error in errors)
        print(f"{f'{batch}x{rows}x{columns}':>16} {scale:6.2f}  bfl16{cells}")


if __name__ == "__main__":
    main()
