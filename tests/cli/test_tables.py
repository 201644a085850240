"""Tables fit a terminal of 80 columns, and no word is broken or cut."""

import pytest
from torch import nn

from autogd import explain
from autogd.cli.main import main
from autogd.cli.study import final_table
from autogd.report.tables import COLUMNS

COMMANDS = {
    "reproduce": ["reproduce", "--list", "--scale", "laptop"],
    "trust": ["bench", "trust", "--report"],
    "quality": ["bench", "quality", "--report"],
    "long": ["bench", "quality", "--report", "--long"],
    "check": ["check", "--draws", "3"],
    "scale": ["bench", "scale", "--ranks", "1", "64"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_table_fits_and_keeps_its_words(name, capsys, monkeypatch):
    printed = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(COMMANDS[name]) == 0
        lines = capsys.readouterr().out.splitlines()
        printed[width] = [line for line in lines if "Counterexample" not in line]  # prose, which the terminal wraps
    assert max(map(len, printed[80])) <= 80
    assert "…" not in "".join(printed[80])
    narrow, wide = (sorted(" ".join(printed[width]).replace("─", "").split()) for width in (80, 200))
    assert narrow == wide


def test_a_comparison_with_many_seeds_fits(capsys):
    from rich.console import Console

    row = {"label": "schedulefree-adamw lr=0.001", "runs": 3, "diverged": 1, "epochs": 20}
    for name in COLUMNS:
        row |= {f"{name}_mean": 0.98765, f"{name}_spread": 0.01234}
    Console(width=80).print(final_table([row, row]))
    out = capsys.readouterr().out
    assert "…" not in out
    assert "schedulefree-adamw lr=0.001" in out
    assert "98.77% ± 1.23" in out


def test_a_model_with_long_names_is_explained_in_80_columns():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.ModuleDict({"a_rather_long_name": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})
    lines = str(explain(model)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "a_rather_long_name.layers.1.self_attn.in_proj_weight" in lines
