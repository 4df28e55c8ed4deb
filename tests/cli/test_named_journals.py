"""`--journal NAME:option=value,...`, and the journal of a team's own file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from tests import plugin_packages
from tests.cli.journal_team import ASKS
from tests.plugin_packages import Install

install = plugin_packages.install

pytestmark = pytest.mark.real_time
TeamFile = Callable[..., Path]
RUN = "letter-0001"
SHELF = """
import kairo_team as kt

class Shelf:
    '''A journal of a package: not one of the library's classes, and without `fork`.'''

    def __init__(self, path, *, source=None, events=True, shelf=0):
        self._kept = kt.SqliteJournal(path, source=source, events=events)

    def __getattr__(self, name):
        if name.startswith("_") or name in ("fork", "accounts", "database"):
            raise AttributeError(name)
        return getattr(self._kept, name)
"""


@pytest.fixture
def shelf(install: Install, tmp_path: Path) -> str:
    """What `--journal` says for a journal that a package brings."""
    install("acme-shelf", {"journal": {"acme-shelf": "acme_shelf:Shelf"}}, SHELF)
    return f"acme-shelf:path={tmp_path / 'shelf'}"


def test_a_run_is_recorded_answered_and_resumed_in_a_journal_of_a_package(
    kairo: Any, team_file: TeamFile, shelf: str, tmp_path: Path
) -> None:
    said = kairo("run", team_file(ASKS), "--run-id", RUN, "--journal", shelf)
    assert said.code == 7, said.err
    assert said.out.splitlines()[0] == f"run {RUN} is recorded in journal {shelf!r}"
    assert said.out.splitlines()[-2:] == [
        f"  kairo answer {RUN} approve --journal {shelf}",
        f"  kairo resume {RUN} --journal {shelf}",
    ]
    assert kt.SqliteJournal(tmp_path / "shelf").show(RUN).state == "suspended"
    listed = kairo("runs", "--journal", shelf)
    assert (listed.code, RUN in listed.out, "suspended" in listed.out) == (0, True, True)
    shown = kairo("show", RUN[:6], "--journal", shelf)
    assert shown.code == 0
    for word in ("letter", "beside", "900 tokens", "test:provider", "a person must see it"):
        assert word in shown.out, shown.out
    assert kairo("answer", RUN, "approve", "--journal", shelf).code == 0
    resumed = kairo("resume", RUN, "--journal", shelf)
    assert resumed.code == 0, resumed.err
    assert "COMPLETED" in resumed.out
    assert "COMPLETED" in kairo("show", RUN, "--journal", shelf).out
    page = tmp_path / "report.html"
    assert kairo("report", RUN, "--journal", shelf, "-o", page).code == 0
    assert "a long letter" in page.read_text("utf-8")
    types = [json.loads(line)["type"] for line in kairo("events", RUN, "--journal", shelf).out.splitlines()]
    assert types[-1] == "team.completed"
    assert kairo("forget", RUN, "--journal", shelf).out == "forgotten: 1 run\n"


def test_what_a_journal_cannot_do_is_one_sentence(kairo: Any, team_file: TeamFile, shelf: str) -> None:
    kairo("run", team_file(ASKS), "--run-id", RUN, "--journal", shelf)
    said = kairo("fork", RUN, "--before", "letter", "--journal", shelf)
    assert (said.code, "has no `fork`" in said.err) == (2, True)
    said = kairo("resume", RUN, "--journal", shelf, "--budget", "tokens=1000")
    assert (said.code, "the limits of a run in journal" in said.err) == (2, True)
    said = kairo("console", "--journal", shelf)
    assert (said.code, "the console shows a file or a database" in said.err) == (2, True)
    said = kairo("run", team_file(ASKS), "--account", "papers", "--journal", shelf)
    assert (said.code, "--account names an account of a file" in said.err) == (2, True)
    said = kairo("budget", "--journal", shelf)
    assert (said.code, "this command records in a file or a database" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            "acme-lmdb",
            "no file and no installed journal has the name 'acme-lmdb'; installed are 'acme-shelf', ",
        ),
        ("acme-lmdb:path=x", "no file and no installed journal has the name 'acme-lmdb'"),
        ("acme-shelf", "missing a required argument: 'path'; its options are 'events', 'path', 'shelf', 'source'"),
        ("acme-shelf:road=x", "there is no option 'road'; its options are"),
        ("acme-shelf:x", "after the name come options, as in NAME:path=runs, not 'x'"),
        ("acme-shelf:path=a,path=b", "the option 'path' is there twice"),
        ("acme-shelf:path=/nowhere/at/all", "there is no directory"),
        ("memory", "its records end with this command"),
        ("postgresql://localhost/runs", "write --database for postgresql://..."),
        ("gone.py", "there is no file 'gone.py'"),
    ],
)
def test_a_journal_that_is_not_there_makes_no_file(
    written: str,
    says: str,
    kairo: Any,
    team_file: TeamFile,
    shelf: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = team_file(ASKS)
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    for command in (["run", file], ["runs"], ["show", RUN]):
        said = kairo(*command, "--journal", written)
        assert (said.code, says in said.err) == (2, True), said.err
    made = {path.name for path in {*tmp_path.iterdir()} - before}
    assert made <= {"__pycache__"}


def test_a_file_keeps_its_name(
    kairo: Any, team_file: TeamFile, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path, a name with a suffix, and an existing file of any name are files."""
    file = team_file(ASKS)
    monkeypatch.chdir(tmp_path)
    for number, written in enumerate(("./acme-lmdb", "runs.db", tmp_path / "runs", "runs.json")):
        assert kairo("run", file, "--run-id", f"run-000{number}", "--journal", written).code == 7
    for written in ("acme-lmdb", "runs.db", "runs", "runs.json", "sqlite:path=runs"):
        said = kairo("runs", "--journal", written)
        assert (said.code, "run-000" in said.out) == (0, True), said.err


def test_options_are_numbers_and_truths_where_they_look_so(kairo: Any, team_file: TeamFile, shelf: str) -> None:
    assert kairo("run", team_file(ASKS), "--run-id", RUN, "--journal", f"{shelf},events=false,shelf=3").code == 7
    assert kairo("events", RUN, "--journal", shelf).out == ""
    assert "suspended" in kairo("show", RUN, "--journal", shelf).out


@pytest.mark.parametrize("kind", ["acme_shelf.Shelf", "kt.SqliteJournal"])
def test_the_journal_of_a_teams_own_file_is_found(
    kind: str, kairo: Any, team_file: TeamFile, shelf: str, tmp_path: Path
) -> None:
    own = f'kt.Team("office", [clerk], coordinator=experts, runtime=kt.Runtime(journal={kind}(HERE / "own.db")))'
    text = f"import acme_shelf\n{ASKS}".replace('kt.Team("office", [clerk], coordinator=experts)', own)
    file = team_file(text)
    assert kairo("run", file, "--run-id", RUN).code == 7
    assert RUN in kairo("runs", "--journal", file).out
    assert "suspended" in kairo("show", RUN, "--journal", f"{file}:team").out
    assert kairo("answer", RUN, "approve", "--journal", file).code == 0
    resumed = kairo("resume", RUN, file, "--journal", file)
    assert (resumed.code, "COMPLETED" in resumed.out) == (0, True), resumed.err
    page = tmp_path / "report.html"
    assert kairo("report", RUN, "--journal", file, "-o", page).code == 0
    said = kairo("run", file, "--journal", file)
    assert (said.code, "a team's own journal is used when --journal is left out" in said.err) == (2, True)


def test_a_team_without_a_journal_of_its_own_is_named(kairo: Any, team_file: TeamFile) -> None:
    file = team_file(ASKS)
    said = kairo("runs", "--journal", file)
    says = "the team 'office' has no journal: give its runtime one, as in kt.Runtime(journal=...)\n"
    assert (said.code, said.err) == (2, f"kairo: --journal {file}: {says}")
