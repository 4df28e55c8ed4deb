"""Which commits are picked from a history, and that no history can break the picking."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kairo_team.errors import Misuse
from kairo_team.examples import release_notes_history as history
from kairo_team.examples.release_notes_history import KIND_OF, Commit, Logged, past, pick, read, understand

SUBJECTS = (Path(__file__).parent.parent / "data" / "commit_subjects.txt").read_text("utf-8").splitlines()


class Repository:
    """A git repository in a folder, whatever the machine's own git configuration says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, text: bytes | None = None) -> str:
        who = {
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@b",
        }
        environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-c", "commit.gpgsign=false", *arguments]
        done = subprocess.run(command, cwd=self.path, env=environment, input=text, capture_output=True, check=True)
        return done.stdout.decode()

    def commit(self, *subjects: str | bytes, encoding: str = "UTF-8") -> Repository:
        for subject in subjects:
            text = subject.encode() if isinstance(subject, str) else subject
            self.git("-c", f"i18n.commitEncoding={encoding}", "commit", "-q", "--allow-empty", "-F", "-", text=text)
        return self

    def commit_as_it_is(self, subject: bytes) -> None:
        """Git itself repairs what is no UTF-8; other programs that write commits do not."""
        tree, parent = self.git("rev-parse", "HEAD^{tree}").strip(), self.git("rev-parse", "HEAD").strip()
        who = "A <a@b> 2000000000 +0000"
        head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n".encode()
        made = self.git("hash-object", "-t", "commit", "-w", "--stdin", text=head + subject + b"\n")
        self.git("reset", "-q", "--soft", made.strip())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def subjects(repo: Path) -> list[str]:
    return [commit.subject for commit in read(repo).commits]


@pytest.mark.parametrize(
    ("subject", "bare", "kind"),
    [
        ("Add --json option to list", "Add --json option to list", "add"),
        ("feat: add dark mode to settings", "Add dark mode to settings", "add"),
        ("feat(cli)!: allow several --exclude options", "Allow several --exclude options", "add"),
        ("fix(parser): handle empty input files", "Handle empty input files", "fix"),
        ("net/http: avoid sending cookies twice", "Avoid sending cookies twice", "fix"),
        ("[3.12] gh-1234: Fix crash in the reader (GH-1235)", "Fix crash in the reader", "fix"),
        ("bpo-99: Remove the old buffer API", "Remove the old buffer API", "remove"),
        ("Fixed #123 -- Dropped support for Python 3.6.", "Drop support for Python 3.6", "remove"),
        (":sparkles: Introduce plugins for exporters (#12)", "Introduce plugins for exporters", "add"),
        ("Adds a retry option to fetch (#1) (#2)", "Add a retry option to fetch", "add"),
        ("Improves error message for bad keys", "Improve error message for bad keys", "change"),
        ("perf: speed up loading of templates", "Speed up loading of templates", "change"),
        ("Let users choose the folder", "Let users choose the folder", "change"),
    ],
)
def test_decorations_are_taken_off_and_the_verb_tells_the_kind(subject: str, bare: str, kind: str) -> None:
    assert understand("abc", subject) == Commit("abc", bare, kind)


@pytest.mark.parametrize(
    "subject",
    [
        "chore: add a new release script",
        "ci: use a newer runner image",
        "docs: fix the example of retries",
        "style: remove the blank lines",
        "test: add a case for retries",
        "refactor: move the code to a module",
        "build(deps): raise the lower bounds",
        "Fix typo in the error message",
        "Add tests for the retry loop",
        "Fix CI on the release branch",
        "Improve the documentation of fetch",
        "Remove flake8 from the setup",
        "Bump version to 2.0.0 at last",
        "Change version to 2.0.0 at last",
        "Merge pull request #1 from a/b",
        'Revert "Add --json option to list"',
        "Add files",
        "wip",
        "",
        "v1.2.3",
        "Various small things and others",
        "Support for Python 3.13 on Windows",
        "Return type of the parse function",
        "Fix for the crash at startup",
        "Add --json option and remove --xml option",
        "Fix the crash; add the option",
        "Fix the crash. Add the option",
        "Fix crash, see https://example.org/1",
        "Fix crash when the file was written by a program th...",
        "Fix crash when the name has a \ufffd in it",
        "Fix crash when \x1b[31mred\x1b[0m is printed",
        "Add " + "very " * 20 + "long option",
        "Fix " + "x" * 5000 + " in the reader",
    ],
)
def test_what_is_no_plain_news_for_users_is_passed_over(subject: str) -> None:
    assert understand("abc", subject) is None


def test_most_of_the_realistic_subjects_are_understood() -> None:
    picked = [subject for subject in SUBJECTS if understand("abc", subject)]
    assert len(picked) / len(SUBJECTS) > 0.85


@pytest.mark.parametrize(
    ("verb", "form"),
    [
        ("add", "added"),
        ("use", "used"),
        ("drop", "dropped"),
        ("verify", "verified"),
        ("make", "made"),
        ("fix", "fixed"),
    ],
)
def test_past_tense(verb: str, form: str) -> None:
    assert past(verb) == form


def test_every_verb_is_of_one_kind() -> None:
    verbs = [verb for verbs in history.KINDS.values() for verb in verbs.split()]
    assert len(verbs) == len(set(verbs)) == len(KIND_OF)


def test_the_newest_come_first_and_there_are_at_most_eight(repository: Repository) -> None:
    repository.commit(*(f"Add option number {number} to fetch" for number in range(12)))
    assert subjects(repository.path) == [f"Add option number {number} to fetch" for number in range(11, 3, -1)]
    assert read(repository.path) == read(repository.path)


def test_the_same_subject_comes_once_and_the_reverted_not_at_all() -> None:
    log = [
        Logged("1", 'Revert "Add a retry option to fetch (#7)"'),
        Logged("2", "Fix crash in the reader"),
        Logged("3", "Add a retry option to fetch (#7)"),
        Logged("4", "Fix crash in the reader"),
    ]
    picked = pick(log)
    assert picked.commits == (Commit("2", "Fix crash in the reader", "fix"),)
    assert [(one.commit.id, one.why) for one in picked.left_out] == [
        ("1", "it takes an older commit back"),
        ("3", "it was taken back later"),
        ("4", "a newer commit says the same"),
    ]


def test_merges_are_left_out_and_ids_are_those_of_git(repository: Repository) -> None:
    repository.commit("Add a retry option to fetch")
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("Fix crash in the reader")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "Add the side branch to main now", "side")
    picked = {commit.subject: commit.id for commit in read(repository.path).commits}
    assert set(picked) == {"Fix crash in the reader", "Add a retry option to fetch"}
    assert repository.git("rev-parse", "--short", "side").strip() == picked["Fix crash in the reader"]


def test_a_folder_inside_the_repository_will_do(repository: Repository) -> None:
    repository.commit("Add a retry option to fetch")
    (repository.path / "deep" / "down").mkdir(parents=True)
    assert read(repository.path / "deep" / "down").source == "the git history of project"


def test_a_shallow_clone_is_enough(repository: Repository, tmp_path: Path) -> None:
    repository.commit("Add a retry option to fetch", "Fix crash in the reader")
    clone = Repository(tmp_path / "clone")
    clone.git("fetch", "-q", "--depth", "1", repository.path.as_uri(), "main:copy")
    clone.git("checkout", "-q", "copy")
    assert subjects(clone.path) == ["Fix crash in the reader"]


def test_odd_encodings_and_bytes_do_not_break_it(repository: Repository) -> None:
    repository.commit("Fix naïve handling of umlauts")
    repository.commit("Add support for größe".encode("latin-1"), encoding="ISO-8859-1")
    repository.commit_as_it_is(b"Fix crash \xff\xfe in the reader")
    assert subjects(repository.path) == ["Add support for größe", "Fix naïve handling of umlauts"]


def test_a_huge_subject_is_passed_over(repository: Repository) -> None:
    repository.commit("Add a retry option to fetch", "Fix " + "word " * 100_000)
    assert subjects(repository.path) == ["Add a retry option to fetch"]


def test_an_environment_that_points_elsewhere_is_ignored(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("Add a retry option to fetch")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    assert subjects(repository.path) == ["Add a retry option to fetch"]


def test_a_repository_with_nothing_to_tell_is_refused_when_asked_for(repository: Repository) -> None:
    with pytest.raises(Misuse, match="project has no commits yet"):
        read(repository.path)
    repository.commit("chore: first commit of all")
    with pytest.raises(Misuse, match="no commit of the 1 of project is one that users would want to read about"):
        read(repository.path)


def test_what_is_no_repository_is_refused_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"' is in no git repository$"):
        read(tmp_path)
    with pytest.raises(Misuse, match="there is no directory"):
        read(tmp_path / "nowhere")


def test_without_git_it_says_so(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository.path))
    with pytest.raises(Misuse, match="git is not installed"):
        read(repository.path)


@pytest.mark.parametrize("empty", [True, False])
def test_where_nothing_was_asked_for_the_curated_history_stands_in(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    monkeypatch.chdir(repository.path if empty else tmp_path)
    found = read()
    assert found.commits == history.curated().commits
    assert found.source.startswith("the history of kairo-team, shipped as data (")
    assert ("project has no commits yet" if empty else "is in no git repository") in found.source


def test_every_commit_of_the_curated_history_is_picked() -> None:
    log = json.loads(history.CURATED.read_text(encoding="utf-8"))
    assert [commit.id for commit in history.curated().commits] == list(log)


def test_where_nothing_was_asked_for_the_repository_around_is_used(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("Add a retry option to fetch")
    monkeypatch.chdir(repository.path)
    assert [commit.subject for commit in read().commits] == ["Add a retry option to fetch"]
