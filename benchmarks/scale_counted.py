"""Count bytes and FLOPs of one step at the shapes of GPT-2 small, on 1, 2 and 4 gloo processes; for docs/scale.md.

Matrices travel in bfloat16, and are multiplied in it too, since a CPU multiplies float16 slowly: 10 minutes and 4 GB.
Run: python benchmarks/scale_counted.py
"""

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "records" / "scale-counted.jsonl"
sys.path.insert(0, str(ROOT / "tests"))


def main() -> None:
    import many_ranks

    with tempfile.TemporaryDirectory() as folder:
        for world in (1, 2, 4):
            wrong = many_ranks.run(world, "count_cases", ["gpt2_small"], folder)
            assert not any(wrong.values()), many_ranks.told(wrong)
        rows = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    RECORDS.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(RECORDS.read_text())


if __name__ == "__main__":
    main()
