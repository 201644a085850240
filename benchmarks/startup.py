"""What is paid once: importing `autogd` after torch, and reading a forward pass at GPT-2 small's shapes.

Run: python benchmarks/startup.py [import | reading]; the goal for the import is 0.3 s.
"""

import subprocess
import sys
import time

REPEATS = 7
GOAL = 0.3
SCRIPT = """
import time
start = time.perf_counter(), time.process_time()
import torch
middle = time.perf_counter(), time.process_time()
import autogd
end = time.perf_counter(), time.process_time()
print(middle[0] - start[0], middle[1] - start[1], end[0] - middle[0], end[1] - middle[1])
"""


def measure_import() -> list[float]:
    """Best of several fresh processes: torch (wall, processor), autogd on top (wall, processor), in seconds."""
    runs = [
        [float(number) for number in subprocess.check_output([sys.executable, "-c", SCRIPT], text=True).split()]
        for _ in range(REPEATS)
    ]
    return [min(column) for column in zip(*runs, strict=True)]


def show_import() -> None:
    torch_wall, torch_processor, wall, processor = measure_import()
    print(f"import torch   {torch_wall:6.3f} s ({torch_processor:.3f} s of processor time)")
    print(f"import autogd  {wall:6.3f} s ({processor:.3f} s of processor time) on top; the goal is {GOAL} s")


def show_reading() -> None:
    """The cost of reading a pass, beside the first step."""
    import torch
    from torch.nn import functional as F

    from autogd import StochasticAGD
    from autogd.models import GPT
    from autogd.reading.graph import read_graph

    torch.manual_seed(0)
    model = GPT(vocabulary=50257, context=128, depth=12, width=768, heads=12, bias=True, affine=True)
    tokens = torch.randint(50257, (1, 128))

    clock = time.perf_counter()
    optimiser = StochasticAGD(model)
    built = time.perf_counter() - clock

    clock = time.perf_counter()
    output = model(tokens)
    F.cross_entropy(output[0], tokens[0]).backward()
    optimiser.step()
    first = time.perf_counter() - clock

    output = model(tokens)
    clock = time.perf_counter()
    reading = read_graph(output, dict(model.named_parameters()))
    reading.chain(reading.atoms)
    read = time.perf_counter() - clock
    print(f"construction {built:.3f} s, first step {first:.2f} s, of which reading {read:.4f} s: {read / first:.2%}")


if __name__ == "__main__":
    for what in sys.argv[1:] or ("import", "reading"):
        {"import": show_import, "reading": show_reading}[what]()
