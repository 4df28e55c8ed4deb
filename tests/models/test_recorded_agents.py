"""Recorded conversations of several turns, made by agents: `MiniAgent` and the wrapped agents of other libraries.

The tools answer as they did when the conversation was recorded, and the server answers with the recorded replies.
"""

# pyright: reportUnknownVariableType=false, reportDeprecated=false
# Recorded JSON has no types. LangChain, where the ready-made agent of LangGraph has moved, is not installed.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, OpenAIResponsesModel
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import Tool as PydanticTool

import kairo_team as kt
from kairo_team._util.frozen import thaw
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.messages import ToolSpec
from kairo_team.models.providers import ProviderModel
from kairo_team.tools import Tool
from tests.models.provider_wires import client_of
from tests.models.recorded_play import Server
from tests.models.recorded_requests import feature_of, leaves, plain, specs, turns
from tests.models.recorded_wires import said, whole
from tests.models.test_recorded_providers import FILES, conversations

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of old models, and of LangGraph's prebuilt agent
]
Body = dict[str, Any]
Answer = Callable[[httpx2.Request], httpx2.Response]


class Chain(NamedTuple):
    """Exchanges of one agent's work: each but the last ends in calls of tools, whose results the next one brings."""

    name: str
    wire: str
    exchanges: list[Body]
    results: dict[str, list[str]]
    """Results of each tool, in order."""


def chains(file: str) -> Iterator[Chain]:
    """Yield what agents did in the conversations of a file."""
    for conversation in conversations(file):
        exchanges = conversation["exchanges"]
        for start, first in enumerate(exchanges):
            chain = _chain(conversation["name"], exchanges[start:])
            if chain is not None and len(turns(first["api"], first["request"])) <= 2:
                yield chain


def _chain(name: str, exchanges: list[Body]) -> Chain | None:
    wire, made = exchanges[0]["api"], list[Body]()
    for exchange in exchanges:
        if exchange["api"] != wire or exchange["status"] != 200 or feature_of(wire, exchange["request"]):
            return None
        reply = said(wire, whole(wire, exchange["response"]))
        made.append(exchange)
        if reply.finish != "stop":
            return None
        if not reply.calls:
            break
    else:
        return None
    results: defaultdict[str, list[str]] = defaultdict(list)
    names = {call for one in made for call, _ in said(wire, whole(wire, one["response"])).calls}
    before = 0
    for exchange in made:
        given = turns(wire, exchange["request"])
        if [turn.role for turn in given[before:]].count("user") > (exchange is made[0]):
            return None  # the application said something in between
        before = len(given)
    for at, turn in enumerate(tools := [turn for turn in turns(wire, made[-1]["request"]) if turn.role == "tool"]):
        results[_name_of(wire, made, at, turn.call)].append(turn.text)
    calls = sum(len(said(wire, whole(wire, one["response"])).calls) for one in made)
    fits = len(made) > 1 and calls == len(tools) and names <= set(results)
    return Chain(name, wire, made, dict(results)) if fits else None


def _name_of(wire: str, made: list[Body], at: int, call: str) -> str:
    """Return the tool that gave a result: the calls are answered in their order."""
    named = [name for one in made for name, _ in said(wire, whole(wire, one["response"])).calls]
    return call if wire == "google-generate" or at >= len(named) else named[at]


def answers(chain: Chain) -> Callable[[str], Any]:
    """Return a function of a tool's name, which makes the function that answers as it did."""
    left = {name: iter(texts) for name, texts in chain.results.items()}

    def of(name: str) -> Any:
        async def answer(**_arguments: Any) -> str:
            return next(left[name])

        return answer

    return of


def goal_of(chain: Chain) -> str:
    """Return what the user asked."""
    said_first = [turn.text for turn in turns(chain.wire, chain.exchanges[0]["request"]) if turn.role == "user"]
    return " ".join(said_first) or "Go on."


def mini(chain: Chain, server: Server) -> Any:
    of = answers(chain)

    def tool(spec: ToolSpec) -> Tool:
        answer = of(spec.name)

        async def call(arguments: Mapping[str, Any]) -> str:
            return str(await answer(**arguments))

        return Tool(spec.name, call, spec.description, spec.parameters)

    model = ProviderModel(f"{chain.wire}:m", client_of(chain.exchanges[0], server))
    return kt.MiniAgent(model, tools=[tool(spec) for spec in offered(chain)], max_turns=20)


def offered(chain: Chain) -> list[ToolSpec]:
    """Return the tools that were called; some were offered only after a first call."""
    found = {spec.name: spec for one in chain.exchanges for spec in specs(chain.wire, one["request"])}
    return [spec for name, spec in found.items() if name in chain.results]


def pydantic(chain: Chain, server: Server) -> Any:
    of = answers(chain)
    tools = [
        PydanticTool.from_schema(of(spec.name), spec.name, spec.description, thaw(spec.parameters))
        for spec in offered(chain)
    ]
    return PydanticAIAgent(PydanticAgent(client_of(chain.exchanges[0], server), tools=tools))


def openai_client(server: Server) -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(server))
    return AsyncOpenAI(api_key="none", http_client=http)


def openai(chain: Chain, server: Server) -> Any:
    of = answers(chain)

    def tool(spec: ToolSpec) -> FunctionTool:
        answer = of(spec.name)

        async def invoke(_context: Any, _arguments: str) -> str:
            return str(await answer())

        schema = thaw(spec.parameters) or {"type": "object", "properties": {}}
        return FunctionTool(spec.name, spec.description, schema, invoke, strict_json_schema=False)

    kind = OpenAIResponsesModel if chain.wire == "openai-responses" else OpenAIChatCompletionsModel
    model = kind(chain.exchanges[0]["request"]["model"], openai_client(server))
    return OpenAIAgent(Agent("a", model=model, tools=[tool(spec) for spec in offered(chain)]))


def langgraph(chain: Chain, server: Server) -> Any:
    of = answers(chain)
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(server))
    model = ChatOpenAI(
        model=chain.exchanges[0]["request"]["model"],
        api_key=SecretStr("none"),
        max_retries=0,
        http_async_client=http,
        use_responses_api=chain.wire == "openai-responses",
    )
    tools = [
        StructuredTool(
            name=spec.name,
            description=spec.description or spec.name,
            args_schema=thaw(spec.parameters) or {"type": "object", "properties": {}},
            coroutine=of(spec.name),
        )
        for spec in offered(chain)
    ]
    return LangGraphAgent(create_react_agent(governed(model), tools))


OPENAI: Final = ("openai-chat", "openai-responses")
MADE: Final = [
    *[(mini, file) for file in FILES],
    *[(pydantic, file) for file in FILES],
    *[(openai, file) for file in OPENAI],
    *[(langgraph, file) for file in OPENAI],
]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("make", "file"), MADE, ids=[f"{make.__name__}-{file}" for make, file in MADE])
async def test_an_agent_works_as_it_was_recorded_and_loses_nothing_between_turns(make: Any, file: str) -> None:
    found = list(chains(file))
    assert found
    for chain in found:
        server = Server(chain.exchanges)
        member = kt.Member(kt.Role("m"), make(chain, server))
        result = await kt.run(kt.Team("t", [member]), goal_of(chain), budget=kt.Budget(tokens=10**7))
        replies = [said(chain.wire, whole(chain.wire, one["response"])) for one in chain.exchanges]
        assert plain(result.output or "") == plain(replies[-1].text), (chain.name, result.outcomes[0].error)
        spent = [one.usage for one in replies if one.usage is not None]
        assert result.usage.prompt_tokens == sum(prompt for prompt, _ in spent), chain.name
        assert result.usage.completion_tokens == sum(completion for _, completion in spent), chain.name
        assert not list(lost(chain, server)), chain.name


def lost(chain: Chain, server: Server) -> Iterator[str]:
    """Yield what the recorded requests carry of earlier replies and results, and those of the agent do not."""
    for exchange, sent in zip(chain.exchanges, server.asked, strict=True):
        ours = "\n".join(plain(x) for turn in turns(chain.wire, sent) for x in (turn.text, *leaves(turn.reply)))
        for turn in turns(chain.wire, exchange["request"]):
            for leaf in (turn.text, *leaves(turn.reply)) if turn.role in ("assistant", "tool") else ():
                if plain(leaf) not in ours:
                    yield leaf
