"""A retry does not silently repeat what an earlier attempt changed by a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents.team_agent import TeamAgent
from kairo_team.artifacts import DoneCall
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import ToolCalled
from kairo_team.gates import CallbackGate
from kairo_team.permissions import PermissionDecision, SideEffect
from kairo_team.testing import EventRecorder, ScriptedModel
from kairo_team.tools import Tool, as_tool
from tests.agents.rigs import Ask, Reply, Rig, RigTool, each_rig
from tests.coordinators.bench import Verdicts

QUICK = FailurePolicy(backoff=0)
RETRIES = TaskDispatchCoordinator(failure_policy=QUICK)


class Post:
    """A tool that sends, and what it sent."""

    def __init__(self, **marks: Any) -> None:
        self.sent: list[str] = []
        self.marks = marks
        self.fails = 0
        """How many of its calls fail."""

    async def send(self, to: str) -> str:
        """Send it."""
        self.sent.append(to)
        if len(self.sent) <= self.fails:
            raise ConnectionError("nobody answers")
        return f"sent to {to}"

    @property
    def tool(self) -> Tool:
        return as_tool(kt.tool(name="send", **self.marks)(self.send))


class Clerk:
    """Sends to ann, fails as often as it is to, and returns the texts of its tool's results."""

    def __init__(self, post: Post, failures: int = 1) -> None:
        self.post = post
        self.left = failures
        self.told: list[Sequence[DoneCall]] = []
        self.results: list[Any] = []

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        self.told.append(assignment.done)
        result = await context.tool(self.post.tool)(to="ann")
        self.results.append(result)
        if self.left:
            self.left -= 1
            raise OSError("the pen broke")
        return result.text if assignment.previous is None else f"{result.text}, again"


async def run(*agents: Any, policy: FailurePolicy = QUICK, runtime: kt.Runtime | None = None) -> kt.TeamResult:
    members = [kt.Member(name, agent) for name, agent in zip("abc", agents, strict=False)]
    team = kt.Team("team", members, runtime=runtime)
    coordinator = TaskDispatchCoordinator(failure_policy=policy)
    plan = kt.TaskGraph([kt.Task("one", "Tell ann.", member="a", role=None)])
    if len(members) > 1:
        plan = kt.TaskGraph([kt.Task("one", "Tell ann.")])
    return await coordinator.execute(kt.TeamExecutionRequest("Tell ann.", plan=plan), team)


async def test_third_o14_a_retry_does_not_repeat_a_write_and_is_told_what_was_done() -> None:
    clerk = Clerk(Post(side_effect="write"))
    recorder = EventRecorder()
    result = await run(clerk, runtime=kt.Runtime(subscribers=[recorder]))
    assert (result.status, clerk.post.sent) == ("completed", ["ann"])
    assert clerk.told[0] == ()
    [done] = clerk.told[1]
    assert (done.attempt, done.tool, done.arguments, done.result) == (1, "send", '{"to": "ann"}', "sent to ann")
    assert (clerk.results[1].is_error, clerk.results[1].refused_by) == (True, "repeated-write")
    assert clerk.results[1].text == (
        "this needs the approval of a human, and the run has no gate: attempt 1 at this task made the same call, and "
        "its result was: sent to ann"
    )
    refused = [one for one in recorder.of(ToolCalled) if one.outcome == "refused"]
    assert [one.refused_by for one in refused] == ["repeated-write"]


@pytest.mark.parametrize("marks", [{"side_effect": "read"}, {"side_effect": "write", "idempotent": True}])
async def test_third_o14_what_only_reads_or_is_idempotent_is_repeated(marks: dict[str, Any]) -> None:
    clerk = Clerk(Post(**marks))
    assert (await run(clerk)).status == "completed"
    assert clerk.post.sent == ["ann", "ann"]
    assert len(clerk.told[1]) == 1


async def test_third_o14_an_unmarked_tool_is_not_repeated() -> None:
    clerk = Clerk(Post())
    await run(clerk)
    assert clerk.post.sent == ["ann"]


async def test_third_o14_the_policy_allows_it() -> None:
    clerk = Clerk(Post(side_effect="write"))
    result = await run(clerk, policy=FailurePolicy(backoff=0, repeat_writes="allow"))
    assert (result.status, clerk.post.sent) == ("completed", ["ann", "ann"])
    assert [call.tool for call in clerk.told[1]] == ["send"], "it is told all the same"
    with pytest.raises(ValueError, match=r'FailurePolicy.repeat_writes must be "ask" or "allow", not \'never\''):
        FailurePolicy(repeat_writes="never")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(("action", "sent"), [("approve", ["ann", "ann"]), ("reject", ["ann"])])
async def test_third_o14_a_person_decides(action: str, sent: list[str]) -> None:
    asked: list[kt.HumanRequest] = []

    async def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question)
        return kt.HumanDecision.approve() if action == "approve" else kt.HumanDecision.reject("once is enough")

    clerk = Clerk(Post(side_effect="write"))
    await run(clerk, runtime=kt.Runtime(gate=CallbackGate(decide)))
    assert clerk.post.sent == sent
    assert [question.text for question in asked] == [
        "may 'a' call 'send'? attempt 1 at this task made the same call, and its result was: sent to ann"
    ]


async def test_third_o14_another_member_does_not_repeat_it_either() -> None:
    post = Post(side_effect="write")
    first, second = Clerk(post, failures=9), Clerk(post, failures=0)
    result = await run(first, second, policy=FailurePolicy(retries=0))
    assert (result.status, post.sent) == ("completed", ["ann"])
    assert [call.result for call in second.told[0]] == ["sent to ann"]


async def test_third_o14_other_arguments_and_calls_within_one_attempt_are_not_asked_about() -> None:
    post = Post(side_effect="write")
    tries = 0

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        nonlocal tries
        tries += 1
        for to in ("ann", "ann") if tries == 1 else ("bob", "ann"):
            await context.tool(post.tool)(to=to)
        if tries == 1:
            raise OSError
        return "told"

    await run(work)
    assert post.sent == ["ann", "ann", "bob"]


async def test_third_o14_a_call_that_failed_is_told_and_may_be_made_again() -> None:
    post = Post(side_effect="write")
    post.fails = 1
    clerk = Clerk(post)
    result = await run(clerk)
    assert (result.output, post.sent) == ("sent to ann", ["ann", "ann"])
    [done] = clerk.told[1]
    assert (done.failed, done.result) == (True, "ConnectionError: nobody answers")


async def test_third_o14_a_call_that_took_too_long_is_asked_about() -> None:
    sent: list[str] = []

    @kt.tool(side_effect="write", timeout=5)
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        await anyio.sleep(9)
        return "late"

    texts: list[str] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        texts.append((await context.tool(send)(to="ann")).text)
        if len(texts) == 1:
            raise OSError
        return "told"

    await run(work)
    assert sent == ["ann"]
    assert "it is unknown whether it was done: TimeoutError" in texts[1]


async def test_third_o14_a_call_that_the_deadline_of_its_attempt_cut_is_asked_about() -> None:
    sent: list[str] = []
    texts: list[str] = []

    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        await anyio.sleep(99)
        return "sent"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        texts.append((await context.tool(send)(to="ann")).text)
        return "told"

    plan = kt.TaskGraph([kt.Task("one", "Tell ann.", timeout=10)])
    request = kt.TeamExecutionRequest("Tell ann.", plan=plan)
    result = await RETRIES.execute(request, kt.Team("team", [kt.Member("a", work)]))
    assert (result.status, sent) == ("completed", ["ann"])
    assert texts[0].endswith("attempt 1 at this task made the same call, and it is unknown whether it was done")


async def test_third_o14_a_guardrail_that_withholds_a_result_does_not_let_the_call_be_repeated() -> None:
    from kairo_team.governance import GuardrailContext, GuardrailDecision, GuardrailPhase

    class Withholds:
        name = "withholds"
        phases = (GuardrailPhase.POST_TOOL,)
        priority = 0

        async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
            return GuardrailDecision.deny("not for you")

    clerk = Clerk(Post(side_effect="write"))
    await run(clerk, runtime=kt.Runtime(guardrails=[Withholds()]))
    assert clerk.post.sent == ["ann"]


async def test_third_o14_a_revision_that_a_review_asked_for_is_new_work() -> None:
    post = Post(side_effect="write")
    clerk = Clerk(post, failures=0)
    verdict = kt.EvaluationVerdict.revise("again", findings=[kt.Finding("again", expected="say it again")])
    judge = Verdicts([verdict, kt.EvaluationVerdict.passed(1.0)])
    team = kt.Team("team", [kt.Member("a", clerk)])
    plan = kt.TaskGraph([kt.Task("one", "Tell ann.")])
    result = await ExpertTeamCoordinator(evaluator=judge).execute(kt.TeamExecutionRequest("Tell ann.", plan=plan), team)
    assert (result.status, post.sent, clerk.told[1]) == ("completed", ["ann", "ann"], ())


async def test_third_o14_what_a_turn_limit_cut_is_told_and_asked_about() -> None:
    post = Post(side_effect="write")
    ask = kt.ToolCall("1", "send", {"to": "ann"})
    model = ScriptedModel(
        [
            kt.ModelResponse("I send it", [ask], kt.Usage(5, 5)),
            kt.ModelResponse("still at it", [kt.ToolCall("2", "send", {"to": "bob"})], kt.Usage(5, 5)),
            kt.ModelResponse("again", [ask], kt.Usage(5, 5)),
            kt.ModelResponse("done", (), kt.Usage(5, 5)),
        ]
    )
    prompts: list[str] = []
    agent = kt.MiniAgent(Listening(model, prompts), tools=[post.tool], max_turns=2)
    verdict = kt.EvaluationVerdict.revise("finish it", findings=[kt.Finding("end", expected="an end")])
    judge = Verdicts([verdict, kt.EvaluationVerdict.passed(1.0)])
    plan = kt.TaskGraph([kt.Task("one", "Tell ann.")])
    result = await ExpertTeamCoordinator(evaluator=judge).execute(
        kt.TeamExecutionRequest("Tell ann.", plan=plan), kt.Team("team", [kt.Member("a", agent)])
    )
    assert (result.output, post.sent) == ("done", ["ann"])
    assert 'send {"to": "ann"} -> sent to ann' in prompts[2]
    assert "their changes remain" in prompts[2]
    assert "needs the approval of a human" in prompts[3]


class Listening:
    """Passes calls on to a model, and keeps the last message of each."""

    def __init__(self, model: ScriptedModel, prompts: list[str]) -> None:
        self._model = model
        self._prompts = prompts
        self.name = model.name

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        self._prompts.append("\n".join(message.text for message in request.messages))
        return await self._model.complete(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class FailsOnce:
    """Lets another agent work, and fails after its first attempt."""

    own_loop = True

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._tried = False

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        output = await self._agent.run(assignment, context)
        if not self._tried:
            self._tried = True
            raise OSError("the pen broke")
        return output


@pytest.mark.parametrize("kind", each_rig())
async def test_third_o14_it_holds_for_every_kind_of_agent(kind: type[Rig]) -> None:
    sent: list[str] = []

    async def send(text: str) -> str:
        sent.append(text)
        return "sent"

    ask = Reply(asks=[Ask("send", "ann")])
    rig = kind([ask, Reply("said"), ask, Reply("told")], [RigTool("send", send, "write")])
    result = await run(FailsOnce(rig.agent()))
    assert (result.output, sent) == ("told", ["ann"]), result.error
    assert 'send {"text": "ann"} -> sent' in rig.asked[2].text.replace("\\", "")
    assert "needs the approval of a human" in rig.asked[3].text


async def test_third_o14_a_team_inside_a_task_does_not_repeat_it_either() -> None:
    post = Post(side_effect="write")
    clerk = Clerk(post, failures=0)
    team = TeamAgent(kt.Team("inner", [kt.Member("clerk", clerk)]), plan=kt.TaskGraph([kt.Task("tell", "Tell ann.")]))
    result = await run(FailsOnce(team))
    assert (result.status, post.sent) == ("completed", ["ann"])
    assert [one.refused_by for one in clerk.results] == [None, "repeated-write"]


async def test_third_o14_the_tries_of_a_best_of_are_not_retries_of_each_other() -> None:
    post = Post(side_effect="write")
    clerk = Clerk(post, failures=0)
    team = TeamAgent(
        kt.Team("inner", [kt.Member("clerk", clerk)]),
        plan=kt.TaskGraph([kt.Task("one", "Tell ann."), kt.Task("two", "Tell ann.")]),
    )
    await run(team)
    assert post.sent == ["ann", "ann"]


@pytest.mark.real_time
async def test_third_o14_a_resumed_run_knows_what_its_recorded_attempts_did(tmp_path: Path) -> None:
    post = Post(side_effect="write")
    gate = kt.DeferGate()

    def runtime() -> kt.Runtime:
        return kt.Runtime(journal=kt.SqliteJournal(tmp_path / "runs.db", sync="normal"), gate=gate)

    clerk = Clerk(post, failures=1)
    team = kt.Team("team", [kt.Member("a", clerk)])
    plan = kt.TaskGraph([kt.Task("one", "Tell ann.")])
    request = kt.TeamExecutionRequest("Tell ann.", plan=plan, run_id="r")
    async with runtime() as first:
        result = await kt.run(team, request, runtime=first, coordinator=RETRIES)
        assert result.status == "suspended"
    clerk = Clerk(post, failures=0)
    async with runtime() as second:
        [question] = second.pending("r")
        assert question.text.endswith("attempt 1 at this task made the same call, and its result was: sent to ann")
        second.answer(question.id, kt.HumanDecision.reject("once is enough"))
        result = await second.resume("r", kt.Team("team", [kt.Member("a", clerk)]), coordinator=RETRIES)
    assert (result.status, post.sent) == ("completed", ["ann"])
    assert [call.result for call in clerk.told[0]] == ["sent to ann"]
    assert clerk.results[0].text.endswith("once is enough")


class AsksToPay:
    """Has a person asked about one tool."""

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        return PermissionDecision.ask("it is money") if tool == "pay" else PermissionDecision.allow()


@pytest.mark.real_time
async def test_third_o14_what_a_run_inside_a_task_did_before_a_question_is_known_after_it(tmp_path: Path) -> None:
    post = Post(side_effect="write")

    @kt.tool(side_effect="read")
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "tell":
            return (await context.tool(post.tool)(to="ann")).text
        return (await context.tool(pay)()).text

    def team() -> kt.Team:
        plan = kt.TaskGraph([kt.Task("tell", "Tell ann."), kt.Task("pay", "Pay.", depends_on=["tell"])])
        inner = kt.Team("inner", [kt.Member("clerk", work)])
        outer = kt.Member("a", FailsOnce(TeamAgent(inner, plan=plan)))
        return kt.Team("team", [outer], permissions=kt.ToolPermissions(guard=AsksToPay()))

    async def go_on() -> kt.TeamResult:
        journal = kt.SqliteJournal(tmp_path / "runs.db", sync="normal")
        async with kt.Runtime(journal=journal, gate=kt.DeferGate()) as runtime:
            if "r" in [one.run_id for one in journal.runs()]:
                for question in journal.pending("r"):
                    journal.answer(question.id, kt.HumanDecision.approve())
                return await runtime.resume("r", team(), coordinator=RETRIES)
            plan = kt.TaskGraph([kt.Task("one", "Tell ann and pay.")])
            request = kt.TeamExecutionRequest("Tell ann and pay.", plan=plan, run_id="r")
            return await kt.run(team(), request, runtime=runtime, coordinator=RETRIES)

    first, second = await go_on(), await go_on()
    assert (first.status, second.status, post.sent) == ("suspended", "suspended", ["ann"])
    questions = kt.SqliteJournal(tmp_path / "runs.db").pending("r")
    assert ["made the same call" in one.text for one in questions] == [True]


async def test_third_o14_an_attempt_that_was_recorded_without_its_calls_can_be_read() -> None:
    from kairo_team.durable.codec import decode, encode
    from kairo_team.results import Attempt

    now = encode(Attempt("t", 1, "m", None, "failed", calls=(DoneCall(1, "send", "{}", "digest"),)))
    assert decode(now).calls[0].tool == "send"
    before = encode(Attempt("t", 1, "m", None, "failed"))
    shorter = before.replace(',{"~":"tuple","v":[]},null,null]}', "]}")
    assert shorter != before
    assert decode(shorter) == Attempt("t", 1, "m", None, "failed")
