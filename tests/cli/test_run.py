from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.messages import Message, ModelRequest
from kairo_team.models import resolver
from kairo_team.results import TeamStatus
from kairo_team.testing import ScriptedModel
from kairo_team.views import RunProgress

NEWSROOM = Path(__file__).parent / "data" / "newsroom.py"
TeamFile = Callable[..., Path]

ONE = 'team = kt.Team("duo", [kt.Member("a", lambda a: "fine")])\n'
PLANNED = """
def good(assignment): return "fine"
def bad(assignment): raise ValueError("no ink")
team = kt.Team("duo", [kt.Member("a", good), kt.Member("b", {agent})], coordinator=kt_coordinator)
plan = kt.TaskGraph([kt.Task("first", "x", role="a"), kt.Task("second", "x", role="b")])
"""
NO_RETRIES = """
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
kt_coordinator = {coordinator}(failure_policy=FailurePolicy(retries=0))
"""
BOARD = NO_RETRIES.format(coordinator="TaskDispatchCoordinator")
EXPERTS = NO_RETRIES.format(coordinator="ExpertTeamCoordinator")


def test_a_completed_run_tells_what_happened_what_came_out_and_what_it_cost(kairo: Any) -> None:
    said = kairo("run", NEWSROOM)
    assert (said.code, said.err) == (0, "")
    events, _, report = said.out.partition("\nOutput\n")
    assert [line[10:] for line in events.splitlines()][:5] == [
        "newsroom: started with 2 members",
        "newsroom: 3 tasks planned",
        "moon: assigned to writer",
        "sun: assigned to writer",
        "moon: revise, 1 finding: it has 2 words",
    ]
    assert events.splitlines()[-1].endswith("newsroom: completed, 360 tokens")
    assert report.startswith("  | - Tides follow the moon, as everybody knows.\n")
    assert re.search(r"  \+ moon  done       2 attempts   pass                   240 tokens +[0-9.]+ s\n", report)
    assert "360 of 2,000" in report
    assert report.splitlines()[-1].startswith("COMPLETED  after ")


@pytest.mark.parametrize(
    ("text", "code", "status", "reason"),
    [
        (BOARD + PLANNED.format(agent="bad"), 3, "DEGRADED", "task 'second' failed: ValueError: no ink"),
        (EXPERTS + PLANNED.format(agent="bad"), 4, "FAILED", "task 'second' failed: ValueError: no ink"),
        (
            "import anyio\n"
            + BOARD
            + PLANNED.format(agent="lambda a: anyio.sleep(9)")
            + 'request = kt.TeamExecutionRequest("x", config=kt.TeamConfig(budget=kt.Budget(seconds=0.2)))',
            5,
            "TIMEOUT",
            "time_budget_exceeded",
        ),
    ],
)
def test_every_status_has_its_exit_code_and_says_why(
    kairo: Any, team_file: TeamFile, text: str, code: int, status: str, reason: str
) -> None:
    said = kairo("run", team_file(text))
    assert said.code == code
    status_line, reason_line = said.out.splitlines()[-2:]
    assert status_line.startswith(f"{status}  after ")
    assert reason in reason_line


MANY = """
def work(assignment):
    if assignment.task.id.endswith("7"): raise ValueError("no ink")
    return "fine"
team = kt.Team("duo", [kt.Member("a", work)], coordinator=kt_coordinator)
plan = kt.TaskGraph([kt.Task(f"t{n}", "x") for n in range(200)])
"""


def test_of_many_tasks_the_first_failures_of_each_cause_are_listed(
    kairo: Any, team_file: TeamFile, tmp_path: Path
) -> None:
    book = tmp_path / "runs.db"
    said = kairo("run", team_file(BOARD + MANY), "--journal", book, "--run-id", "run-1")
    table = said.out.partition("\nTasks\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[1] for line in table if line.startswith("  x")] == ["t7", "t17", "t27", "t37", "t47"]
    assert table[-1] == "  and 180 done, 15 failed (--json has them all)"
    shown = kairo("show", "run-1", "--journal", book).out.partition("\nTasks\n")[2].splitlines()
    assert [line.split()[1] for line in shown[:20]] == ["failed"] * 20
    assert sum("no ink" in line for line in shown) == 0, "the line above says it"


def test_a_run_whose_coordinator_breaks_is_a_failed_run(kairo: Any, team_file: TeamFile) -> None:
    breaks = "class Breaks:\n    async def execute(self, request, team):\n        return team.nothing\n"
    said = kairo("run", team_file(breaks + ONE.replace("])", "], coordinator=Breaks())")), "x")
    assert said.code == 4
    assert "the run broke off: AttributeError" in said.out


def test_what_is_no_coordinator_is_refused(kairo: Any, team_file: TeamFile) -> None:
    said = kairo("run", team_file(ONE.replace("])", "], coordinator=object())")), "x")
    assert said.code == 2
    assert "Team.coordinator must have" in said.err


def test_an_agent_that_ends_the_program_ends_only_the_run(kairo: Any, team_file: TeamFile) -> None:
    quits = 'import sys\nasync def quits(assignment): sys.exit(0)\nteam = kt.Team("t", [kt.Member("a", quits)])'
    said = kairo("run", team_file(quits), "x")
    assert said.code == 4
    assert "SystemExit" in said.out


def test_the_named_team_is_run(kairo: Any, team_file: TeamFile) -> None:
    two = ONE + 'other = kt.Team("other", [kt.Member("b", lambda a: "from the other")])\n'
    said = kairo("run", f"{team_file(two)}:other", "x")
    assert said.code == 0
    assert "from the other" in said.out


def test_one_team_under_two_names_is_one_team(kairo: Any, team_file: TeamFile) -> None:
    assert kairo("run", team_file(ONE + "alias = team\n"), "x").code == 0


def test_the_goal_replaces_the_requests_goal_and_keeps_its_plan(kairo: Any, team_file: TeamFile) -> None:
    asked = 'team = kt.Team("t", [kt.Member("a", lambda a: f"{a.goal}|{a.task.id}|{dict(a.context)}")])\n'
    asked += 'request = kt.TeamExecutionRequest("old", context={"n": 1}, plan=kt.TaskGraph([kt.Task("only", "x")]))\n'
    path = team_file(asked)
    assert "old|only|{'n': 1}" in kairo("run", path).out
    assert "new|only|{'n': 1}" in kairo("run", path, "new").out


def test_a_plan_beside_a_request_without_one_is_its_plan(kairo: Any, team_file: TeamFile) -> None:
    text = 'team = kt.Team("t", [kt.Member("a", lambda a: f"{a.goal}|{a.task.id}")])\n'
    text += 'request = kt.TeamExecutionRequest("do")\nplan = kt.TaskGraph([kt.Task("only", "x")])\n'
    assert "do|only" in kairo("run", team_file(text)).out


def test_the_files_own_folder_is_importable_then_and_while_agents_work(
    kairo: Any, team_file: TeamFile, tmp_path: Path
) -> None:
    (tmp_path / "team_words.py").write_text('WORD = "early"\n', encoding="utf-8")
    (tmp_path / "team_late_words.py").write_text('WORD = "late"\n', encoding="utf-8")
    text = "import team_words\ndef say(a):\n    import team_late_words\n"
    text += '    return team_words.WORD + team_late_words.WORD\nteam = kt.Team("t", [kt.Member("a", say)])'
    before = list(sys.path)
    assert "earlylate" in kairo("run", team_file(text), "x").out
    assert sys.path == before


def test_a_file_named_like_a_module_hides_none(kairo: Any, team_file: TeamFile) -> None:
    assert kairo("run", team_file(ONE, "json.py"), "x").code == 0
    assert sys.modules["json"] is json


def test_budget_overrides_single_fields_of_the_requests(kairo: Any) -> None:
    said = kairo("run", NEWSROOM, "--budget", "tokens=150")
    assert said.code == 4
    assert "tokens used up" in said.out
    assert " of 60" in said.out, "the request's seconds are kept"
    assert " of 2,000" not in kairo("run", NEWSROOM, "--budget", "tokens=none").out


def test_model_takes_the_place_of_every_model_the_team_names(
    kairo: Any, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["the tide", "is high"])
    monkeypatch.setattr(resolver, "_build", {"fake:one": model}.__getitem__)
    text = 'team = kt.Team("t", [kt.Member("a", kt.MiniAgent("x:y")), kt.Member("b", kt.MiniAgent("p:q"))])'
    said = kairo("run", team_file(text), "x", "--model", "fake:one")
    assert said.code == 0
    model.assert_complete()


def test_a_model_object_is_not_replaced_and_that_is_said(
    kairo: Any, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_build", {"fake:one": ScriptedModel([])}.__getitem__)
    text = "from kairo_team.testing import ScriptedModel\n"
    text += 'team = kt.Team("t", [kt.Member("a", kt.MiniAgent(ScriptedModel(["mine"])))])'
    said = kairo("run", team_file(text), "x", "--model", "fake:one")
    assert "mine" in said.out
    assert (
        said.err.splitlines().count(
            "kairo: --model replaces named models only: member 'a' brings its own model object, which stays"
        )
        == 1
    )


def test_all_who_bring_model_objects_are_named_in_one_sentence(
    kairo: Any, team_file: TeamFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_build", {"fake:one": ScriptedModel(["named"] * 9)}.__getitem__)
    text = "from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator\n"
    text += "from kairo_team.testing import ScriptedModel\nfrom kairo_team.models import Fallback\n"
    text += "mine = lambda: ScriptedModel(['mine'] * 3)\n"
    text += "models = [mine(), 'x:y', mine(), Fallback('x:y', 'p:q'), Fallback('x:y', mine()), mine(), mine()]\n"
    text += "members = [kt.Member(f'm{n}', kt.MiniAgent(model)) for n, model in enumerate(models)]\n"
    text += "team = kt.Team('t', members, coordinator=ExpertTeamCoordinator(planner=AgentPlanner(mine())))\n"
    file = team_file(text)
    who = "the planner, member 'm0', member 'm2' and 3 more bring their own model objects, which stay"
    for command in ("run", "check"):
        said = kairo(command, file, "x", "--model", "fake:one")
        assert [line for line in said.err.splitlines() if "--model" in line] == [
            f"kairo: --model replaces named models only: {who}"
        ]


def test_the_teams_own_runtime_keeps_its_subscribers_and_models(kairo: Any, team_file: TeamFile) -> None:
    text = "from kairo_team.testing import ScriptedModel\nseen = []\n"
    text += 'runtime = kt.Runtime(subscribers=[seen.append], models={"x:*": ScriptedModel(["a reply"])})\n'
    text += 'team = kt.Team("t", [kt.Member("a", kt.MiniAgent("x:y"))], runtime=runtime)\n'
    said = kairo("run", team_file(text), "x")
    assert said.code == 0
    assert "a reply" in said.out
    assert sys.modules["team_file"].seen[-1].type == "team.completed"


def test_what_members_write_cannot_command_the_terminal(kairo: Any, team_file: TeamFile) -> None:
    text = 'team = kt.Team("t", [kt.Member("a", lambda a: "[bold]x[/bold] \\x1b[2J\\x9b31m :smile: \\ud800 end")])'
    out = kairo("run", team_file(text), "x").out
    assert "[bold]x[/bold] ?[2J?31m :smile: ? end" in out
    assert "\x1b" not in out


def test_a_long_line_is_not_wrapped_where_nobody_sits(kairo: Any, team_file: TeamFile) -> None:
    words = "word " * 100
    out = kairo("run", team_file(f'team = kt.Team("t", [kt.Member("a", lambda a: "{words}")])'), "x").out
    assert words.strip() in out


def test_partial_work_of_a_task_that_was_cut_short_is_shown(kairo: Any, team_file: TeamFile) -> None:
    text = "import anyio\nasync def slow(a, context):\n    context.keep('half a page')\n    await anyio.sleep(600)\n"
    text += 'team = kt.Team("t", [kt.Member("a", slow)])'
    said = kairo("run", team_file(text), "x", "--budget", "seconds=1")
    assert said.code == 5
    assert "Partial output\n  | half a page\n" in said.out


def test_a_thread_that_was_left_to_itself_neither_holds_nor_spoils_the_end(program: Any, team_file: TeamFile) -> None:
    text = "import atexit, time\ndef deaf(a): time.sleep(600)\natexit.register(print, 'registered by the file')\n"
    text += 'team = kt.Team("t", [kt.Member("a", deaf)])\n'
    text += (
        'request = kt.TeamExecutionRequest("x", config=kt.TeamConfig(budget=kt.Budget(seconds=0.1), cancel_grace=0.1))'
    )
    said = program("run", team_file(text))
    assert (said.code, said.err) == (5, "")
    assert said.out.endswith("registered by the file\n")


def test_a_real_runs_tokens_only_grow_up_to_what_the_result_says() -> None:
    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        reply = await context.model(ScriptedModel(["x"])).complete(ModelRequest([Message.user("?")]))
        return reply.text * (3 if assignment.attempt > 2 else 1)

    def long_enough(artifact: kt.Artifact) -> bool:
        return len(artifact.text) > 1

    progress = RunProgress()
    seen: list[int] = []
    runtime = kt.Runtime(subscribers=[progress.take, lambda event: seen.append(progress.tokens)])
    coordinator = ExpertTeamCoordinator(evaluator=Rubric([Criterion("long", "is long", check=long_enough)]))
    result = kt.run_sync(kt.Team("t", [kt.Member("a", work)]), "x", coordinator=coordinator, runtime=runtime)
    assert (result.status, result.outcomes[0].attempts) == (TeamStatus.COMPLETED, 3)
    assert seen == sorted(seen)
    assert seen[-1] == progress.rows["a"].tokens == result.usage.tokens > 0


def test_a_run_in_which_nothing_happens_says_that_it_goes_on(
    kairo: Callable[..., Any], team_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kairo_team.views.plain._QUIET", 0.05)
    waits = "import anyio\nasync def wait(a):\n    await anyio.sleep(0.5)\n    return 'done'\n"
    said = kairo("run", team_file(f'{waits}team = kt.Team("duo", [kt.Member("a", wait)])'), "Wait.")
    assert said.code == 0
    assert "duo: 1 running" in said.out
