"""Write the tables and figures of docs/scale.md: the model's, beside what `benchmarks/scale_counted.py` has counted.

Run: python benchmarks/scale_page.py
"""

import json
from pathlib import Path

from autogd.experiments.scale import costs, tensors_of
from autogd.experiments.speed.tensors import SHAPES
from autogd.report.markdown import filled
from autogd.report.scale import draw_scale, markdown

ROOT = Path(__file__).parents[1]
PAGE, IMAGES, RECORDS = ROOT / "docs" / "scale.md", ROOT / "docs" / "images", ROOT / "records" / "scale-counted.jsonl"


def counted():
    """A row a rank."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def planned(name, *ranks):
    """The model's costs."""
    tensors = tensors_of(SHAPES[name]())
    return [cost for n in ranks for cost in costs(tensors, n)]


if __name__ == "__main__":
    llama, gpt2 = planned("llama-3-8b", 8, 64, 256, 1024, 4096), planned("gpt2-small", *(2**i for i in range(7)))
    tables = {"llama-3-8b": llama, "gpt2-small": [cost for cost in gpt2 if cost.ranks in (4, 8)]}
    PAGE.write_text(filled(PAGE.read_text(), {name: markdown(found) for name, found in tables.items()}, PAGE))
    (IMAGES / "scale.png").write_bytes(draw_scale(llama))
    (IMAGES / "scale_gpt2.png").write_bytes(draw_scale(gpt2, counted()))
