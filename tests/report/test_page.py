import base64
import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from autogd.cli.main import main
from autogd.report import draw, group_runs, summarise
from autogd.report.page import page
from autogd.training import Config, Run
from patience import run_child

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
]  # fmt: skip


def recorded(path, epochs=4, final=0.9, summary=True, **settings):
    """The folder of a run, without the training."""
    run = Run.create(Config(epochs=epochs, **settings).resolved(), path)
    for epoch in range(1, epochs + 1):
        numbers = {"objective": 0.5 / epoch, "train_accuracy": final * epoch / epochs, "seconds": 1.0}
        numbers |= {"test_accuracy": final * epoch / epochs}
        for name in ("learning_rate", "update_size"):
            numbers |= {f"{name}_min": 0.01 / epoch, f"{name}_mean": 0.02 / epoch, f"{name}_max": 0.04 / epoch}
        run.append({"epoch": epoch, **numbers})
    if summary:
        run.write_summary({"status": "finished", "error": None, "parameters": 1234, "torch": "2"})
    return run


@pytest.fixture
def runs(tmp_path):
    return [
        recorded(tmp_path / "runs" / "a0", final=0.90),
        recorded(tmp_path / "runs" / "a1", final=0.94, seed=1),
        recorded(tmp_path / "runs" / "b0", final=0.5, optimiser="adam", lr=0.1, summary=False),
    ]


def test_runs_that_differ_by_their_seed_alone_are_one_row_with_mean_and_spread(runs):
    rows = summarise(group_runs(runs))
    assert [row["label"] for row in rows] == ["agd-stochastic", "adam lr=0.1"]
    assert rows[0]["runs"] == 2
    assert rows[0]["test_accuracy_mean"] == pytest.approx(0.92)
    assert rows[0]["test_accuracy_spread"] == pytest.approx(0.04 / 2**0.5)
    assert rows[1]["test_accuracy_spread"] is None


def test_a_diverged_run_stays_out_of_the_means(tmp_path):
    good, bad = recorded(tmp_path / "a"), recorded(tmp_path / "b", seed=1, final=0.1, summary=False)
    bad.write_summary({"status": "diverged", "error": "step 3: the loss is nan"})
    (row,) = summarise(group_runs([good, bad]))
    assert row["diverged"] == 1
    assert row["test_accuracy_mean"] == pytest.approx(0.9)
    assert "step 3: the loss is nan" in page([good, bad])


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]


def test_the_page_fetches_nothing_and_fits_a_phone(runs):
    text = page(runs)
    reader = Reader()
    reader.feed(text)
    assert reader.tags.count("img") == 4
    assert all(address.startswith("data:") for address in reader.addresses)
    assert "//" not in re.sub(r"base64,[^\"]*", "", text)
    assert 'name="viewport" content="width=device-width' in text


def test_what_a_run_is_called_cannot_write_into_the_page(tmp_path):
    run = recorded(tmp_path / "<script>alert(1)<", optimiser="<b>")
    assert "<script>" not in page([run])
    assert "<b>" not in page([run])


def test_a_run_without_an_epoch_can_be_reported(tmp_path):
    run = Run.create(Config().resolved(), tmp_path / "young")
    assert "unfinished, 0 of 20 epochs" in page([run])


def test_figures_come_in_both_formats(runs):
    groups = group_runs(runs)
    assert draw(groups, "png").startswith(b"\x89PNG")
    assert b"<svg" in draw(groups, "svg")


def test_the_command_takes_runs_and_folders_of_runs(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert main(["report", str(runs[0].path), "--out", str(out)]) == 0
    assert "1 run: " in capsys.readouterr().out
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "no run is here" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_the_figures_show_in_a_browser_and_no_error_is_logged(runs, tmp_path):
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    shot = tmp_path / "shot.png"
    flags = [*QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=400,2400", f"--screenshot={shot}"]
    done = run_child([CHROMIUM, *flags, out.as_uri()])
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stderr
    from PIL import Image

    with Image.open(shot) as image:
        pixels = image.convert("RGB")
        assert pixels.width == 400
        # our first two colours: a broken image would not show the lines of the two groups
        colours = {colour for _, colour in pixels.getcolors(maxcolors=1 << 24)}
    for wanted in ((11, 61, 145), (230, 115, 10)):
        assert any(sum(abs(a - b) for a, b in zip(wanted, seen, strict=True)) < 30 for seen in colours)


def test_every_picture_is_a_whole_png(runs):
    for data in re.findall(r"data:image/png;base64,([^\"]*)", page(runs)):
        assert base64.b64decode(data).endswith(b"IEND\xaeB`\x82")


def test_a_seed_counts_once_and_a_run_without_an_epoch_not_at_all(tmp_path):
    once, again = recorded(tmp_path / "a", final=0.9), recorded(tmp_path / "b", final=0.9)
    ghost = Run.create(Config(epochs=4).resolved(), tmp_path / "ghost")
    (row,) = summarise(group_runs([once, again, ghost]))
    assert (row["runs"], row["repeated"]) == (1, 1)
    assert row["test_accuracy_spread"] is None
    text = page([once, again, ghost])
    assert "Not counted: 1 without an epoch, 1 of a seed that another run with the same settings has." in text


def test_of_two_runs_of_a_seed_the_longer_counts(tmp_path):
    whole = recorded(tmp_path / "whole", final=0.9)
    half = Run.create(Config(epochs=4).resolved(), tmp_path / "half")
    half.append({**whole.metrics()[0]})
    (row,) = summarise(group_runs([whole, half]))
    assert row["epochs"] == 4


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_sixty_series_keep_the_panels_and_colour_the_best_eight(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    runs = [recorded(tmp_path / f"r{i}", optimiser="adam", lr=(i + 1) / 1000) for i in range(60)]
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))[1])
    draw(group_runs(runs), "png")
    (figure,) = drawn
    assert len(legend_of(figure)) == 9
    assert legend_of(figure)[-1] == "52 more, with a higher objective"
    legend = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert box.width > 300
        assert box.height > 200
        assert axes.get_legend() is None
        assert not box.overlaps(legend)
    colours = {line.get_color() for line in figure.axes[0].lines}
    assert len(colours) == 9


def test_eta_and_learning_rates_are_never_on_one_axis(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    runs = [recorded(tmp_path / "ours"), recorded(tmp_path / "adam", optimiser="adam", lr=0.001)]
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))[1])
    draw(group_runs(runs), "png", ["learning_rate", "objective"])
    rate, objective = drawn[0].axes
    assert len(rate.lines) == 1
    assert rate.get_title().startswith("η")
    assert len(objective.lines) == 2
