import json

import pytest

from autogd.cli import check as command
from autogd.cli.main import main
from autogd.theory.check import STATEMENTS, Sides, Statement, check, examine

FALSE = {
    "Lemma 6, paper",
    "Lemma 7, paper",
    "Theorem 2, any gradient",
    "Prescription 1, √(fan_in/fan_out)",
}


@pytest.fixture(scope="module")
def rows():
    return {row.statement: row for row in check(draws=20, seed=1000)}


def test_every_statement_of_the_paper_is_there(rows):
    names = ["Proposition 1", "Corollary 1", "Corollary 2", "Mirror descent", "Gauss-Newton", "Natural gradient"]
    names += [f"Lemma {k}" for k in range(1, 9)] + [f"Theorem {k}" for k in range(1, 4)]
    for name in names:
        assert any(row.startswith(name) for row in rows), name


def test_what_should_hold_holds_and_what_should_fail_fails(rows):
    assert {name for name, row in rows.items() if not row.holds} == FALSE
    assert {name for name, row in rows.items() if not row.expected} == FALSE
    assert all(row.slack >= 0 for row in rows.values() if row.holds)


def test_the_counterexample_to_lemma_6_breaks_it_by_hand(rows):
    assert rows["Lemma 6, paper"].counterexample.startswith("one layer, W = 1, x = 1, y = −1: 2 > 1")
    w, x, y = 1.0, 1.0, -1.0
    assert (w * x - y) ** 2 / 2 == 2


def test_deep_relative_trust_is_seen_to_be_tight(rows):
    assert rows["Lemma 4, tight"].right > 0.99


def test_a_side_that_is_no_number_breaks_a_statement():
    row = examine(Statement("Odd", "", lambda seed: Sides(float("nan"), 1.0, "nothing")), draws=2)
    assert not row.holds


def fake(monkeypatch, *statements):
    monkeypatch.setattr(command, "STATEMENTS", list(statements))
    monkeypatch.setattr(command, "check", lambda draws, seed, report: check(draws, seed, statements, report))


FINE = Statement("Fine", "0 ≤ 1", lambda seed: Sides(0.0, 1.0, "nothing drawn"))
BROKEN = Statement("Broken", "1 ≤ 0", lambda seed: Sides(1.0, 0.0, "nothing drawn"))


def test_the_exit_status_is_1_if_a_statement_fails_that_should_hold(monkeypatch, capsys):
    fake(monkeypatch, FINE, BROKEN)
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert "Broken" in out
    assert "nothing drawn: 1 > 0" in out


def test_the_exit_status_is_1_if_a_statement_holds_that_should_fail(monkeypatch, capsys):
    fake(monkeypatch, Statement("Too good", "", FINE.observe, holds=False))
    assert main(["check"]) == 1
    assert "holds !" in capsys.readouterr().out


def test_the_exit_status_is_0_if_all_is_as_it_should_be(monkeypatch, capsys):
    fake(monkeypatch, FINE, Statement("Known", "", BROKEN.observe, holds=False))
    assert main(["check", "--json", "--draws", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["as_expected"] is True
    assert [row["holds"] for row in told["statements"]] == [True, False]
    assert told["statements"][1]["draws"] == 3


def test_too_few_draws_are_refused(capsys):
    assert main(["check", "--draws", "0"]) == 1
    assert "--draws: expected at least 2, found 0" in capsys.readouterr().err


def test_there_is_a_statement_for_every_row():
    assert len({statement.name for statement in STATEMENTS}) == len(STATEMENTS) == 30
