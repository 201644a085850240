"""How much time does `import autogd` add to `import torch`? `python benchmarks/import_time.py`; the goal is 0.3 s."""

import subprocess
import sys

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


def measure() -> list[float]:
    """Best of several fresh processes: torch (wall, processor), autogd on top (wall, processor), in seconds."""
    runs = [
        [float(number) for number in subprocess.check_output([sys.executable, "-c", SCRIPT], text=True).split()]
        for _ in range(REPEATS)
    ]
    return [min(column) for column in zip(*runs, strict=True)]


if __name__ == "__main__":
    torch_wall, torch_processor, wall, processor = measure()
    print(f"import torch   {torch_wall:6.3f} s ({torch_processor:.3f} s of processor time)")
    print(f"import autogd  {wall:6.3f} s ({processor:.3f} s of processor time) on top; the goal is {GOAL} s")
