from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team._util.guesses import OF_THE_COMMAND_LINE
from kairo_team.cli.commands import COMMANDS

TeamFile = Callable[..., Path]

TEAM = 'team = kt.Team("duo", [kt.Member("a", lambda a: "fine")])\n'
PLAN = "plan = kt.TaskGraph([{}])\n"

BAD_FILES = {
    "no Python": ("this is no python", "team_file.py cannot be loaded: line 2: SyntaxError: "),
    "raises": ("\n1 / 0\n", "team_file.py cannot be loaded: line 3: ZeroDivisionError: division by zero"),
    "exits": ("raise SystemExit(0)", "line 2: it ended the program (SystemExit): put what it does under `if"),
    "missing module": ("import no_such_module_x", "No module named 'no_such_module_x': install 'no_such_module_x'"),
    "no team": ("x = 1", "builds no kt.Team at its top level: add team = "),
    "several teams": (TEAM + TEAM.replace("team =", "other ="), "builds several teams, 'other', 'team': name the one"),
    "cycle": (
        TEAM + PLAN.format('kt.Task("a", "x", depends_on=["b"]),\nkt.Task("b", "x", depends_on=["a"])'),
        "line 3: the tasks form a cycle: a -> b -> a",
    ),
    "unknown dependency": (
        TEAM + PLAN.format('kt.Task("a", "x", depends_on=["c"])'),
        "line 3: task 'a' depends on unknown tasks 'c'; the plan has 'a'",
    ),
    "bad value": (TEAM + PLAN.format('kt.Task(3, "x")'), "line 3: Task.id must be a string, not 3"),
    "bad team": ("team = kt.Team('x', [])", "line 2: team 'x' has no members"),
    "no goal": (TEAM, "team 'duo' has no goal: give one after the file, or let the file build"),
    "unknown role": (
        TEAM + PLAN.format('kt.Task("t", "x", role="editor")'),
        "nothing was started: task 't' needs the role 'editor', which no member offers; the team has 'a'",
    ),
    "unknown evaluator": (
        TEAM + PLAN.format('kt.Task("t", "x", evaluator="legal")'),
        "nothing was started: task 't' names the evaluator 'legal'; the team has ",
    ),
    "unknown provider": (
        'team = kt.Team("t", [kt.Member("a", kt.MiniAgent("nonsense"))])\n' + PLAN.format('kt.Task("t", "x")'),
        "nothing was started: member 'a': model 'nonsense' cannot be used: a model is named 'provider:name'",
    ),
    "budget too small": (
        (
            "from kairo_team.testing import ScriptedModel\n"
            'team = kt.Team("t", [kt.Member("a", kt.MiniAgent(ScriptedModel(["x"])))])\n'
            'request = kt.TeamExecutionRequest("x", config=kt.TeamConfig(budget=kt.Budget(tokens=1)))'
        ),
        "nothing was started: member 'a': its first prompt alone needs about ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_one_sentence(kairo: Any, team_file: TeamFile, case: str) -> None:
    text, sentence = BAD_FILES[case]
    said = kairo("run", team_file(text))
    assert said.code == 2
    assert said.err.startswith("kairo: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert said.out == ""


def test_a_file_is_found_whose_name_is_too_long_only_with_the_teams(kairo: Any, tmp_path: Path) -> None:
    file = tmp_path / f"{'x' * 240}.py"
    file.write_text('import kairo_team as kt\nduo_of_writers = kt.Team("t", [kt.Member("a", lambda a: "made")])')
    assert kairo("check", f"{file}:duo_of_writers", "x").code == 0


def test_a_mistake_in_a_file_beside_it_is_found_there(kairo: Any, team_file: TeamFile, tmp_path: Path) -> None:
    (tmp_path / "team_helper.py").write_text("\n\nprint(undefined)\n", encoding="utf-8")
    said = kairo("run", team_file("import team_helper"), "x")
    assert said.code == 2
    assert "cannot be loaded: team_helper.py, line 3: NameError: name 'undefined' is not defined" in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "no_such.py"], "there is no file 'no_such.py': give the path of a Python file"),
        (["run", "no_such.py:team"], "there is no file 'no_such.py'"),
        (["run", "."], "'.' is not a Python file"),
        (["run", "x" * 5000 + ".py"], f"there is no file '{'x' * 199}: give the path of a Python file"),
        (["check", "x" * 5000 + ".py:team"], "there is no file 'xxx"),
        (["graph", "x/" * 5000], "there is no file 'x/x/"),
        (["run", "{folder}/README.md"], "is not a Python file: give the path of a .py file"),
        (["run", "{newsroom}:"], "names no team after the colon: write FILE.py or FILE.py:TEAM"),
        (["run", "{newsroom}:nobody"], "newsroom.py has no 'nobody': it has 'team'"),
        (
            ["run", "{newsroom}:write"],
            "'write' in {newsroom} is a function, not a kt.Team: it has 'team'",
        ),
        (["run", "{newsroom}", " "], "TeamExecutionRequest.goal: the goal must not be blank"),
        (["run", "{newsroom}", "--model", "plain"], "model 'plain' cannot be used: a model is named 'provider:name'"),
        (["run", "{newsroom}", "--model", "local:big"], "the embedded models are 'local:smollm2'"),
        (["run", "{newsroom}", "--budget", "tokens"], "--budget 'tokens' cannot be read at 'tokens': give it as"),
        (["run", "{newsroom}", "--budget", "coins=3"], "not 'coins': give it as --budget tokens=20000"),
        (["run", "{newsroom}", "--budget", "tokens=1,tokens=2"], "--budget names 'tokens' twice"),
        (["run", "{newsroom}", "--budget", "tokens=many"], "--budget tokens must be a whole number, not 'many'"),
        (["run", "{newsroom}", "--budget", "tokens=1.5"], "--budget tokens must be a whole number, not '1.5'"),
        (["run", "{newsroom}", "--budget", "seconds=soon"], "--budget seconds must be a number of seconds, not 'soon'"),
        (["run", "{newsroom}", "--budget", "seconds=nan"], "Budget.seconds must be a finite number of seconds >= 0"),
        (["run", "{newsroom}", "--budget", "tokens=-1"], "Budget.tokens must be a whole number >= 0, not -1"),
        (["run", "{newsroom}", "--budget", "dollars=few"], "Budget.dollars must be an amount of money such as '0.05'"),
        (["run", "{newsroom}", "--budget", "loops=0"], "the budget allows 0 loops"),
        (["run", "{newsroom}", "--colour"], "No such option: --colour. kairo run --help lists what there is"),
        (["run"], "Missing argument 'FILE[:TEAM]'. kairo run --help lists"),
        (["fly"], "No such command 'fly'. kairo --help lists"),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'? kairo --help lists"),
        (["run", "{newsroom}", "--content", "all"], "(env var: 'KAIRO_CONTENT'): 'all' is not one of 'none', 'events'"),
        (["demo", "--repo", "{newsroom}"], "is not a directory: give the path of a git repository"),
    ],
)
def test_a_bad_argument_is_one_sentence(kairo: Any, arguments: list[str], sentence: str) -> None:
    newsroom = Path(__file__).parent / "data" / "newsroom.py"
    names = {"newsroom": str(newsroom), "folder": str(newsroom.parents[3])}
    said = kairo(*[argument.format(**names) for argument in arguments])
    assert said.code == 2
    assert said.err.startswith("kairo: ")
    assert said.err.count("\n") == 1
    assert sentence.format(**names) in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "arguments", [["run", "no_such.py", "--json"], ["run", "--json", "--colour"], ["run", "{refused}", "--json"]]
)
def test_a_refusal_is_also_a_document(kairo_json: Any, team_file: TeamFile, arguments: list[str]) -> None:
    refused = team_file(TEAM + PLAN.format('kt.Task("t", "x", role="editor")'))
    said = kairo_json(*[argument.format(refused=refused) for argument in arguments])
    assert said.code == 2
    assert (said.document["status"], said.document["exit_code"]) == ("refused", 2)
    assert said.document["error"] in said.err


def test_a_missing_model_file_is_a_refusal(kairo: Any, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    monkeypatch.setenv("KAIRO_LOCAL_MODEL", "/no/such.gguf")
    text = 'team = kt.Team("t", [kt.Member("a", kt.MiniAgent("local:smollm2"))])'
    said = kairo("run", team_file(text), "x")
    assert said.code == 2
    assert "there is no file '/no/such.gguf': KAIRO_LOCAL_MODEL must name a GGUF file" in said.err


def test_a_command_of_another_program_is_answered_with_one_of_ours() -> None:
    assert OF_THE_COMMAND_LINE.keys().isdisjoint(COMMANDS)
    for guess, instead in OF_THE_COMMAND_LINE.items():
        named = re.findall(r"kairo ([a-z-]+)", instead)
        assert named, guess
        assert {*named} <= {*COMMANDS, "--version", "--help"}, guess


LONG = "x" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        ("report", LONG),
        ("runs", "--journal", LONG),
        ("demo", "--repo", LONG),
        ("backup", LONG, "copy.db"),
        ("eval", LONG, "--team", "team.py"),
        ("judge", "score", LONG, "--judge", "test:m", "--rubric", "rubric.py"),
    ],
)
def test_a_name_that_no_file_can_have_is_one_sentence(kairo: Any, words: tuple[str, ...]) -> None:
    said = kairo(*words)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert "it is too long; give the path of a file" in said.err


def test_a_run_id_of_another_encoding_is_not_found(kairo: Any, tmp_path: Path) -> None:
    kt.SqliteJournal(tmp_path / "runs.db").close()
    said = kairo("events", "\udcff", "--journal", str(tmp_path / "runs.db"))
    assert said.code == 2
    assert "there is no run '\\udcff' in" in said.err
