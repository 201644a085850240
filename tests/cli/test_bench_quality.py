"""`autogd bench quality`: the report from records, and what it runs and does not run."""

import json
import math

import pytest

from autogd.cli.main import main
from autogd.experiments.quality import records as recorder
from autogd.experiments.quality.race import Cell, Outcome
from autogd.experiments.quality.records import Records
from autogd.experiments.quality.workloads import EVERY, LONG


def made(cell, loss):
    curve = [loss * (2 - (i + 1) / 10) for i in range(10)]
    return Outcome(cell, EVERY[cell.workload].steps, curve, [math.nan] * 10, curve, [0.1] * 10, 2.0)


def fake(cell, *_):
    """Adam is best at 1e-3, where it ends at 1; ours ends at a half; a seed adds a little."""
    base = 0.5 if cell.lr is None else 1 + abs(math.log10(cell.lr) + 3)
    return made(cell, base + 0.01 * cell.seed)


@pytest.fixture
def raced(monkeypatch):
    cells = []
    monkeypatch.setattr(recorder, "race", lambda cell, *_: cells.append(cell) or fake(cell))
    return cells


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to run in, with only the records that the test makes."""
    monkeypatch.setattr("autogd.cli.bench_quality.COMMITTED", tmp_path / "committed.jsonl")
    monkeypatch.setattr("autogd.cli.bench_quality.COMMITTED_LONG", tmp_path / "long.jsonl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ONE = ("--workloads", "diabetes", "--optimisers", "adam", "agd-stochastic")


def report(capsys, *more):
    assert main(["bench", "quality", "--report", "--json", *ONE, *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_runs_what_is_missing_and_prints_the_table(folder, raced, capsys):
    assert main(["bench", "quality", *ONE]) == 0
    out = capsys.readouterr().out
    assert "0.001, constant" in out
    assert "1.010 ± 0.010" in out
    assert "agd-stochastic against adam: below on 1, within spread on 0, above on 0" in out
    assert len(raced) == len(set(raced))
    assert (folder / "runs" / "quality" / "diabetes.jsonl").exists()
    raced.clear()
    assert main(["bench", "quality", *ONE]) == 0
    assert raced == []


def test_the_report_trains_nothing_and_agrees_with_the_records(folder, raced, capsys):
    assert main(["bench", "quality", *ONE, "--out", "here"]) == 0
    capsys.readouterr()
    raced.clear()
    said = report(capsys, "--out", "here")
    assert raced == []
    ours, adam = said["standings"]
    assert (adam["optimiser"], adam["lr"], adam["schedule"], adam["settled"]) == ("adam", 0.001, "constant", True)
    assert ours["loss"] == pytest.approx(0.51)
    assert ours["ratio"] == pytest.approx(0.51 / 1.01)
    assert said["tally"] == [{"optimiser": "agd-stochastic", "rival": "adam", "below": 1, "within": 0, "above": 0}]


def test_what_is_published_is_not_run_again_unless_it_is_asked_for(folder, raced, capsys):
    committed = Records(folder / "committed.jsonl")
    for seed in range(3):
        committed.add(fake(Cell("diabetes", "agd-stochastic", seed=seed)))
    ours = ["bench", "quality", "--workloads", "diabetes", "--optimisers", "agd-stochastic", "--json"]
    assert main(ours) == 0
    assert raced == []
    before = (folder / "committed.jsonl").read_text()
    assert main([*ours, "--fresh", "--seeds", "0", "1"]) == 0
    assert [cell.seed for cell in raced] == [0, 1]
    assert (folder / "committed.jsonl").read_text() == before


def test_a_stop_keeps_every_finished_run(folder, raced, monkeypatch, capsys):
    def stopped(cell, *_):
        if len(raced) == 4:
            raise KeyboardInterrupt
        raced.append(cell)
        return fake(cell)

    monkeypatch.setattr(recorder, "race", stopped)
    assert main(["bench", "quality", *ONE]) == 130
    said = capsys.readouterr().err
    assert "runs/quality has every finished run" in " ".join(said.split())
    assert [outcome.cell for outcome in Records(folder / "runs" / "quality").of("diabetes")] == raced


def test_long_runs_each_workload_s_own_rates_with_one_seed(folder, raced, capsys):
    assert main(["bench", "quality", "--long", "--out", "here.jsonl", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["standings"]
    assert list(dict.fromkeys(each["workload"] for each in said)) == list(LONG)
    rated = [cell for cell in raced if cell.lr is not None]
    assert sorted((cell.workload, cell.optimiser, cell.lr) for cell in rated) == sorted(
        (name, optimiser, lr) for name, each in LONG.items() for optimiser in each.rates for lr in each.rates[optimiser]
    )
    assert {(cell.schedule, cell.seed) for cell in rated} == {("cosine", 0)}
    assert [cell for cell in raced if cell.lr is None] == [Cell(name, "agd-stochastic") for name in LONG]
    assert {"adam", "dog"}.isdisjoint(cell.optimiser for cell in raced)
    raced.clear()
    assert main(["bench", "quality", "--long", "--out", "here.jsonl", "--json"]) == 0
    assert raced == []


def test_a_long_table_names_adamw(folder, raced, capsys):
    words = ["--long", "--workloads", "char-gpt", "--markdown", "--figure", "picture.png"]
    assert main(["bench", "quality", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| ÷ AdamW's |" in lines[0]
    assert lines[2].startswith("| char-gpt | agd-stochastic |  | 0.500 (1 seed) | 0.500 |")
    assert lines[3].startswith("|  | adamw | 0.001, cosine (at an edge) | 1.000 (1 seed) | 1.000 |")
    assert "|  | muon-original | 0.02, cosine (no grid) |" in "\n".join(lines)
    assert (folder / "picture.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(("words", "file"), [((), "committed.jsonl"), (("--long",), "long.jsonl")])
def test_an_installed_package_says_where_the_records_are(folder, capsys, words, file):
    assert main(["bench", "quality", "--report", *words]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"{file}: there is no record of these. The published records are in the folder `records`" in said
    assert f"name its records/{file} with --out" in said


def test_records_without_these_say_how_to_run_them(folder, capsys):
    Records(folder / "long.jsonl").add(made(Cell("char-gpt", "agd-stochastic"), 1.0))
    assert main(["bench", "quality", "--report", "--long", "--workloads", "byte-gpt"]) == 1
    assert "no record of these. Leave --report out" in " ".join(capsys.readouterr().err.split())


def test_markdown_and_the_figure(folder, raced, capsys):
    assert main(["bench", "quality", *ONE, "--out", "here", "--markdown", "--figure", "picture.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| diabetes | agd-stochastic |  | 0.510 ± 0.010 | 0.505 |")
    assert lines[3].startswith("|  | adam | 0.001, constant | 1.010 ± 0.010 | 1.000 |")
    assert (folder / "picture.png").read_bytes()[1:4] == b"PNG"


def test_fewer_seeds_and_lost_runs_are_told(folder, capsys):
    records = Records(folder / "here")
    records.add(made(Cell("diabetes", "agd-stochastic"), 1.0))
    records.add(made(Cell("diabetes", "adam", 1e-3), math.inf))
    assert main(["bench", "quality", "--report", *ONE, "--out", "here", "--figure", "picture.png"]) == 0
    out = capsys.readouterr().out
    assert "1.000 (1 seed)" in out
    assert "lost (1 of 1)" in out
    assert "(at an edge)" in " ".join(out.split())
    ours, adam = report(capsys, "--out", "here")["standings"]
    assert (adam["loss"], ours["ratio"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workloads", "chess"], "workloads: chess: not known; choose from fcn-8"),
        (["--optimisers", "adagrad"], "optimisers: adagrad: not known; choose from agd-stochastic"),
        (["--report"], "there is no record of these."),
        (["--long", "--workloads", "gpt"], "workloads: gpt: not known; choose from char-gpt"),
        (["--long", "--optimisers", "adam"], "optimisers: adam: not known; choose from agd-stochastic"),
    ],
)
def test_errors_name_the_offender_and_the_way_out(folder, capsys, words, message):
    assert main(["bench", "quality", *words]) == 1
    assert message in capsys.readouterr().err


def test_help_of_a_measurement_has_an_example_and_json(capsys):
    for name in ("quality", "zoo"):
        with pytest.raises(SystemExit) as stop:
            main(["bench", name, "--help"])
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert f"example: autogd bench {name}" in out
        assert "--json" in out
