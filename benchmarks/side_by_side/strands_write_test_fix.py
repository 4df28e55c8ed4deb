"""Strands: a graph with an edge back to the writer, and a node of one's own that runs the tests; a session in files."""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.agent.agent_result import AgentResult
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder
from strands.multiagent.base import MultiAgentBase, MultiAgentResult, NodeResult, Status
from strands.multiagent.graph import GraphState
from strands.session.file_session_manager import FileSessionManager
from strands.telemetry.metrics import EventLoopMetrics

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


class Test(MultiAgentBase):
    """Runs the tests on the code that the writer wrote."""

    id = "test"

    async def invoke_async(self, task: Any, _state: Any = None, **_: Any) -> MultiAgentResult:
        """Say what failed, if anything did."""
        code = task[-1]["text"].removeprefix("  - Agent: ")
        message = {"role": "assistant", "content": [{"text": fault(code) or "passed"}]}
        said = AgentResult("end_turn", message, EventLoopMetrics(), {})
        return MultiAgentResult(Status.COMPLETED, {"test": NodeResult(said, status=Status.COMPLETED)})

    def serialize_state(self) -> dict[str, Any]:
        """Keep nothing."""
        return {}

    def deserialize_state(self, payload: dict[str, Any]) -> None:
        """Restore nothing."""


def passed(state: GraphState) -> bool:
    """Return whether the last tests passed."""
    return "test" in state.results and "passed" in str(state.results["test"])


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    model = OpenAIModel(client_args={"base_url": given.url, "api_key": "none"}, model_id=MODEL)
    graph = GraphBuilder()
    graph.add_node(Agent(model, name="Agent", system_prompt=WRITER, callback_handler=None), "write")
    graph.add_node(Test(), "test")
    graph.add_node(Agent(model, system_prompt=DOCUMENTER, callback_handler=None), "document")
    graph.add_edge("write", "test")
    graph.add_edge("test", "write", lambda state: not passed(state))
    graph.add_edge("test", "document", passed)
    graph.add_edge("write", "document", passed)
    graph.set_entry_point("write")
    graph.reset_on_revisit()
    graph.set_max_node_executions(2 * (given.calls or ROUNDS) + 1)
    graph.set_session_manager(FileSessionManager("run-1", str(given.folder)))
    result = await graph.build().invoke_async(WRITE)
    if "document" not in result.results:
        raise RuntimeError(f"{result.status}: {list(result.results)}")
    return str(result.results["document"].result)


if __name__ == "__main__":
    main(run)
