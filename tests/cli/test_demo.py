"""The scenes of `kairo demo`, on a scripted writer; and the whole of it on the embedded model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cli import demo_command
from kairo_team.cli.demo_command import find_mended
from kairo_team.examples import release_notes, survives
from kairo_team.examples.release_notes_history import past
from kairo_team.examples.release_notes_prompt import ASK
from kairo_team.testing import FunctionModel
from kairo_team.views.run_story import RunStory

pytestmark = pytest.mark.real_time  # the editor is a plain function and works in a thread


def answer(request: kt.ModelRequest) -> str:
    """Write every sentence well but one, and that one once it was sent back."""
    subject = request.messages[-1].text.partition(ASK)[2]
    verb, _, rest = subject.partition(" ")
    is_bad = subject.startswith("Show") and "Begin with" not in request.messages[-1].text
    first = "Removed" if is_bad else past(verb.lower()).capitalize()
    return json.dumps({"sentence": f"{first} {rest}."})


def survive(model: str, say: Callable[[str], object]) -> bool:
    say(f"killed and resumed on {model}")
    return True


class Stage:
    """The demo's folders, and the model that writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.write: Callable[[kt.ModelRequest], str] = answer
        self.asked: list[str] = []
        make_team = release_notes.make_team
        monkeypatch.setattr(tempfile, "tempdir", str(folder))

        def make(model: str) -> kt.Team:
            self.asked.append(model)
            return make_team(FunctionModel(self.write))  # type: ignore[arg-type]  # an agent takes a model too

        monkeypatch.setattr(release_notes, "make_team", make)
        monkeypatch.setattr(survives, "survive", survive)

    @property
    def left(self) -> list[str]:
        """What is left in the folder of temporary files."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


def scenes(out: str) -> dict[str, str]:
    """Return what each scene shows, by its heading without the number."""
    parts = re.split(r"^(\d/5)  (.*)\n", out, flags=re.MULTILINE)[1:]
    assert parts[::3] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    return dict(zip(parts[1::3], parts[2::3], strict=True))


def test_the_scenes_come_in_their_order_and_the_demo_ends_well(kairo: Any, stage: Stage) -> None:
    said = kairo("demo")
    assert (said.code, said.err) == (0, "")
    assert list(scenes(said.out)) == [
        "A team at work: 6 commits from the history of kairo-team, shipped as data, a budget of 30,000 tokens",
        "A sentence that was sent back, and its revision",
        "The same team with a tenth of the budget: 3,000 tokens",
        "kill -9 in the middle: a new process resumes, and each finished call is paid once",
        "The report of the first run: one HTML file, open it in a browser",
    ]
    assert stage.asked == ["local:smollm2"]


def test_the_team_at_work_ends_completed_with_its_notes(kairo: Any, stage: Stage) -> None:
    work = next(iter(scenes(kairo("demo").out).values()))
    assert "\nOutput\n  | ## Added\n" in work
    assert re.search(r"^COMPLETED  after \d+\.\d s, [\d,]+ tokens, 8 loops$", work, re.MULTILINE)


def test_all_six_writers_start_at_once(kairo: Any, stage: Stage) -> None:
    work = next(iter(scenes(kairo("demo").out).values()))
    assigned = [line.split()[1].rstrip(":") for line in work.splitlines() if line.endswith("assigned to writer")]
    first_end = work.index("done after")
    assert assigned == [f"write-{number}" for number in range(1, 7)]
    assert work.rindex("assigned to writer") < first_end


def test_a_sentence_is_shown_with_its_finding_and_the_mended_one(kairo: Any, stage: Stage) -> None:
    shown = scenes(kairo("demo").out)["A sentence that was sent back, and its revision"]
    assert shown.splitlines() == [
        "  commit: Show planning's, evaluation's and the reserve's share in kt.check",
        "  attempt 1, writer: rejected",
        "  Removed planning's, evaluation's and the reserve's share in kt.check.",
        "  finding: same-kind: 'Removed' for a commit that says 'show'. Begin with \"Showed\".",
        "  attempt 2, writer: accepted",
        "  Showed planning's, evaluation's and the reserve's share in kt.check.",
        "",
    ]


def test_a_tenth_of_the_budget_holds_and_the_demo_shows_what_was_finished(kairo: Any, stage: Stage) -> None:
    said = kairo("demo", "--budget", "tokens=20000")  # a call of this model costs about 330 tokens
    shown = scenes(said.out)["The same team with a tenth of the budget: 2,000 tokens"]
    billed = re.search(r"^  billed: ([\d,]+) of 2,000 tokens, the limit held$", shown, re.MULTILINE)
    assert billed
    assert 0 < int(billed[1].replace(",", "")) <= 2_000
    finished = re.search(r"^  finished: (\d) of 7 tasks$", shown, re.MULTILINE)
    assert finished
    assert len(re.findall(r"^    \+ write-\d: \w+ed ", shown, re.MULTILINE)) == int(finished[1]) < 6
    assert re.search(r"^  not finished: .*notes$", shown, re.MULTILINE)
    assert "token_budget_exceeded" in shown


def test_a_run_is_killed_and_resumed_on_the_same_model(kairo: Any, stage: Stage) -> None:
    said = kairo("demo", "--model", "openai:gpt-x")
    assert "  killed and resumed on openai:gpt-x\n" in said.out


def test_accounts_that_do_not_agree_are_an_error(kairo: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survives, "survive", lambda model, say: False)
    assert kairo("demo").code == 1


def test_the_report_is_where_the_demo_says_with_its_runs_beside_it(kairo: Any, stage: Stage) -> None:
    said = kairo("demo")
    place = Path(scenes(said.out)["The report of the first run: one HTML file, open it in a browser"].split()[0])
    assert "Showed planning" in place.read_text(encoding="utf-8")
    assert [Path(name).name for name in stage.left] == ["report.html", "runs.db"]
    listed = kairo("runs", "--journal", place.with_name("runs.db"))
    assert listed.code == 0
    assert listed.out.count("release-notes") == 2
    assert f"the same run in the console: kairo console --journal {place.with_name('runs.db')}" in said.out


def test_a_journal_of_ones_own_has_the_runs(kairo: Any, stage: Stage, tmp_path: Path) -> None:
    journal = tmp_path / "own.db"
    said = kairo("demo", "--journal", journal, "--events", tmp_path / "events.jsonl")
    assert said.code == 0
    assert f"kairo runs --journal {journal}" in said.out
    assert [Path(name).name for name in stage.left] == ["events.jsonl", "report.html", "own.db"]


def test_a_team_that_fails_ends_the_demo_and_leaves_nothing(
    kairo: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(assignment: kt.Assignment) -> str:
        raise OSError("no")

    monkeypatch.setattr(release_notes, "notes", fail)
    said = kairo("demo")
    assert said.code == 4
    assert "2/5" not in said.out
    assert "FAILED" in said.out
    assert stage.left == []


def test_a_limit_of_ones_own_is_cut_to_a_tenth_too(kairo: Any, stage: Stage) -> None:
    said = kairo("demo", "--budget", "tokens=20000,loops=50")
    assert "a budget of 20,000 tokens" in said.out
    assert "3/5  The same team with a tenth of the budget: 2,000 tokens\n" in said.out


def test_without_a_limit_it_is_what_one_sentence_takes(kairo: Any, stage: Stage) -> None:
    """A tenth of what was spent (233 tokens) is not enough for any call."""
    said = kairo("demo", "--budget", "tokens=none")
    assert "shipped as data, no limit\n" in said.out
    shown = re.search(
        r"^3/5  The same team with budget for about one sentence: ([\d,]+) tokens$", said.out, re.MULTILINE
    )
    assert shown
    assert f" of {shown[1]} tokens, the limit held" in said.out
    assert said.code == 0


def test_a_budget_that_cannot_start_is_said(kairo: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_command, "less_budget", lambda first, limit: (200, "a tenth of the budget"))
    assert "billed: 0 of 200 tokens; nothing was started: member 'writer'" in kairo("demo").out


def test_a_program_gets_the_first_scene_alone(kairo_json: Any, stage: Stage) -> None:
    said = kairo_json("demo", "--json")
    assert (said.code, said.document["status"]) == (0, "completed")
    assert stage.left == []


def test_a_history_that_cannot_be_read_is_one_sentence(kairo: Any, stage: Stage, tmp_path: Path) -> None:
    said = kairo("demo", "--repo", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kairo: the demo cannot be set up: ")
    assert said.err.count("\n") == 1


def test_without_a_rejected_sentence_the_demo_says_so(kairo: Any, stage: Stage) -> None:
    stage.write = lambda request: answer(kt.ModelRequest([kt.Message.user(f"Begin with {request.messages[-1].text}")]))
    said = kairo("demo")
    assert "2/5  A sentence that was sent back, and its revision\n  every sentence passed at its first" in said.out


def test_of_a_run_without_reviews_nothing_is_mended() -> None:
    assert find_mended(RunStory()) is None


def test_a_signal_ends_the_scene_of_the_killed_run() -> None:
    with pytest.raises(SystemExit) as ended, demo_command.ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ctrl_c_in_that_scene_ends_the_demo_and_leaves_nothing(
    kairo: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(model: str, say: Callable[[str], object]) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(survives, "survive", interrupt)
    said = kairo("demo")
    assert (said.code, said.err) == (130, "kairo: interrupted\n")
    assert stage.left == []


@pytest.mark.local_model
@pytest.mark.long  # `make demo` is what it looks at
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs the signals of POSIX")
def test_the_whole_demo_on_the_embedded_model(tmp_path: Path) -> None:
    """As a program without a terminal: every scene has its content, and only the report and its runs are left."""
    done = subprocess.run(
        [sys.executable, "-m", "kairo_team.cli", "demo"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "blocked the event loop" not in line]  # a busy machine's
    assert (done.returncode, said) == (0, [])
    work, mended, tenth, killed, report = scenes(done.stdout).values()
    assert "\nCOMPLETED  after " in work
    assert re.search(
        r"attempt 1, writer: rejected\n.*\n  finding: .*\n(  finding: .*\n)*  attempt \d, .*: accepted", mended
    )
    assert "the limit held" in tenth
    assert "notes" in tenth.partition("not finished: ")[2]
    assert "9 finished calls were paid once each" in killed
    assert Path(report.split()[0]).is_file()
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == ["report.html", "runs.db"]
