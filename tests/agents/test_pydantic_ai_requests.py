"""`PydanticAIAgent`: every model request of the agent is held, booked and guarded, whoever makes it."""

from __future__ import annotations

from collections.abc import AsyncIterable
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic_ai import Agent, NativeOutput, UsageLimits
from pydantic_ai import messages as native
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import GuardrailDenied
from kairo_team.governance import GuardrailDecision, GuardrailPhase
from kairo_team.models.prompt_bounds import file_bound
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from tests.agents.pydantic_ai_double import Weather, model, reports, says
from tests.agents.rig_pydantic_ai import PydanticAIRig
from tests.agents.rigs import Ask, Reply
from tests.agents.stage import ROLE, Counter, Policy, Stage, replacing

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Backend:
    """Run on asyncio, as the library does."""
    return virtual_time("asyncio")


# ---------------------------------------------------------------- holds and money


async def held(agent: Agent[None, Any], *policies: Any) -> int:
    stage = Stage(PydanticAIAgent(agent, prompt=lambda *_: "Go."), team={"guardrails": policies})
    await stage.run()
    return stage.recorder.of(events.ModelCalled)[0].held


async def test_a_hold_covers_tools_schemas_and_files() -> None:
    plain = await held(Agent(says("done")))
    assert plain == len("Be brief.Go.") + 2 * 16 + 32 + 4096

    def look(text: str) -> str:
        """Look a thing up, wherever it may be."""
        return text

    assert await held(Agent(says("done"), tools=[look])) >= plain + len("Look a thing up, wherever it may be.")
    schema = len(str(Weather.model_json_schema()))
    assert await held(Agent(reports(town="x", degrees=1), output_type=Weather)) >= plain + schema // 2
    structured = Agent(says('{"town": "x", "degrees": 1}'), output_type=NativeOutput(Weather))
    assert await held(structured) >= plain + schema // 2

    picture = native.BinaryContent(b"\x89PNG" * 10_000, media_type="image/png")
    stage = Stage(PydanticAIAgent(Agent(says("done")), prompt=lambda *_: ["Go.", picture, picture]))
    await stage.run()
    most = file_bound(kt.File(data=picture.data))
    assert stage.recorder.of(events.ModelCalled)[0].held == plain + 2 * most


async def test_settings_reach_the_model_and_max_tokens_only_gets_smaller() -> None:
    seen: list[Any] = []

    def answer(_: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
        seen.append(info.model_settings)
        return native.ModelResponse([native.TextPart("done")])

    agent = Agent(model(answer), model_settings={"temperature": 0.5, "max_tokens": 70})
    await Stage(PydanticAIAgent(agent)).run()
    await Stage(PydanticAIAgent(agent, model_settings={"temperature": 0.1})).run(kt.Budget(tokens=300, loops=1))
    assert seen[0] == {"temperature": 0.5, "max_tokens": 70, "max_retries": 0}
    assert seen[1]["temperature"] == 0.1
    assert 0 < seen[1]["max_tokens"] <= 70


async def test_dollars_are_counted_by_the_models_own_name() -> None:
    runtime = {"prices": {"function:scripted": kt.Price(input=1, output=2)}}
    result = await Stage(PydanticAIAgent(Agent(says("done"))), runtime=runtime).run(kt.Budget(dollars=1))
    assert result.usage.dollars == Decimal("0.00002")


async def test_kf_b12_an_unpriced_model_is_refused_under_a_limit_in_dollars() -> None:
    """B12: unknown model priced $0: a dollar limit that never binds."""
    stage = Stage(PydanticAIAgent(Agent(says("done"))))
    result = await stage.run(kt.Budget(dollars=1))
    assert result.usage.tokens == 0
    assert "the price of model 'function:scripted' is unknown" in (result.outcomes[0].error or "")


async def test_kf_b17_a_reply_without_usage_is_charged_its_hold() -> None:
    """B17: usage missing in a reply: the cap silently inactive."""

    class Silent(WrapperModel):
        async def request(self, *args: Any, **kwargs: Any) -> native.ModelResponse:
            reply = await super().request(*args, **kwargs)
            reply.usage = RequestUsage()
            return reply

    stage = Stage(PydanticAIAgent(Agent(Silent(says("done")), model_settings={"max_tokens": 10})))
    result = await stage.run()
    (called,) = stage.recorder.of(events.ModelCalled)
    assert (called.outcome, result.usage.tokens) == ("unknown", called.held)


# ---------------------------------------------------------------- every request is seen


async def test_kf_b13_each_attempt_of_a_fallback_model_is_governed() -> None:
    """B13: every provider attempt counts."""

    def fail(_: list[native.ModelMessage], __: AgentInfo) -> native.ModelResponse:
        raise ModelHTTPError(500, "first", "broken")

    fallback = FallbackModel(model(fail, "first"), model(lambda *_: native.ModelResponse([native.TextPart("ok")])))
    before = list(fallback.models)
    stage = Stage(PydanticAIAgent(Agent(fallback)))
    result = await stage.run()
    calls = [(call.model, call.outcome) for call in stage.recorder.of(events.ModelCalled)]
    assert calls[0] == ("function:first", "error")
    assert calls[-1] == ("function:scripted", "ok")
    assert result.output == "ok"
    assert result.usage.tokens == 15 + sum(c.usage.tokens for c in stage.recorder.of(events.ModelCalled)[:-1])
    assert fallback.models == before


async def test_kf_b10_a_halt_is_no_reason_to_fall_back_nor_to_recover() -> None:
    """B10: the typed halt crosses every adapter, also one that takes every error for its own."""

    class Soothing(AbstractCapability[Any]):
        async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
            return native.ModelResponse([native.TextPart("never mind")])

    fallback = FallbackModel(says("a"), says("b"), fallback_on=lambda error: True)
    for agent in (Agent(fallback), Agent(says("a"), capabilities=[Soothing()])):
        stage = Stage(PydanticAIAgent(agent))
        await stage.run(kt.Budget(tokens=20))
        (error,) = stage.raised
        assert type(error) in {kt.HaltError, kt.InsufficientBudget}
        assert stage.outputs == []


async def test_a_capability_that_answers_by_itself_is_found_out() -> None:
    class Elsewhere(AbstractCapability[Any]):
        def get_wrapper_model(self, model: Any) -> Any:
            class Own(WrapperModel):
                async def request(self, *args: Any, **kwargs: Any) -> native.ModelResponse:
                    usage = RequestUsage(input_tokens=100, output_tokens=50)
                    return native.ModelResponse([native.TextPart("from elsewhere")], usage=usage)

            return Own(model)

    result = await Stage(PydanticAIAgent(Agent(says("a"), capabilities=[Elsewhere()]))).run()
    assert "was not governed" in (result.outcomes[0].error or "")
    assert result.usage.tokens == 150


async def test_a_request_that_a_capability_spares_costs_nothing() -> None:
    class Cached(AbstractCapability[Any]):
        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            return native.ModelResponse([native.TextPart("from the cache")])

    result = await Stage(PydanticAIAgent(Agent(says("a"), capabilities=[Cached()]))).run()
    assert (result.output, result.usage.tokens) == ("from the cache", 0)


async def test_kf_g05_a_streamed_reply_is_told_once_it_passed_the_guardrails() -> None:
    """G05: POST_MODEL not wired; in streaming everything was out before it ran."""
    told: list[str] = []

    async def listen(ctx: Any, stream: AsyncIterable[Any]) -> None:
        async for event in stream:
            match event:
                case native.PartStartEvent(part=native.TextPart(content=text)):
                    told.append(text)
                case native.PartDeltaEvent(delta=native.TextPartDelta(content_delta=text)):
                    told.append(text)
                case _:
                    pass

    agent = PydanticAIAgent(Agent(says("the key is sk-1"), capabilities=[ProcessEventStream(listen)]))
    mask = replacing(GuardrailPhase.POST_MODEL, "sk-1", "***")
    result = await Stage(agent, team={"guardrails": [mask]}).run()
    assert result.output == "".join(told) == "the key is ***"
    assert result.usage.tokens == 15

    told.clear()
    deny = Policy(GuardrailPhase.POST_MODEL, lambda _: GuardrailDecision.deny("no"))
    await Stage(agent, team={"guardrails": [deny]}).run()
    assert told == []


async def test_a_guardrail_changes_a_structured_answer() -> None:
    stage = Stage(
        PydanticAIAgent(Agent(reports(town="Bonn", degrees=7), output_type=Weather)),
        team={"guardrails": [replacing(GuardrailPhase.POST_MODEL, "Bonn", "Köln")]},
    )
    result = await stage.run()
    assert result.outcomes[0].artifact is not None
    assert result.outcomes[0].artifact.data == {"town": "Köln", "degrees": 7}
    assert stage.output.transcript[-1].text == "" or "Bonn" not in stage.output.transcript[-1].text


def only_calls(journal: MemoryRecords) -> MemoryRecords:
    """Forget all of a run but its model calls, as if it had died before its attempt was recorded."""
    return MemoryRecords({key: record for key, record in journal.records.items() if key.startswith("call:")})


async def test_a_recorded_call_is_not_made_again() -> None:
    class Recorded(kt.Runtime):
        journal = MemoryRecords()

        def journal_for(self, run_id: str) -> MemoryRecords:
            return self.journal

    look = Counter()
    rig = PydanticAIRig([Reply("let me see", [Ask("look", "x")]), Reply("done")], [look.tool()])
    plan = kt.TaskGraph([kt.Task("t", "Do it.")])
    results: list[kt.TeamResult] = []
    for _ in range(2):
        team = kt.Team("team", [kt.Member(ROLE, rig.agent())], runtime=Recorded())
        results.append(await kt.run(team, kt.TeamExecutionRequest("goal", plan=plan, run_id="r")))
        Recorded.journal = only_calls(Recorded.journal)
    assert [result.output for result in results] == ["done", "done"]
    assert len(rig.asked) == 2
    assert look.calls == ["x"]


async def test_a_conversation_that_the_provider_shortens_is_a_request_too() -> None:
    class Shortening(WrapperModel):
        async def compact_messages(self, request_context: Any, *, instructions: str | None = None) -> Any:
            usage = RequestUsage(input_tokens=30, output_tokens=20)
            return native.ModelResponse([native.TextPart(f"in short: {instructions}")], usage=usage)

    class Shorten(AbstractCapability[Any]):
        def get_wrapper_model(self, model: Any) -> Any:
            class Shortened(WrapperModel):
                async def request(
                    self, messages: Any, model_settings: Any, model_request_parameters: Any
                ) -> native.ModelResponse:
                    context = ModelRequestContext(
                        model=self,
                        messages=messages,
                        model_settings=model_settings,
                        model_request_parameters=model_request_parameters,
                    )
                    await self.wrapped.compact_messages(context, instructions="briefly")
                    return await self.wrapped.request(messages, model_settings, model_request_parameters)

            return Shortened(model)

    stage = Stage(PydanticAIAgent(Agent(Shortening(says("done")), capabilities=[Shorten()])))
    result = await stage.run()
    assert [call.usage.tokens for call in stage.recorder.of(events.ModelCalled)] == [50, 15]
    assert (result.output, result.usage.tokens, result.usage.loops) == ("done", 65, 2)


class Once:
    """Denies the first request, and no other."""

    phases = frozenset({GuardrailPhase.PRE_MODEL})

    def __init__(self) -> None:
        self.asked = 0

    async def evaluate(self, context: Any) -> GuardrailDecision:
        self.asked += 1
        return GuardrailDecision.deny("not the first") if self.asked == 1 else GuardrailDecision.allow()


class Soothing(AbstractCapability[Any]):
    """Makes a call of an unknown tool out of every error."""

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> Any:
        return native.ModelResponse([native.ToolCallPart("nobody", {}, "c1")])


async def test_nothing_begins_after_what_ended_the_run() -> None:
    fallback = FallbackModel(says("a"), says("b"), fallback_on=lambda error: True)
    for agent in (Agent(fallback), Agent(says("b"), capabilities=[Soothing()])):
        stage = Stage(PydanticAIAgent(agent), team={"guardrails": [Once()]})
        result = await stage.run()
        assert [type(error) for error in stage.raised] == [GuardrailDenied]
        assert stage.recorder.of(events.ModelCalled) == []
        assert result.usage.tokens == 0


async def test_the_agents_own_limit_does_not_hide_what_ended_the_run() -> None:
    agent = PydanticAIAgent(Agent(says("b"), capabilities=[Soothing()]), usage_limits=UsageLimits(request_limit=1))
    stage = Stage(agent, team={"guardrails": [Once()]})
    await stage.run()
    assert [type(error) for error in stage.raised] == [GuardrailDenied]
