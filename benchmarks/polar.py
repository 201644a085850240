"""The cost of a polar factor, and how far its singular values are from one: four polynomial steps, exact and rounded.

Singular values fall as a power law from 1 to 1/1000, as those of momenta do, in random directions. `scale` is the first
divisor of a matrix, relative to its largest singular value. Times are the best of several, interleaved; they are also
given in multiplications of square matrices of the smaller side. Last come 400 wide matrices, of rank 1 to 48, in
both half precisions: through their gram, with its restart.
Run: python benchmarks/polar.py
"""

import time

import torch

from autogd.geometry.polar import RESTARTS, ROUNDED, _through_gram, orthogonalise

SHAPES = ((9, 64, 64), (9, 128, 128), (4, 256, 256), (1, 256, 1024), (1, 512, 512), (1, 768, 768))
FLOORS = (1 / 50, 1 / 200, 1 / 500)
RANKS, SEEDS, FAR = (1, 2, 5, 10, 20, 30, 40, 48), 50, 0.155


def draw(batch: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.logspace(0, -3, min(rows, columns), dtype=torch.float64)
    left = torch.linalg.qr(torch.randn(batch, rows, len(values), dtype=torch.float64))[0]
    right = torch.linalg.qr(torch.randn(batch, columns, len(values), dtype=torch.float64))[0]
    return ((left * values) @ right.mT).float(), values


def worst(result: torch.Tensor, matrices: torch.Tensor, values: torch.Tensor, floor: float) -> float:
    """The largest distance from one, over singular values that were at least `floor` of the largest."""
    u, _, vh = torch.linalg.svd(matrices.double(), full_matrices=False)
    got = torch.linalg.vecdot(u, (result.double() @ vh.mT), dim=-2)
    return float((got[:, values >= floor] - 1).abs().max())


def times(matrices: torch.Tensor, square: torch.Tensor, rounds: int = 15) -> tuple[float, float]:
    """The best seconds of a polar factor and of one multiplication."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, call in enumerate((lambda: orthogonalise(matrices), lambda: square @ square)):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best[0], best[1]


def wide(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """The singular values, not zero, of the factors of 48 × 200 matrices: of every draw, those for 1 to 1/32."""
    values = torch.logspace(0, -1.5, rank, dtype=torch.float64)
    left, right = (torch.linalg.qr(torch.randn(SEEDS, n, rank, dtype=torch.float64))[0] for n in (48, 200))
    matrices = (left * values) @ right.mT
    matrices = (matrices / torch.linalg.matrix_norm(matrices, keepdim=True)).to(torch.bfloat16).to(dtype)
    return torch.linalg.vecdot(left, _through_gram(matrices, ROUNDED, RESTARTS).double() @ right, dim=-2)


def main() -> None:
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads")
    heads = "".join(f"{f'error from 1/{round(1 / floor)}':>20}" for floor in FLOORS)
    print(f"{'matrices':>16} {'scale':>6} {'steps':>8}{heads} {'ms':>8} {'multiplications':>16}")
    for batch, rows, columns in SHAPES:
        matrices, values = draw(batch, rows, columns)
        factor, product = times(matrices, torch.randn(batch, *2 * (min(rows, columns),)))
        name, scale = f"{batch}x{rows}x{columns}", float((values**8).sum() ** (1 / 8))
        # rounded as on an accelerator; no time, since a processor without float16 units is far slower
        for how, dtype in (("exact", None), ("float16", torch.float16)):
            result = orthogonalise(matrices, dtype)
            cells = "".join(f"{worst(result, matrices, values, floor):20.3f}" for floor in FLOORS)
            cost = f"{1e3 * factor:9.2f} {factor / product:16.1f}" if dtype is None else ""
            print(f"{name:>16} {scale:6.2f} {how:>8}{cells}{cost}")
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        got = [wide(rank, dtype) for rank in RANKS]
        far = sum(int(((each - 1).abs().amax(-1) > FAR).sum()) for each in got)
        least, most = min(float(each.min()) for each in got), max(float(each.max()) for each in got)
        print(f"48x200 in {dtype}: {far} of {len(RANKS) * SEEDS} further than {FAR}, from {least:.3f} to {most:.3f}")


if __name__ == "__main__":
    main()
