"""Microsoft Agent Framework: a workflow with one function executor a task and fan-in edges; no checkpoints."""

from __future__ import annotations

from typing import Any

from agent_framework import FunctionExecutor, WorkflowBuilder, WorkflowContext

from benchmarks.peers.graph.experiment import Graph, Run, Work, main


def build(graph: Graph, work: Work) -> Run:
    """Build the workflow; one more executor hands the message to the first layer."""

    def executor(name: str) -> FunctionExecutor:
        async def act(_message: Any, context: WorkflowContext[str]) -> None:
            await work(name)
            await context.send_message(name)

        return FunctionExecutor(act, name)

    async def begin(message: str, context: WorkflowContext[str]) -> None:
        await context.send_message(message)

    start = FunctionExecutor(begin, "start")
    executors = {name: executor(name) for name in graph}
    builder = WorkflowBuilder(start_executor=start)
    builder.add_fan_out_edges(start, [executors[name] for name, needs in graph.items() if not needs])
    for name, needs in graph.items():
        if needs:
            builder.add_fan_in_edges([executors[need] for need in needs], executors[name])
    workflow = builder.build()

    async def run() -> None:
        await workflow.run("Work.")

    return run


if __name__ == "__main__":
    main("agent-framework-core", build)
