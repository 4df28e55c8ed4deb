"""`kairo budget`, and `kairo submit --account`: what a user types and reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kairo_team.durable.journal import SqliteJournal
from kairo_team.durable.postgres import PostgresJournal
from tests.cli.conftest import Kairo, SaidJson, forget_team_files, kairo, kairo_json, team_file
from tests.cluster.test_commands import DESK, url

__all__ = ["forget_team_files", "kairo", "kairo_json", "team_file", "url"]  # fixtures

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]


def test_a_budget_is_made_raised_and_shown(url: str, kairo: Kairo) -> None:
    assert "there is no account: kairo budget NAME" in kairo("budget").out
    assert kairo("budget", "research", "--tokens", 50_000, "--dollars", "$12.50").code == 0
    said = kairo("budget", "page", "--parent", "research")
    assert said.code == 0
    assert said.out.splitlines()[1].split() == ["page", "research", "0", "0", "0", "$0", "$0"]
    assert kairo("budget", "research", "--tokens", 60_000).code == 0
    lines = kairo("budget").out.splitlines()
    assert lines[0].split("  ")[0] == "account"
    assert lines[1].split() == ["research", "0", "0", "of", "60,000", "0", "$0", "of", "$12.5", "$0"]
    assert [line.split()[0] for line in lines[1:]] == ["research", "page"]


DAILY = ("budget", "chat/acme", "--dollars", 40, "--every", "day", "--tz", "Europe/Oslo")


def test_the_window_of_a_budget_is_made_and_shown(url: str, kairo: Kairo) -> None:
    said = kairo(*DAILY)
    assert said.code == 0
    assert re.search(r"day until \d{4}-\d\d-\d\d 00:00 Europe/Oslo$", said.out, re.MULTILINE)


def test_a_window_is_shown_as_json(url: str, kairo_json: Callable[..., SaidJson]) -> None:
    shown = kairo_json(*DAILY, "--json").document["accounts"][0]["window"]
    assert (shown["every"], shown["tz"]) == ("day", "Europe/Oslo")
    assert shown["since"] < shown["until"]


def test_a_submitted_run_is_charged_and_one_that_does_not_fit_is_refused(
    url: str, kairo: Kairo, team_file: TeamFile
) -> None:
    kairo("budget", "research", "--tokens", 1_000)
    file = team_file(DESK)
    send = ("submit", file, "--account", "research", "--engine", "procrastinate")
    assert kairo(*send, "--budget", "tokens=600", "--run-id", "one").code == 0
    said = kairo(*send, "--budget", "tokens=600", "--run-id", "two")
    assert said.code == 2
    assert "nothing was submitted: 'research' has 400 tokens left, 600 asked; kairo budget research" in said.err
    unlimited = kairo(*send, "--run-id", "two")
    assert unlimited.code == 2
    assert "account 'research' limits tokens, and the run has no such limit" in unlimited.err
    assert "there is no account 'nobody'" in kairo("submit", file, "--account", "nobody").err
    assert "set aside 600 tokens" in kairo("budget", "research", "--tokens", 500).err
    kairo("cancel", "one")
    assert kairo(*send, "--budget", "tokens=600", "--run-id", "two").code == 0


def test_a_budget_is_shown_as_json(url: str, kairo_json: Callable[..., SaidJson]) -> None:
    assert kairo_json("budget", "research", "--json", "--tokens", 1_000, "--dollars", "0.25").document == {
        "accounts": [
            {
                "name": "research",
                "parent": None,
                "runs": 0,
                "limit": {"tokens": 1_000, "dollars": "0.25"},
                "used": {"tokens": 0, "dollars": "0"},
                "set_aside": {"tokens": 0, "dollars": "0"},
                "left": {"tokens": 1_000, "dollars": "0.25"},
                "window": None,
            }
        ],
        "exit_code": 0,
    }


def test_a_file_has_accounts_too(kairo: Kairo, team_file: TeamFile, tmp_path: Path) -> None:
    journal = ("--journal", tmp_path / "runs.db")
    assert "so it needs every=" in kairo("budget", "desk", "--tz", "Europe/Oslo", *journal).err
    assert kairo("budget", "desk", "--tokens", 1_000, *journal).code == 0
    run = ("run", team_file(DESK), "--account", "desk", "--budget")
    assert kairo(*run, "tokens=600", *journal).code == 0
    assert kairo("budget", *journal).out.splitlines()[1].split()[:5] == ["desk", "0", "0", "of", "1,000"]
    over = kairo(*run, "tokens=1001", *journal)
    assert over.code == 2
    assert "nothing was started: 'desk' has 1000 tokens left, 1001 asked; kairo budget --journal" in over.err
    other = kairo(*run, "tokens=1", *journal, "--account", "dusk").err
    assert "nothing was started: there is no account 'dusk', only 'desk'" in other
    assert "--account names an account of a journal or a database" in kairo(*run, "tokens=1").err
    assert len(SqliteJournal(tmp_path / "runs.db").runs()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--tokens", "5"), "name the account to set"),
        (("nobody",), "there is no account 'nobody': kairo budget NAME --tokens N --dollars X makes one"),
        (("desk", "--dollars", "much"), "Budget.dollars must be an amount of money such as '0.05', not 'much'"),
        (("desk", "--tokens", "5", "--every", "daily"), "not 'daily'; did you mean 'day'?"),
        (("desk", "--every", "day", "--tz", "Europe/Olso"), "did you mean 'Europe/Oslo'?"),
        (("desk", "--tz", "Europe/Oslo"), "so it needs every=, such as every='day'"),
        (("desk", "--tokens", "5", "--parent", "nobody"), "there is no account 'nobody', only none"),
    ],
)
def test_a_mistake_is_a_sentence(url: str, kairo: Kairo, arguments: tuple[str, ...], sentence: str) -> None:
    said = kairo("budget", *arguments)
    assert said.code == 2
    assert sentence in said.err
    assert PostgresJournal.__name__ not in said.err
