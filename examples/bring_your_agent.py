"""Bring your agent: a function, a pydantic-ai agent, a `MiniAgent` and a LangGraph graph as one team, on one budget.

    python examples/bring_your_agent.py          # offline, on the model inside this process
    kairo run examples/bring_your_agent.py

The team puts up the notice on the day's high water. Each of the four is written in the style of its own library and
does not depend on the others: the wrappers make sure that the same governor holds, counts and allows every model
request and every tool call. The two foreign libraries bring their own clients, which reach the embedded model by its
address (`local_address`), like any server with OpenAI's interface.

That model is very small. It reads a line of a log and rephrases a sentence, but it calls no tools: the graph itself
decides which tool it uses, and the pydantic-ai agent uses its dependencies in its instructions and in its validator.
"""

import sys
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pydantic import BaseModel, Field, SecretStr

import kairo_team as kt
from kairo_team.contracts import Agent
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.models.local_server import LocalAddress, local_address

MODEL = "local:smollm2"
PORT = "Brest"
LEVELS = {"06:30": 2.9, "08:05": 1.2, "11:40": 4.4, "14:20": 6.8, "17:10": 4.1}
"""Metres of water by the hour."""
CLOSED_ABOVE = 6.0
"""Metres of water above which bathing is forbidden."""
REWRITE = "Rewrite the sentence for a notice board, in one short sentence. Keep every number."
TASK = "{{ assignment.task.description }}"
"""The prompt of a member without one of its own: a model this small is confused by goals and limits."""
TRIES = 3
"""Sentences the graph writes at most."""


class HighWater(BaseModel):
    """What the clerk answers. The model's server holds it to this shape; whether it is true, the validator sees."""

    time: str = Field(pattern="^[0-9]{2}:[0-9]{2}$")
    metres: float


# ---------------------------------------------------------------- a function


def gauge(assignment: kt.Assignment) -> str:
    """Find the highest water, in plain Python without a model."""
    time, metres = max(assignment.inputs["levels"].items(), key=itemgetter(1))
    return f"{time} high water, {metres} m."


# ---------------------------------------------------------------- an agent of pydantic-ai


@dataclass(frozen=True)
class Log:
    """The clerk's dependencies."""

    port: str
    line: str


def make_clerk(address: LocalAddress) -> Agent:
    """Make an agent that reads the log, and asks its model again when the answer is not in the log."""
    from pydantic_ai import Agent, ModelRetry, NativeOutput, RunContext
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from kairo_team.agents import PydanticAIAgent

    provider = OpenAIProvider(base_url=address.base_url, api_key=address.api_key)
    clerk = Agent(
        OpenAIChatModel("smollm2", provider=provider, settings={"temperature": 0, "max_tokens": 60}),
        deps_type=Log,
        output_type=NativeOutput(HighWater),
    )

    @clerk.instructions
    def say_the_port(ctx: RunContext[Log]) -> str:
        return f"You read the tide log of {ctx.deps.port}."

    @clerk.output_validator
    def stands_in_the_log(ctx: RunContext[Log], answer: HighWater) -> HighWater:
        if answer.time not in ctx.deps.line or f"{answer.metres} m" not in ctx.deps.line:
            raise ModelRetry(f"Log: {ctx.deps.line} Say the time and the metres that stand there.")
        return answer

    def open_log(assignment: kt.Assignment, _: kt.MemberContext) -> Log:
        return Log(PORT, assignment.upstream["measure"].text)

    def ask(assignment: kt.Assignment, _: kt.MemberContext) -> str:
        return f"Log: {assignment.upstream['measure'].text} {assignment.task.description}"

    return PydanticAIAgent(clerk, deps=open_log, prompt=ask)


# ---------------------------------------------------------------- a graph of LangGraph


def make_writer(address: LocalAddress) -> Agent:
    """Make a graph that looks up a rule, and writes a sentence until it contains the time."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.prebuilt import ToolNode

    from kairo_team.agents import LangGraphAgent
    from kairo_team.agents.langgraph import governed, governed_tool_call

    key = SecretStr(address.api_key)
    model = governed(ChatOpenAI(model="smollm2", base_url=address.base_url, api_key=key, max_retries=0))

    class State(MessagesState):
        why: str
        time: str
        metres: float

    async def bathing_rule(metres: float) -> str:
        """Look up what bathers have to keep to at a height of the water."""
        return "No bathing until it falls." if metres > CLOSED_ABOVE else "Bathing is free."

    async def look_up(state: State) -> dict[str, Any]:
        call = {"name": "bathing_rule", "args": {"metres": state["metres"]}, "id": "rule", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    async def write(state: State) -> dict[str, Any]:
        fact = f"High water at {PORT} is at {state['time']}, at {state['metres']} metres."
        asked = [SystemMessage(REWRITE), HumanMessage(fact)]
        return {"messages": [await model.ainvoke(asked, max_tokens=40, temperature=0.3 * len(written(state)))]}

    async def follow(state: State) -> str:
        sentences = written(state)
        return END if state["time"] in sentences[-1] or len(sentences) == TRIES else "write"

    def put_in(assignment: kt.Assignment, _: kt.MemberContext) -> State:
        read, why = assignment.upstream["read"].data_as(HighWater), assignment.upstream["explain"].text
        return State(messages=[], why=why, time=read.time, metres=read.metres)

    def take_out(state: State) -> str:
        rules = [message.text for message in state["messages"] if message.type == "tool"]
        return " ".join([*written(state)[-1:], *rules, state["why"]])

    rule = StructuredTool.from_function(coroutine=bathing_rule, metadata={"side_effect": "read"})
    graph: Any = StateGraph(State)  # its types are partly unknown
    graph.add_node("look_up", look_up)
    graph.add_node("tools", ToolNode([rule], awrap_tool_call=governed_tool_call))
    graph.add_node("write", write)
    graph.add_edge(START, "look_up")
    graph.add_edge("look_up", "tools")
    graph.add_edge("tools", "write")
    graph.add_conditional_edges("write", follow, ["write", END])
    return LangGraphAgent(graph.compile(), input=put_in, output=take_out)


def written(state: Any) -> list[str]:
    """Return the sentences that the graph's model wrote so far."""
    return [message.text for message in state["messages"] if message.type == "ai" and message.text]


# ---------------------------------------------------------------- the team


def make_team() -> kt.Team:
    """Bring the four together."""
    address = local_address(MODEL)
    teacher = kt.Role("teacher", "Answer in one short sentence of at most ten words.")
    return kt.Team(
        "harbour-desk",
        [
            kt.Member("gauge", gauge),
            kt.Member("clerk", make_clerk(address)),
            kt.Member(teacher, kt.MiniAgent(MODEL, max_turns=1, settings={"temperature": 0, "max_tokens": 40})),
            kt.Member("writer", make_writer(address)),
        ],
        coordinator=ExpertTeamCoordinator(templates={"task": TASK}),
    )


def make_request() -> kt.TeamExecutionRequest:
    """Make the request: a plan and a budget."""
    plan = kt.TaskGraph(
        [
            kt.Task("measure", "Find the highest water of the day.", member="gauge", inputs={"levels": LEVELS}),
            kt.Task("read", "When was high water, and how many metres?", member="clerk", depends_on=["measure"]),
            kt.Task("explain", "Why are there tides?", member="teacher"),
            kt.Task("notice", "Write the notice.", member="writer", depends_on=["read", "explain"]),
        ]
    )
    budget = kt.Budget(tokens=6_000, tool_calls=4, seconds=300)
    # One model, one processor: two tasks at once would only slow each other.
    config = kt.TeamConfig(budget=budget, max_parallel_tasks=1)
    return kt.TeamExecutionRequest("Put up the notice on high water.", plan=plan, config=config)


def report(result: kt.TeamResult, team: kt.Team) -> str:
    """Print the usage of each task, the budget tree and the result."""
    lines = [f"{'task':8} {'member':7} {'its agent':16} {'status':10} {'tokens':>6} {'tool calls':>10}"]
    for outcome in result.outcomes:
        agent = type(team.member(outcome.member).agent).__name__ if outcome.member else "-"
        used = f"{outcome.usage.tokens:6} {outcome.usage.tool_calls:10}"
        lines.append(f"{outcome.task_id:8} {outcome.member or '-':7} {agent:16} {outcome.status:10} {used}")
    blocks = ["\n".join(lines), str(result.budget), result.output or "", *result.warnings, result.status.value.upper()]
    return "\n\n".join(block for block in blocks if block)


def explain(missing: Exception) -> str:
    """Describe in a sentence what must be installed."""
    library = str(getattr(missing, "name", None) or "").partition(".")[0].replace("_", "-")
    return f"this example needs {library}: pip install {library}" if library else f"this example cannot run: {missing}"


try:
    team, request = make_team(), make_request()
except (ImportError, kt.KairoError) as missing:
    if __name__ == "__main__":
        sys.exit(explain(missing))
    raise

if __name__ == "__main__":
    result = kt.run_sync(team, request)
    print(report(result, team))
    sys.exit(result.status not in {kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED})
