"""Mistakes of a first hour: the message says what to write instead."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import kairo_team as kt
from kairo_team.artifacts import Finding
from kairo_team.errors import ContractBreach, Misuse
from kairo_team.prompts import Prompts
from kairo_team.testing import FunctionModel

TEAM = kt.Team("desk", [kt.Member("writer", lambda assignment: "a draft")])
anything: Any = kt
ROOT: Final = Path(__file__).resolve().parent.parent


async def _plan_of_a_list() -> None:
    async with kt.TeamRun.open(kt.TeamExecutionRequest("Go."), TEAM) as run:
        await run.plan([kt.Task("a", "Do it.")])  # type: ignore[arg-type]  # the mistake
    run.result.check()


class Early:
    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            await run.plan(kt.TaskGraph([kt.Task("a", "Do it.")]))
            return run.result


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: anything.MiniAgent("m:x", temperature=0), TypeError, "settings={'temperature': 0, 'max_tokens': 500}"),
    (lambda: anything.MiniAgent("m:x", instructions="Be brief."), TypeError, r"kt\.Role\('writer', instructions="),
    (lambda: anything.MiniAgent("m:x", templtes={}), TypeError, "did you mean 'templates'"),
    (lambda: anything.Team("t", TEAM.members).run("Go."), AttributeError, r"run it with kt\.run_sync\(team, "),
    (lambda: anything.Team("t", TEAM.members).kickoff(), AttributeError, r"run it with kt\.run_sync\(team, "),
    (lambda: anything.Team("t", TEAM.members).mebmers, AttributeError, "a Team has no 'mebmers'$"),
    (lambda: anything.Review, AttributeError, r"a review is a kt\.Rubric of kt\.Criterion\("),
    (lambda: anything.RolePlanner, AttributeError, "write `from kairo_team.coordinators import RolePlanner`"),
    (lambda: anything.PydanticAIAgent, AttributeError, "write `from kairo_team.agents import PydanticAIAgent`"),
    (lambda: anything.Mmber, AttributeError, "did you mean 'Member'"),
    (lambda: anything.Member("w", "openai:gpt-5"), ValueError, r"kt\.MiniAgent\('openai:gpt-5'\) is an agent"),
    (lambda: anyio.run(_plan_of_a_list), kt.TeamFailed, r"a plan is a kt\.TaskGraph\(\[\.\.\.\]\), or a function"),
    (lambda: kt.run_sync(TEAM, "Go.", coordinator=Early()), ContractBreach, "`return run.result` after the block"),
    (lambda: kt.run_sync(TEAM, "Go.", run_id="r", resume=True), Misuse, r"runtime=kt\.Runtime\(journal=kt\.Sqlite"),
]


@pytest.mark.parametrize(("make", "kind", "says"), MISTAKES)
def test_third_o28_a_mistake_is_told_what_to_write(
    make: Callable[[], object], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        make()


@pytest.mark.anyio
async def test_third_o28_a_run_that_waits_is_not_called_running() -> None:
    from kairo_team.coordinators import ExpertTeamCoordinator

    runtime = kt.Runtime(gate=kt.DeferGate())
    coordinator = ExpertTeamCoordinator(plan_approval=True)
    assert (await kt.run(TEAM, "Go.", runtime=runtime, run_id="r", coordinator=coordinator)).status == "suspended"
    with pytest.raises(
        kt.RunNotFound, match=r"^no run 'q' in this runtime, which has no journal= and knows only .*'r'$"
    ):
        await runtime.resume("q", TEAM)


def test_third_o28_a_check_says_in_one_line_how_many_tasks_to_expect() -> None:
    plan = kt.TaskGraph([kt.Task(f"t{number}", "Do it.") for number in range(53)])
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(FunctionModel(lambda request: "x")))])
    short = kt.check(team, "Go.", plan=plan, budget=kt.Budget(loops=5))
    assert str(short).splitlines()[0] == f"can start; expect {short.carries} of 53 tasks done"
    assert str(kt.check(team, "Go.", plan=plan)).splitlines()[0] == "can start"


def test_third_o28_a_finding_reads_as_sentences() -> None:
    findings = [
        Finding("a", observed="the fee is not in the contract", expected="name the fee"),
        Finding("b", observed="It is late.", expected="be early"),
        Finding("c", observed="", expected="be brief"),
        Finding("d", observed="the text lacks 'sea'", expected="it names the sea"),
        Finding("e", observed="it cites no law (or a wrong one)", expected="cite one"),
        Finding("f", observed='it ends with "What now?"', expected="end calmly"),
    ]
    assignment = kt.Assignment(kt.Task("t", "Write."), "Write.", {}, {}, {}, 2, kt.Artifact("old"), findings)
    text = Prompts({}).render("task", assignment=assignment, foreign=False, limits="")
    assert "- the fee is not in the contract. Wanted: name the fee\n" in text
    assert "- It is late. Wanted: be early\n" in text
    assert "- Wanted: be brief" in text
    assert "- the text lacks 'sea'. Wanted: it names the sea\n" in text
    assert "- it cites no law (or a wrong one). Wanted: cite one\n" in text
    assert '- it ends with "What now?" Wanted: end calmly\n' in text


async def test_third_o29_a_member_gets_findings_that_were_open_and_what_is_right_apart() -> None:
    """What was right all along is no finding: it was never open."""
    seen: list[kt.Assignment] = []

    def write(assignment: kt.Assignment) -> str:
        seen.append(assignment)
        return "The moon pulls the sea." if assignment.findings else "The moon."

    criteria = [kt.Criterion(word, f"it names the {word}", kt.checks.contains(word)) for word in ("moon", "sea")]
    experts = kt.ExpertTeamCoordinator(evaluator=kt.Rubric(criteria))
    result = await kt.run(kt.Team("desk", [kt.Member("writer", write)], experts), "Explain tides.")
    assert result.status is kt.TeamStatus.COMPLETED
    assert [(one.id, one.status) for one in seen[1].findings] == [("sea", "open")]
    assert seen[1].met == ("it names the moon",)


def test_third_o29_every_name_that_a_page_gives_kt_exists() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"\bkt\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8"))}
    assert len(named) > 50, "the pages are read"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the migration page names what has moved
        assert [name for name in sorted(named) if not hasattr(kt, name)] == []
