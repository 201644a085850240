"""Long workloads: rivals with a recipe, samples in passes, texts with a hash; on made-up data."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from autogd.experiments.quality import race as racing
from autogd.experiments.quality import records as recorder
from autogd.experiments.quality.grid import is_tuned, trial
from autogd.experiments.quality.nets import TiedGPT
from autogd.experiments.quality.race import POINTS, Cell, Outcome, race
from autogd.experiments.quality.recipe import RIVALS, Recipe
from autogd.experiments.quality.records import COMMITTED_LONG, Recorder, Records
from autogd.experiments.quality.sources import SOURCES, Source, library
from autogd.experiments.quality.summary import LONG_OPTIMISERS
from autogd.experiments.quality.workloads import EVERY, LONG, WORKLOADS


def made(cell, loss=1.0, data=""):
    return Outcome(cell, EVERY[cell.workload].steps, [loss], [math.nan], [loss], [0.1], 1.0, data)


@pytest.fixture
def small(monkeypatch):
    """The long workloads with ten steps and small sizes, on made-up data; drawn samples are recorded."""
    drawn = []

    def images(_):
        inputs = torch.randn(40, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(40) % 10

        def vary(at, draws):
            drawn.append(at)
            return inputs[at] + 0.1 * torch.randn(inputs[at].shape, generator=draws), labels[at]

        return Source(lambda at: (inputs[at], labels[at]), 40, (inputs, labels), vary=vary)

    def text(_):
        codes = torch.arange(400) % 7
        windows = lambda at: (codes[at.unsqueeze(1) + torch.arange(9)], codes[at.unsqueeze(1) + 1 + torch.arange(9)])  # noqa: E731
        return Source(windows, 40, windows(torch.arange(300, 350)), digest="sha256:made-up")

    for name, workload in LONG.items():
        picture = name.startswith("cifar")
        monkeypatch.setitem(SOURCES, workload.data, images if picture else text)
        model = workload.model if picture else lambda: TiedGPT(7, width=8, layers=1, heads=2)
        monkeypatch.setitem(LONG, name, replace(workload, steps=10, batch=12, model=model))
    return drawn


@pytest.mark.parametrize("optimiser", [*RIVALS, "agd-stochastic"])
@pytest.mark.parametrize("workload", ["cifar-3e", "byte-gpt"])
def test_a_race_lowers_the_loss_and_repeats_to_the_bit(small, workload, optimiser):
    ours = optimiser == "agd-stochastic"
    cell = Cell(workload, optimiser, None if ours else 0.1, "constant" if ours else "cosine")
    outcome = race(cell)
    assert len(outcome.loss) == POINTS
    assert outcome.train[-1] < outcome.train[0]
    assert 0 <= outcome.accuracy[-1] <= 1
    assert race(cell).loss == outcome.loss
    assert outcome.data == ("sha256:made-up" if workload == "byte-gpt" else "")


def test_a_pass_draws_every_sample_at_most_once(small):
    race(Cell("cifar-3e", "sgd", 0.1, "cosine"))
    # three batches of 12 fill a pass over 40 samples
    passes = [torch.cat(small[i : i + 3]) for i in (0, 3, 6)]
    assert all(len(each.unique()) == 36 for each in passes)
    assert not torch.equal(passes[0], passes[1])


@pytest.mark.parametrize(("workload", "calls"), [("char-gpt", 0), ("byte-gpt", 0), ("cifar-3e", 1)])
def test_a_recipe_s_network_keeps_its_own_weights(small, workload, calls, monkeypatch):
    initialised = []
    monkeypatch.setattr(racing, "initialise_", initialised.append)
    race(Cell(workload, "agd-stochastic"))
    assert len(initialised) == calls


def test_the_schedule_warms_up_and_falls_along_a_cosine():
    recipe = Recipe(floor=0.1, warm=100)
    share = [recipe.share(step, 2000) for step in range(2000)]
    assert share[0] == pytest.approx(1 / 101)
    assert share[49] == pytest.approx(50 / 101)
    assert share[100] == 1.0
    assert share[1050] == pytest.approx(0.55)  # halfway down: the mean of 1 and a tenth
    assert max(share) == 1.0
    assert share[-1] == pytest.approx(0.1, abs=1e-5)
    assert share[100:] == sorted(share[100:], reverse=True)
    assert Recipe(floor=0.0).share(1169, 1170) == pytest.approx(0.0, abs=1e-4)


def test_clipping_holds_the_gradient_of_a_rival():
    workload = replace(WORKLOADS["diabetes"], recipe=Recipe(clip=0.5))
    model = nn.Linear(4, 1)
    before = model.weight.detach().clone(), model.bias.detach().clone()
    batch = torch.randn(8, 4), 1000 * torch.ones(8, 1)
    racing._step(model, torch.optim.SGD(model.parameters(), 1.0), workload, batch, workload.recipe)
    moved = torch.cat([(new.detach() - old).flatten() for new, old in zip(model.parameters(), before, strict=True)])
    assert float(moved.norm()) == pytest.approx(0.5, rel=1e-4)


def test_decay_is_for_matrices_and_betas_are_the_recipe_s():
    recipe = Recipe(betas=(0.8, 0.9), decay=0.2)
    model = TiedGPT(7, width=8, layers=1, heads=2)
    adamw, sgd, muon = (recipe.build(name, model, 1e-2) for name in ("adamw", "sgd", "muon"))
    assert [(group["weight_decay"], group["betas"]) for group in adamw.param_groups] == [
        (0.2, (0.8, 0.9)),
        (0, (0.8, 0.9)),
    ]
    assert {p.dim() for p in adamw.param_groups[0]["params"]} == {2}
    assert {p.dim() for p in adamw.param_groups[1]["params"]} == {1}
    assert [(group["weight_decay"], group["momentum"]) for group in sgd.param_groups] == [(5e-4, 0.9), (0, 0.9)]
    matrices, rest = muon.param_groups
    assert (matrices["weight_decay"], rest["weight_decay"], rest["betas"]) == (0.2, 0.0, (0.8, 0.9))
    assert {id(p) for p in matrices["params"]} == {id(p) for p in model.blocks.parameters() if p.dim() == 2}
    original = recipe.build("muon-original", model, 0.02)
    assert [group["lr"] for group in original.param_groups] == [0.02, pytest.approx(0.003)]


def test_a_rival_without_rates_on_a_workload_does_not_run_there():
    assert list(trial("char-gpt", "sgd", made)) == []
    assert list(trial("char-gpt", "adam", made)) == []
    assert [outcome.cell for outcome in trial("char-gpt", "dog", made, (0,))] == [Cell("char-gpt", "dog")]
    assert is_tuned("cifar-3e", "sgd")


def test_one_file_holds_many_workloads_and_the_hash(tmp_path):
    records = Records(tmp_path / "long.jsonl")
    one, two = made(Cell("char-gpt", "agd"), 1.0), made(Cell("byte-gpt", "agd"), 2.0, "sha256:x")
    for outcome in (one, two, made(Cell("char-gpt", "agd"), 3.0)):
        records.add(outcome)
    assert len((tmp_path / "long.jsonl").read_text().splitlines()) == 2
    assert records.find(one.cell).loss == [3.0]
    assert repr(records.find(two.cell)) == repr(two)
    assert [outcome.cell for outcome in records.of("byte-gpt")] == [two.cell]


def test_a_run_on_another_text_than_the_records_is_refused(small, tmp_path, monkeypatch):
    raced = []
    monkeypatch.setattr(recorder, "race", lambda cell, *_: raced.append(cell) or made(cell, 1.0, "sha256:made-up"))
    records = Records(tmp_path / "long.jsonl")
    records.add(made(Cell("byte-gpt", "adamw", 0.1, "cosine"), 1.0, "sha256:made-up"))
    Recorder(records)(Cell("byte-gpt", "agd-stochastic"))
    assert len(raced) == 1
    records.add(made(Cell("byte-gpt", "adamw", 0.1, "cosine"), 1.0, "sha256:other"))
    with pytest.raises(ValueError, match=r"byte-gpt: the records are of other data: they say .*sha256:other.*--fresh"):
        Recorder(records)(Cell("byte-gpt", "agd"))
    assert len(raced) == 1


def test_the_library_is_read_in_order_without_tests_and_tables(tmp_path):
    files = {"a.py": "a", "json/tool.py": "j", "test/x.py": "no", "json/tests/y.py": "no", "encodings/z.py": "no"}
    files |= {"_sysconfigdata_linux.py": "no", "b.txt": "no", "zip.py": "z"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert library(tmp_path, 100) == b"ajz"
    assert library(tmp_path, 2) == b"aj"


def test_bytes_are_read_once_and_the_rest_is_held_out():
    workload = LONG["byte-gpt"]
    source = SOURCES[workload.data](None)
    assert source.samples * 64 >= 5_000_000
    assert workload.steps * workload.batch <= source.samples  # one pass at most
    inputs, targets = source.batch(torch.tensor([0, 1]))
    assert torch.equal(inputs[0, 1:], targets[0, :-1])
    assert targets[0, -1] == inputs[1, 0]  # windows follow each other without a gap
    assert source.held_out[0].shape == (1000, 64)
    assert source.digest.startswith("sha256:")


def test_every_long_workload_names_data_and_rivals_that_are_known():
    assert not set(LONG) & set(WORKLOADS)
    for workload in LONG.values():
        assert workload.data in SOURCES
        assert workload.steps % POINTS == 0
        assert set(workload.rates) <= set(RIVALS)
        assert workload.recipe


def test_the_committed_long_records_are_of_the_workloads_as_they_are():
    assert Path(__file__).parents[2] / "records" / "quality-long.jsonl" == COMMITTED_LONG
    for name, workload in LONG.items():
        outcomes = list(Records(COMMITTED_LONG).of(name))
        assert len({outcome.data for outcome in outcomes}) <= 1
        for outcome in outcomes:
            assert outcome.cell.optimiser in LONG_OPTIMISERS
            assert outcome.steps == workload.steps
            assert len(outcome.loss) == POINTS
            assert bool(outcome.data) == (name == "byte-gpt")


@pytest.mark.data
@pytest.mark.skipif("AUTOGD_DATA" not in os.environ, reason="AUTOGD_DATA names no folder with tinyshakespeare.txt")
def test_char_gpt_draws_the_public_recipe_s_weights_and_batches(monkeypatch):
    """The training losses of the recipe's own script, with AdamW at 0.003 and seed 0, ten steps."""
    source = SOURCES[LONG["char-gpt"].data](None)
    assert source.held_out[0].shape == (1200, 64)
    held = tuple(part[:4] for part in source.held_out)
    monkeypatch.setitem(SOURCES, LONG["char-gpt"].data, lambda _: replace(source, held_out=held))
    monkeypatch.setitem(LONG, "char-gpt", replace(LONG["char-gpt"], steps=10))
    outcome = race(Cell("char-gpt", "adamw", 3e-3, "cosine"))
    said = [4.183962, 4.119073, 4.051058, 3.939690, 3.819385, 3.751682, 3.747087, 3.693353, 3.674625, 3.629279]
    assert outcome.train == pytest.approx(said, abs=2e-4)
