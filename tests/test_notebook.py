"""What a notebook shows: of hostile values only text, of big ones a part, without a script."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.cli.report import draw_tree
from kairo_team.governance import Governor
from kairo_team.results import TaskOutcome
from kairo_team.testing import ScriptedModel
from tests.notebooks import output_of

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> \x1b[31m \u202eabc &amp; \x00"
ALLOWED = {"div", "b", "table", "tr", "th", "td", "details", "summary", "pre", "img"}
OF_TEXTS = {"h4", "h5", "p", "br", "em", "strong", "a", "ul", "ol", "li", "code", "blockquote", "hr", "thead", "tbody"}
"""Elements of a text that is rendered."""


class Seen(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def work(assignment: kt.Assignment) -> str:
    return f"{assignment.task.id}: {HOSTILE}"


def fail(_: kt.Assignment) -> str:
    raise RuntimeError(HOSTILE)


def shown(value: Any) -> str:
    page: str = value._repr_html_()
    seen = Seen(page)
    assert set(seen.tags) <= ALLOWED | OF_TEXTS
    assert seen.attributes <= {"colspan", "style", "alt", "src", "class", "tabindex", "dir", "href", "rel", "start"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    return page


def test_a_team_is_a_table_of_its_members() -> None:
    role = kt.Role("writer", capabilities={HOSTILE}, allowed_tools=set())
    senior = kt.Member("senior", work)
    member = kt.Member(role, work, budget=kt.Budget(tokens=4_000), max_concurrency=2, senior=senior)
    page = shown(kt.Team(f"newsroom {HOSTILE}", [member], output_types={HOSTILE: int}))
    text = Seen(page).text
    assert "newsroom <script>" in text
    assert "Budget(tokens=4000)" in text
    assert Seen(page).tags.count("tr") == 3, "a senior has its line"


def test_a_plan_is_a_picture_of_its_own() -> None:
    plan = kt.TaskGraph([kt.Task("a", HOSTILE, evaluator=HOSTILE), kt.Task("b", "x", role="writer", depends_on=["a"])])
    pytest.importorskip("rich", reason="the picture needs the extra cli")
    page = shown(plan)
    found = re.fullmatch(r'<img style="max-width:100%" alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)">', page)
    assert found is not None
    assert found[1] == "2 tasks, 1 dependency"
    picture = base64.b64decode(found[2]).decode()
    assert picture == plan._repr_svg_()  # pyright: ignore[reportPrivateUsage]  # a notebook calls it
    assert set(Seen(picture).tags) <= {"svg", "title", "style", "defs", "marker", "path", "text", "g", "rect"}
    assert ">writer</text>" in picture


def test_a_big_plan_is_a_table_of_its_first_tasks() -> None:
    plan = kt.TaskGraph([kt.Task(f"t{number}", HOSTILE) for number in range(1_000)])
    assert plan._repr_svg_() is None  # pyright: ignore[reportPrivateUsage]  # a notebook calls it
    text = Seen(shown(plan)).text
    assert "1,000 tasks" in text
    assert "t99" in text
    assert "t100" not in text
    assert "and 900 more" in text


def test_without_the_extra_a_plan_is_a_table() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; import kairo_team as kt\n"
        "plan = kt.TaskGraph([kt.Task('first', 'Do it.')])\n"
        "assert plan._repr_svg_() is None; print(plan._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "<td>first</td>" in done.stdout


def test_a_result_shows_its_status_its_tasks_and_its_budget() -> None:
    plan = kt.TaskGraph([kt.Task("good", "x", member="a"), kt.Task("bad", HOSTILE, member="b")])
    team = kt.Team(HOSTILE, [kt.Member("a", work), kt.Member("b", fail)])
    result = kt.run_sync(team, HOSTILE, plan=plan, run_id="run-1", budget=kt.Budget(tokens=900))
    text = Seen(shown(result)).text
    assert text.startswith(f"run-1: {result.status.value}1 of 2 tasks accepted")
    assert "good: <script>alert(1)</script>" in text, "the output is shown as text"
    assert "<script>alert(1)</script>" in text, "the error is shown as text"
    assert "0 of 900 tokens" in text


def test_a_result_shows_its_output_its_verdicts_and_the_budget_of_each_member() -> None:
    def write(assignment: kt.Assignment) -> str:
        return "# Tides\n\n- *two* a day <script>alert(1)</script>" if assignment.findings else "Tides!"

    def is_calm(artifact: kt.Artifact) -> bool:
        return "!" not in artifact.text

    rubric = kt.Rubric([kt.Criterion("calm", "it does not shout", check=is_calm)])
    coordinator = kt.ExpertTeamCoordinator(evaluator=rubric)
    team = kt.Team("desk", [kt.Member("writer", write, budget=kt.Budget(tokens=400))], coordinator=coordinator)
    result = kt.run_sync(team, "Explain tides.", run_id="run-1", budget=kt.Budget(tokens=900, dollars="0.5"))
    page = shown(result)
    seen = Seen(page)
    assert "run-1: completed1 of 1 task accepted" in seen.text
    assert "h4" in seen.tags, "the output is rendered"
    assert "two a day <script>alert(1)</script>" in seen.text
    assert re.search("calm.*met.*check", seen.text.partition("verdicts")[2])
    assert "0 of 900 tokens, $0 of $0.5" in seen.text
    assert "0 of 400 tokens" in seen.text


def test_a_failed_result_shows_its_partial_output() -> None:
    result = kt.TeamResult("run-1", kt.TeamStatus.FAILED, (), partial_artifact=kt.Artifact("half a page " * 10_000))
    text = Seen(shown(result)).text
    assert "partial outputhalf a page" in text
    assert "Cut after 20,000 of 120,000 characters." in text


CELL = """
import kairo_team as kt
team = kt.Team("desk", [kt.Member("writer", lambda a: "# Tides\\n\\n<script>alert(1)</script>")])
await kt.run(team, "Explain tides.", budget=kt.Budget(tokens=900))
"""


@pytest.mark.real_time
def test_a_real_kernel_shows_a_result() -> None:
    output = output_of(CELL)
    page = output["data"]["text/html"]
    assert "<h4>Tides</h4>" in page
    assert "<script>" not in page
    assert "0 of 900 tokens" in page


def test_a_result_of_many_tasks_and_long_errors_stays_small() -> None:
    error = "<" * 10**6
    outcomes = tuple(TaskOutcome(f"t{number}", kt.TaskStatus.FAILED, error=error) for number in range(1_000))
    page = shown(kt.TeamResult("run-1", kt.TeamStatus.FAILED, outcomes, error="why " * 10**6))
    assert len(page) < 200_000
    assert "and 900 more" in page


def test_a_governor_shows_its_tree_and_why_it_halted() -> None:
    governor = Governor(kt.Budget(tokens=100), name=HOSTILE)
    governor.carve("child", kt.Budget(tokens=40))
    assert "child" in Seen(shown(governor)).text
    governor.cancel()
    assert "halted, cancelled" in shown(governor)


def test_a_limit_that_paid_for_no_call_is_not_shown_as_used_up() -> None:
    class Asks:
        async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
            request = kt.ModelRequest([kt.Message.user("word " * 100)], max_tokens=200)
            return (await context.model("openai:gpt-5-mini").complete(request)).text

    runtime = kt.Runtime(models={"openai:*": ScriptedModel([])})
    result = kt.run_sync(kt.Team("t", [kt.Member("a", Asks())]), "Go.", budget=kt.Budget(tokens=20), runtime=runtime)
    too_little = "the next call needs more than the 20 tokens left"
    assert result.budget is not None
    assert too_little in str(result.budget).splitlines()[0]
    assert too_little in Seen(shown(result)).text
    assert [line.rstrip().endswith(too_little) for line in draw_tree(result.budget)][1:] == [True, False, False]
    assert "used up" not in "".join(draw_tree(result.budget))
