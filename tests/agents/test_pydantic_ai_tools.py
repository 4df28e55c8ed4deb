"""`PydanticAIAgent`: every tool call of the agent goes through the pipeline, and the agent's own ways are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai import messages as native
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.governance import GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies.mcp_policy import McpPolicy, McpSecurityPolicy
from kairo_team.permissions import PermissionDecision
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from kairo_team.tools.permissions import SideEffectGuard
from kairo_team.tools.pydantic_toolsets import described
from tests.agents.stage import Policy, Stage, noting, replacing

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Backend:
    """Run on asyncio, as the library does."""
    return virtual_time("asyncio")


class Caller:
    """A model that makes the calls it is given, one turn after another, and then says done; it remembers all it saw."""

    def __init__(self, *turns: Sequence[tuple[str, Any]]) -> None:
        self.turns = list(turns)
        self.offered: list[list[str]] = []
        self.results: list[native.ToolReturnPart] = []

    def model(self) -> FunctionModel:
        async def function(messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
            self.offered.append([tool.name for tool in info.function_tools])
            self.results += [p for p in messages[-1].parts if isinstance(p, native.ToolReturnPart)]
            if not self.turns:
                return native.ModelResponse([native.TextPart("done")])
            asked = self.turns.pop(0)
            turn = len(self.offered)
            return native.ModelResponse(
                [native.ToolCallPart(name, args, f"c{turn}-{number}") for number, (name, args) in enumerate(asked)]
            )

        return FunctionModel(function, model_name="caller")

    def agent(self, *tools: Any, **options: Any) -> PydanticAIAgent:
        return PydanticAIAgent(Agent(self.model(), tools=tools), **options)

    @property
    def read(self) -> list[str]:
        """The results as the model read them."""
        return [part.model_response_str() for part in self.results]


class Town(BaseModel):
    name: str
    people: int = 0


async def grow(town: Town) -> Town:
    """Make a town larger."""
    return Town(name=town.name, people=town.people + 1)


# ---------------------------------------------------------------- results


async def test_the_raw_result_reaches_the_agent() -> None:
    caller = Caller([("grow", {"name": "Bonn", "people": 2})])
    stage = Stage(caller.agent(grow))
    result = await stage.run()
    assert result.output == "done"
    assert [part.content for part in caller.results] == [Town(name="Bonn", people=3)]
    (called,) = stage.recorder.of(events.ToolCalled)
    assert (called.tool, called.outcome) == ("grow", "ok")


async def test_a_tools_metadata_and_files_stay_with_its_result() -> None:
    picture = native.BinaryContent(b"\x89PNG" * 50_000, media_type="image/png")

    async def draw() -> ToolReturn[str]:
        return ToolReturn("drawn", content=["look:", picture], metadata={"kept": True})

    async def show() -> native.BinaryContent:
        return picture

    async def nothing() -> None:
        """Do nothing."""

    seen: list[Any] = []
    policy = noting(GuardrailPhase.POST_TOOL, seen)
    caller = Caller([("draw", {}), ("show", {}), ("nothing", {})])
    await Stage(caller.agent(draw, show, nothing), team={"guardrails": [policy]}).run()
    assert [part.content for part in caller.results] == ["drawn", picture, None]
    assert caller.results[0].metadata == {"kept": True}
    assert sorted(payload.text for payload in seen) == [
        "",
        '["drawn", ["look:", "[image/png, 200000 bytes]"]]',
        "[image/png, 200000 bytes]",
    ]


async def test_a_text_that_a_guardrail_changed_reaches_the_agent_in_place_of_the_result() -> None:
    async def draw() -> ToolReturn[str]:
        return ToolReturn("the key is sk-1", content=["sk-1"])

    caller = Caller([("grow", {"name": "sk-1"}), ("draw", {})])
    mask = replacing(GuardrailPhase.POST_TOOL, "sk-1", "***")
    await Stage(caller.agent(grow, draw), team={"guardrails": [mask]}).run()
    assert "sk-1" not in "".join(caller.read)
    assert all("***" in text for text in caller.read)


async def test_secrets_are_masked_in_results_and_in_retries() -> None:
    async def look(text: str) -> str:
        if text == "again":
            raise ModelRetry("not with hunter2-hunter2")
        return "the password is hunter2-hunter2"

    caller = Caller([("look", {"text": "x"})], [("look", {"text": "again"})])
    await Stage(caller.agent(Tool(look, max_retries=3)), runtime={"secrets": ["hunter2-hunter2"]}).run()
    assert len(caller.read) == 2
    assert "hunter2" not in "".join(caller.read)


# ---------------------------------------------------------------- failures keep their meaning


async def test_a_retry_that_a_tool_asks_for_is_one() -> None:
    tries: list[int] = []

    async def look(ctx: RunContext[None]) -> str:
        tries.append(ctx.retry)
        if ctx.retry < 2:
            raise ModelRetry("look closer")
        return "found"

    caller = Caller(*[[("look", {})]] * 3)
    stage = Stage(caller.agent(Tool(look, max_retries=2)))
    result = await stage.run()
    assert (result.output, tries) == ("done", [0, 1, 2])
    assert [part.outcome for part in caller.results] == ["retried", "retried", "success"]
    assert "look closer" in caller.read[0]
    assert [call.outcome for call in stage.recorder.of(events.ToolCalled)] == ["error", "error", "ok"]


async def test_arguments_that_do_not_fit_are_the_librarys_own_affair() -> None:
    caller = Caller([("grow", {"people": "many"})], [("grow", {"name": "Bonn"})])
    stage = Stage(caller.agent(grow))
    result = await stage.run()
    assert result.output == "done"
    assert [part.outcome for part in caller.results] == ["retried", "success"]
    assert len(stage.recorder.of(events.ToolCalled)) == 1


async def test_a_failure_that_is_final_is_told_and_an_exception_ends_the_attempt_as_itself() -> None:
    async def fail(how: str) -> str:
        raise ToolFailed("no such file") if how == "told" else ZeroDivisionError("by zero")

    caller = Caller([("fail", {"how": "told"})], [("fail", {"how": "raised"})])
    stage = Stage(caller.agent(fail))
    await stage.run()
    assert caller.results[0].outcome == "failed"
    assert "no such file" in caller.read[0]
    (error,) = stage.raised
    assert type(error) is ZeroDivisionError
    assert [call.outcome for call in stage.recorder.of(events.ToolCalled)] == ["error", "error"]


async def test_a_refusal_is_a_failed_result_and_costs_no_retry() -> None:
    caller = Caller(*[[("grow", {"name": "Bonn"})]] * 5)
    permissions = kt.ToolPermissions(guard=SideEffectGuard("plan"))
    stage = Stage(caller.agent(grow), team={"permissions": permissions})
    result = await stage.run()
    assert result.output == "done"
    assert [part.outcome for part in caller.results] == ["failed"] * 5
    assert result.usage.tool_calls == 0
    assert stage.output.tool_calls_executed == 0


async def test_a_tool_call_over_the_limit_is_a_result_the_agent_can_read() -> None:
    caller = Caller([("grow", {"name": "a"})], [("grow", {"name": "b"})])
    result = await Stage(caller.agent(grow)).run(kt.Budget(tool_calls=1))
    assert (result.output, result.usage.tool_calls) == ("done", 1)
    assert caller.results[1].outcome == "failed"
    assert "no tool call is left" in caller.read[1]


# ---------------------------------------------------------------- arguments


async def test_kf_g04_changed_arguments_are_validated_again_and_those_that_fail_are_refused() -> None:
    """G04: arguments changed by PRE_TOOL not checked again."""
    grown: list[Town] = []

    async def grow(town: Town) -> int:
        grown.append(town)
        return town.people

    def people(count: Any) -> Policy:
        return Policy(
            GuardrailPhase.PRE_TOOL,
            lambda payload: GuardrailDecision.modify(
                "so many", replace(payload, arguments={**payload.arguments, "people": count})
            ),
        )

    caller = Caller([("grow", {"name": "Bonn"})])
    await Stage(caller.agent(grow), team={"guardrails": [people(7)]}).run()
    assert grown == [Town(name="Bonn", people=7)]

    caller = Caller([("grow", {"name": "Bonn"})])
    await Stage(caller.agent(grow), team={"guardrails": [people("many")]}).run()
    assert len(grown) == 1
    assert caller.results[0].outcome == "failed"
    assert "people" in caller.read[0]


async def test_changed_arguments_pass_the_tools_own_validator_too() -> None:
    async def only_lower(ctx: RunContext[None], text: str) -> None:
        if text != text.lower():
            raise ModelRetry("lower case, please")

    async def look(text: str) -> str:
        raise AssertionError("the validator let it pass")

    caller = Caller([("look", {"text": "y"})])
    shout = replacing(GuardrailPhase.PRE_TOOL, "y", "Y")
    tool = Tool(look, args_validator=only_lower, max_retries=3)
    await Stage(caller.agent(tool), team={"guardrails": [shout]}).run()
    assert "lower case, please" in caller.read[0]


async def test_arguments_that_are_no_json_are_shown_as_it_and_handed_on_as_they_are() -> None:
    seen: list[Any] = []

    async def pick(ways: tuple[int, ...], names: set[str]) -> str:
        seen.append((ways, names))
        return "picked"

    shown: list[Any] = []
    watch = noting(GuardrailPhase.PRE_TOOL, shown)
    caller = Caller([("pick", {"ways": [1, 2], "names": ["a"]})])
    await Stage(caller.agent(pick), team={"guardrails": [watch]}).run()
    assert seen == [((1, 2), {"a"})]
    assert [dict(payload.arguments) for payload in shown] == [{"ways": (1, 2), "names": ("a",)}]


# ---------------------------------------------------------------- toolsets


async def test_tools_of_every_kind_are_governed() -> None:
    seen: dict[str, str] = {}

    class Guard:
        async def check(self, tool: str, arguments: Any, side_effect: str) -> Any:
            seen[tool] = side_effect
            return PermissionDecision.allow()

    async def one(text: str) -> str:
        return text

    mine = FunctionToolset[None]()
    mine.add_function(one, name="mine", metadata={"side_effect": "read"})
    later = FunctionToolset[None]()
    later.add_function(one, name="later", metadata={"side_effect": "write"})
    caller = Caller([(name, {"text": "x"}) for name in ("own", "a_mine", "later", "made")])

    def make(ctx: RunContext[None]) -> AbstractToolset[None]:
        made = FunctionToolset[None]()
        made.add_function(one, name="made")
        return made

    toolsets: list[AbstractToolset[None]] = [CombinedToolset([mine.prefixed("a")])]
    own = Tool(one, name="own")
    agent = Agent(caller.model(), deps_type=type(None), tools=[own], toolsets=[*toolsets, make])
    stage = Stage(PydanticAIAgent(agent, toolsets=[later]), team={"permissions": kt.ToolPermissions(guard=Guard())})
    result = await stage.run()
    assert seen == {"own": "system", "a_mine": "read", "later": "write", "made": "system"}
    assert (result.output, result.usage.tool_calls) == ("done", 4)


async def test_a_side_effect_there_is_not_is_refused_by_its_name() -> None:
    stage = Stage(Caller().agent(Tool(grow, metadata={"side_effect": "reads"})))
    result = await stage.run()
    assert "tool 'grow': side_effect must be one of read, write, system, not 'reads'" in (
        result.outcomes[0].error or ""
    )


class Server(FunctionToolset[None]):
    """What pydantic-ai's MCP toolset looks like from outside, without a server."""

    __module__ = "pydantic_ai.mcp"


def server() -> Server:
    found = Server(id="files")

    async def read(text: str) -> str:
        return f"read {text}"

    found.add_function(read, name="read", metadata={"side_effect": "read"})
    found.add_function(read, name="delete")
    return found


@pytest.mark.parametrize(
    ("policy", "offered"),
    [
        (None, []),
        (McpPolicy(allowed=["files/read"]), ["f_read"]),
        (McpPolicy(McpSecurityPolicy.ALLOW_ALL, denied=["delete"]), ["f_read"]),
        (McpPolicy(McpSecurityPolicy.DENY_ALL), []),
    ],
)
async def test_kf_g08_tools_of_an_mcp_toolset_meet_the_mcp_policy_under_their_servers_names(
    policy: Any, offered: Any
) -> None:
    """G08: MCP lists compared against prefixed names: documented lists blocked all or nothing."""
    caller = Caller(*([[("f_read", {"text": "x"})]] if offered else []))
    agent = Agent(caller.model(), deps_type=type(None), toolsets=[server().prefixed("f")])
    result = await Stage(PydanticAIAgent(agent), team={"permissions": kt.ToolPermissions(mcp=policy)}).run()
    assert result.output == "done"
    assert caller.offered[0] == offered
    assert caller.read == (["read x"] if offered else [])


async def test_plan_mode_offers_what_only_reads() -> None:
    async def look(text: str) -> str:
        return text

    caller = Caller([("look", {"text": "x"})])
    agent = caller.agent(Tool(look, metadata={"side_effect": "read"}), grow)
    result = await Stage(agent, team={"permissions": kt.ToolPermissions(plan_mode=True)}).run()
    assert caller.offered[0] == ["look"]
    assert result.output == "done"


async def test_tools_of_one_turn_run_side_by_side_and_all_end_with_the_attempt() -> None:
    running: list[str] = []

    async def wait(text: str) -> str:
        running.append(text)
        try:
            await anyio.sleep(1000)
        finally:
            running.remove(text)
        return text

    most: list[int] = []

    async def watch() -> None:
        while True:
            most.append(len(running))
            await anyio.sleep(0.5)

    caller = Caller([("wait", {"text": name}) for name in "abc"])
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await Stage(caller.agent(wait)).run(task_timeout=5.0)
        group.cancel_scope.cancel()
    assert max(most) == 3
    assert running == []


def test_a_name_no_provider_takes_is_made_to_fit() -> None:
    definition = ToolDefinition(name="files.read/all of it" * 5)
    assert described(definition).name == ("files_read_all_of_it" * 5)[:64]
