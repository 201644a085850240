"""Write everything in README.md and docs/ that comes from records: tables, verdicts and figures. Trains nothing.

Run: python benchmarks/pages.py
"""

import runpy
from pathlib import Path

SCRIPTS = ("quality_page", "trust_page", "results_page", "traces", "transfer", "scale_page", "front_page")


def main() -> None:
    for name in SCRIPTS:
        print(f"benchmarks/{name}.py", flush=True)
        runpy.run_path(str(Path(__file__).parent / f"{name}.py"), run_name="__main__")


if __name__ == "__main__":
    main()
