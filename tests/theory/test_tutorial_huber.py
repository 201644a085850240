import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorial_huber.md"


def test_every_block_of_the_tutorial_runs_and_its_assertions_hold():
    names = {"__name__": "tutorial"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 8
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, block {number + 1}", "exec"), names)
