"""The demo on a repository of the user's: nothing is left out without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.artifacts import Finding
from kairo_team.cli.demo_command import find_mended
from kairo_team.errors import Misuse
from kairo_team.events import PlannedTask
from kairo_team.examples import release_notes
from kairo_team.examples.release_notes_history import History, Logged, pick, read
from kairo_team.verdicts import EvaluationVerdict
from kairo_team.views.run_story import AttemptStory, RunStory, TaskStory
from tests.cli.test_demo import Stage
from tests.examples.test_history import Repository

pytestmark = pytest.mark.real_time  # the editor is a plain function and works in a thread

SUBJECTS = (
    "feat: add csv export",
    "fix: close the file after export",
    "docs: explain export",
    "feat(api)!: rename load to read_rows",
    "Tidy",
    "chore: bump dependencies\n\nBREAKING CHANGE: Python 3.10 is gone.",
    "Add a retry option to fetch",
    "perf: read rows lazily (#12)",
)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Repository(tmp_path / "project").commit(*SUBJECTS).path


def test_third_o61_every_commit_is_used_or_named_with_why(kairo: Any, stage: Stage, project: Path) -> None:
    first = kairo("demo", "--repo", project).out.partition("2/5")[0]
    assert "A team at work: 6 of 8 commits from the git history of project, a budget of 10,000 tokens\n" in first
    assert ": its subject has 1 word, and a sentence is made of 4 to 16" in first
    assert "docs: explain export: a commit of type 'docs' is about the project itself" in first
    assert first.count("left out: ") == 2


def test_third_o61_a_breaking_change_is_in_the_notes_whatever_its_words(
    kairo: Any, stage: Stage, project: Path
) -> None:
    said = kairo("demo", "--repo", project).out
    assert "- BREAKING: Renamed load to read_rows. (" in said
    assert "- BREAKING: chore: bump dependencies [the commit's own words] (" in said


def test_third_o61_older_commits_are_counted_and_their_breaking_changes_are_quoted() -> None:
    log = [Logged(str(number), f"Add option number {number} to fetch") for number in range(12)]
    found = pick([*log, Logged("12", "feat!: drop it"), Logged("13", "Tidy")])
    assert (len(found.commits), found.older, found.looked_at) == (8, 5, 14)
    assert [(one.id, one.breaking) for one in found.quoted] == [("12", True)]


def test_third_o61_a_breaking_change_that_was_taken_back_is_named_first() -> None:
    found = pick([Logged("1", "Tidy"), Logged("2", 'Revert "feat!: drop it"'), Logged("3", "feat!: drop it")])
    lines = History(found, "x").describe().splitlines()
    assert lines[1] == "left out: BREAKING 3 feat!: drop it: it was taken back later"


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("BREAKING CHANGE: remove support for Python 3.8", "Remove support for Python 3.8"),
        ("BREAKING: remove the old export", "Remove the old export"),
        ("feat!:drop the old flag of the parser", "Drop the old flag of the parser"),
        ("feat(api)!:drop it", None),
        ("BREAKING-CHANGE: ids", None),
    ],
)
def test_third_o61_a_breaking_change_is_found_however_it_is_written(subject: str, sentence: str | None) -> None:
    found = pick([Logged("1", subject)])
    assert found.left_out == ()
    assert [(one.subject, one.breaking) for one in (*found.commits, *found.quoted)] == [(sentence or subject, True)]


def test_third_o61_a_history_without_a_commit_for_users_says_why(tmp_path: Path) -> None:
    project = Repository(tmp_path / "project")
    with pytest.raises(Misuse, match=r"^project has no commits yet$"):
        read(project.path)
    project.commit("Behebe Absturz bei leerer Datei", "wip")
    with pytest.raises(Misuse, match=r"^no commit of the 2 of project is one that users") as refused:
        read(project.path)
    assert "wip: its subject has 1 word" in str(refused.value)
    assert "it begins with 'Behebe', which is not a verb of the list" in str(refused.value)


def test_third_o61_a_subject_is_shown_without_control_characters() -> None:
    (quoted,) = pick([Logged("1", "feat!: \x1b[31mred\x07\tthings")]).quoted
    assert quoted.subject == "feat!: [31mred things"


async def test_third_o61_notes_of_quoted_commits_alone_need_no_sentence(tmp_path: Path) -> None:
    history = read(Repository(tmp_path / "project").commit("feat: csv export").path)
    result = await kt.run(release_notes.make_team(), release_notes.make_request(history))
    assert result.status is kt.TeamStatus.COMPLETED
    assert "- feat: csv export [the commit's own words] (" in str(result.output)


def test_third_o61_what_an_attempt_mended_is_not_shown_as_a_finding() -> None:
    closed = Finding("said-once", "said-once", "info", expected="Say nothing twice.", status="closed")
    wrong = Finding("past-tense", "past-tense", observed="it begins with 'Fix'", expected='Begin with "Fixed".')
    task = TaskStory("write-1", PlannedTask("write-1"), 0.0)
    task.attempts += [
        AttemptStory(2, "writer", 0.0, artifact="a", verdict=EvaluationVerdict.revise("no", findings=[wrong, closed])),
        AttemptStory(3, "writer", 1.0, artifact="b", verdict=EvaluationVerdict.passed()),
    ]
    story = RunStory()
    story.tasks["write-1"] = task
    found = find_mended(story)
    assert found is not None
    assert found.findings == ["past-tense: it begins with 'Fix'. Begin with \"Fixed\"."]


def test_third_o61_who_used_repo_is_not_advised_to(kairo: Any, stage: Stage, project: Path) -> None:
    assert "your own commits" not in kairo("demo", "--repo", project).out
    assert "your own commits: kairo demo --repo PATH" in kairo("demo").out


def test_third_o61_with_less_budget_some_task_is_done(kairo: Any, stage: Stage, tmp_path: Path) -> None:
    """A tenth of 5,000 tokens for each commit was less than a sentence that had to be mended."""
    project = Repository(tmp_path / "own").commit("Show the names of all files", "Add a retry option to fetch").path
    said = kairo("demo", "--repo", project, "--budget", "tokens=4000").out
    assert "3/5  The same team with budget for about one sentence: " in said
    assert "the limit held" in said
    assert "  + write-1: Added a retry option to fetch." in said
