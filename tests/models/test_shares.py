"""The shares of cache and reasoning, from the provider's reply to the result, the events, the traces and the report."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.events import ModelCalled, ModelDelta, ModelThinking
from kairo_team.messages import Billing, ToolSpec
from kairo_team.models.providers import ProviderModel
from kairo_team.results import ModelUsage
from kairo_team.testing import EventRecorder, FunctionModel
from tests.human import APPROVE, LeavesOpen
from tests.models.provider_wires import client_of, exchanges, model_of
from tests.models.recorded_play import Server
from tests.models.recorded_wires import streamed
from tests.models.test_natives import ASK, LOOK, THOUGHT, after, claude, text

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def thinks(request: kt.ModelRequest) -> kt.ModelResponse:
    billing = Billing(cached_tokens=70, reasoning_tokens=1204)
    return kt.ModelResponse("Tides.", usage=kt.Usage(100, 1300), billing=billing)


async def test_events_and_result_show_the_shares_and_the_usage_stays_what_is_charged() -> None:
    recorder = EventRecorder()
    model = FunctionModel(thinks, name="house:m")
    members = [kt.Member("a", kt.MiniAgent(model)), kt.Member("b", kt.MiniAgent(model))]
    plan = kt.TaskGraph([kt.Task("a", "Explain.", role="a"), kt.Task("b", "Explain.", role="b")])
    request = kt.TeamExecutionRequest("Explain.", plan=plan)
    result = await kt.run(kt.Team("t", members), request, runtime=kt.Runtime(subscribers=[recorder]))
    calls = recorder.of(ModelCalled)
    assert [(call.usage, call.cached_tokens, call.reasoning_tokens) for call in calls] == [
        (kt.Usage(100, 1300), 70, 1204)
    ] * 2
    assert result.usage_by_model == {"house:m": ModelUsage(2, kt.Usage(200, 2600), 140, 2408)}
    assert result.usage.tokens == 2800


async def test_a_run_without_calls_has_no_usage_by_model() -> None:
    async def write(assignment: Any, context: Any) -> str:
        return "Tides."

    assert (await kt.run(kt.Team("t", [kt.Member("a", write)]), "Explain.")).usage_by_model == {}


@pytest.mark.real_time
@pytest.mark.parametrize("journal", [False, True])
async def test_the_usage_by_model_has_teams_inside_and_sessions_before(tmp_path: Path, *, journal: bool) -> None:
    """A team inside asks, the run waits for a person, and goes on in the same program or from its journal."""
    kept = kt.SqliteJournal(tmp_path / "runs.db") if journal else None
    model = FunctionModel(thinks, name="house:m")

    def team() -> kt.Team:
        inner = TeamAgent(kt.Team("inner", [kt.Member("hand", kt.MiniAgent(model))]))
        members = [kt.Member("desk", inner), kt.Member("own", kt.MiniAgent(model))]
        return kt.Team("outer", members, evaluators={"open": LeavesOpen("a")})

    plan = kt.TaskGraph(
        [kt.Task("a", "do", member="desk", evaluator="open"), kt.Task("b", "do", member="own", depends_on=["a"])]
    )
    async with kt.Runtime(gate=kt.DeferGate(), journal=kept) as runtime:
        coordinator = ExpertTeamCoordinator()
        request = kt.TeamExecutionRequest("Go.", plan=plan, run_id="r")
        first = await kt.run(team(), request, runtime=runtime, coordinator=coordinator)
        assert first.status is kt.TeamStatus.SUSPENDED
        assert first.usage.tokens == 1400 * len(model.calls)
        assert first.usage_by_model == {"house:m": ModelUsage(1, kt.Usage(100, 1300), 70, 1204)}
        [question] = runtime.pending("r")
        runtime.answer(question.id, APPROVE)
        last = await runtime.resume("r", team(), coordinator=coordinator)
    assert last.status is kt.TeamStatus.COMPLETED
    assert last.usage_by_model == {"house:m": ModelUsage(2, kt.Usage(200, 2600), 140, 2408)}
    assert last.usage.tokens == 2800
    if kept is not None:
        kept.close()


@on_asyncio
@pytest.mark.real_time
async def test_a_recorded_session_with_a_cache_costs_what_its_provider_billed() -> None:
    """The session of docs/models.md: by its tokens alone it would cost two thirds more."""
    price = kt.Price(3, 15, cached_input="0.30", cache_write="3.75")
    billed = cached = plain = Decimal(0)
    for name, exchange in exchanges():
        if name != "test_openrouter_cache_all_settings_real_api":
            continue
        reply = await ProviderModel("p:m", client_of(exchange, Server([exchange]))).complete(ASK)
        assert reply.usage is not None
        tokens = replace(reply.usage, dollars=Decimal(0))
        billed += Decimal(str(exchange["response"]["usage"]["cost"]))
        cached += price.cost(tokens, reply.billing)
        plain += price.cost(tokens)
    assert billed == cached == Decimal("0.01657245")
    assert plain == Decimal("0.027324")


@on_asyncio
@pytest.mark.real_time
async def test_turns_with_tools_are_cached_at_anthropic_unless_that_is_turned_off() -> None:
    spec = ToolSpec("look", "Look something up.", {"type": "object", "properties": {}})
    for settings, tools, marked in (({}, [spec], True), ({"cache": False}, [spec], False), ({}, [], False)):
        asked: list[Any] = []
        request = kt.ModelRequest(ASK.messages, tools, max_tokens=500, settings=settings)
        await model_of("anthropic-messages", claude(text("Paris.")), asked=asked).complete(request)
        assert ("cache_control" in str(asked[0])) is marked


@on_asyncio
@pytest.mark.real_time
async def test_an_agent_says_how_much_its_model_thinks_and_whether_prompts_are_cached() -> None:
    def look(city: str) -> str:
        """Look up the weather."""
        return f"It rains in {city}."

    asked: list[Any] = []
    model = model_of("anthropic-messages", claude(text("Paris.")), asked=asked)
    agent = kt.MiniAgent(model, tools=[look], settings={"max_tokens": 9000}, thinking="low", cache=False)
    assert (await agent.run("Which city?")).text == "Paris."
    assert "thinking" in asked[0]
    assert "cache_control" not in str(asked[0])
    said: list[tuple[Any, Any, bool]] = [("low", None, True), ("low", False, False), (False, None, False)]
    for of_role, of_agent, sent in said:
        asked.clear()
        agent = kt.MiniAgent(model, settings={"max_tokens": 9000}, thinking=of_agent)
        await agent.run("Which city?", role=kt.Role("guide", thinking=of_role))
        assert ("thinking" in asked[0]) is sent
    wrong: Any = "a lot"
    others: list[Any] = [wrong, "true", 1]
    for value in others:
        with pytest.raises(ValueError, match=r"Role.thinking must be True or False, .*or None"):
            kt.Role("guide", thinking=value)
    with pytest.raises(ValueError, match=r"MiniAgent.thinking must be True, False or one of .*not 'a lot'"):
        kt.MiniAgent(model, thinking=wrong)


def test_a_cached_call_is_held_at_its_highest_price_and_the_word_false_costs_nothing() -> None:
    from kairo_team.governance.pricing import listed_price

    plain = listed_price("anthropic:claude-sonnet-4-5", {})
    off = listed_price("anthropic:claude-sonnet-4-5", {"cache": False})
    hour = listed_price("anthropic:claude-sonnet-4-5", {"cache": "1h"})
    assert plain is not None
    assert off is not None
    assert hour is not None
    assert plain.most(10**6, 0) == off.most(10**6, 0) < hour.most(10**6, 0)
    written = Billing(cache_write_tokens=1000)
    assert plain.most(1000, 0) == plain.cost(kt.Usage(1000, 0), written) > Decimal(0)


@on_asyncio
@pytest.mark.real_time
async def test_thoughts_come_as_pieces_of_their_own() -> None:
    around = [text("I look. "), THOUGHT, text("Paris.")]
    parts: list[list[Any]] = [[THOUGHT, text("Paris.")], around, [THOUGHT, THOUGHT, LOOK]]
    for blocks in parts:
        said: list[str] = []
        thought: list[str] = []
        model = model_of("anthropic-messages", streamed("anthropic-messages", claude(*blocks)))
        reply = await model.stream(after(kt.ModelResponse("Which?")), said.append, thought.append)
        assert "".join(said) == reply.text
        assert "".join(thought) == "\n\n".join([THOUGHT["thinking"]] * blocks.count(THOUGHT))


@on_asyncio
@pytest.mark.real_time
async def test_a_streaming_agent_emits_reasoning_apart_from_its_text() -> None:
    recorder = EventRecorder()
    model = model_of("anthropic-messages", streamed("anthropic-messages", claude(THOUGHT, text("Paris."))))
    member = kt.Member("m", kt.MiniAgent(model, stream=True))
    await kt.run(kt.Team("t", [member]), "Which city?", runtime=kt.Runtime(subscribers=[recorder]))
    assert "".join(event.text for event in recorder.of(ModelDelta)) == "Paris."
    assert "".join(event.text for event in recorder.of(ModelThinking)) == THOUGHT["thinking"]


@on_asyncio
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("thinking", "most", "sent"),
    [
        ("low", 4096, {"type": "enabled", "budget_tokens": 2048}),
        ("medium", 4096, {"type": "enabled", "budget_tokens": 2048}),
        ("high", 40_000, {"type": "enabled", "budget_tokens": 16_384}),
        ("low", 2048, {"type": "enabled", "budget_tokens": 1024}),
        ("low", 1500, None),
    ],
)
async def test_thinking_fits_into_the_reply_because_anthropic_refuses_it_otherwise(
    thinking: str, most: int, sent: dict[str, Any] | None
) -> None:
    asked: list[Any] = []
    model = model_of("anthropic-messages", claude(text("Paris.")), asked=asked)
    await model.complete(replace(ASK, max_tokens=most, settings={"thinking": thinking}))
    own = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 9_000}}
    await model.complete(replace(ASK, max_tokens=most, settings=own))
    assert (asked[0]["max_tokens"], asked[0].get("thinking")) == (most, sent)
    assert asked[1].get("thinking", {"budget_tokens": 0})["budget_tokens"] < most
