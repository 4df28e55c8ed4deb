"""Microsoft Agent Framework: a switch-case edge leads back to the writer; checkpoints in files."""

from __future__ import annotations

from typing import Never

from agent_framework import Agent, Case, Default, FileCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from agent_framework.openai import OpenAIChatCompletionClient

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    client = OpenAIChatCompletionClient(MODEL, base_url=given.url, api_key="none")
    writer = Agent(client, WRITER, name="writer")
    documenter = Agent(client, DOCUMENTER, name="documenter")

    @executor
    async def write(failed: str, context: WorkflowContext[str]) -> None:
        await context.send_message((await writer.run(f"{WRITE}\n{failed}")).text)

    @executor
    async def test(code: str, context: WorkflowContext[str]) -> None:
        context.set_state("code", code)
        await context.send_message(fault(code) or "passed")

    @executor
    async def document(_passed: str, context: WorkflowContext[Never, str]) -> None:
        await context.yield_output((await documenter.run(context.get_state("code"))).text)

    storage = FileCheckpointStorage(given.folder)
    workflow = (
        WorkflowBuilder(
            start_executor=write,
            name="code",
            checkpoint_storage=storage,
            output_from=[document],
            max_iterations=2 * ROUNDS + 2,
        )
        .add_edge(write, test)
        .add_switch_case_edge_group(test, [Case(lambda said: said == "passed", document), Default(write)])
        .build()
    )
    latest = await storage.get_latest(workflow_name="code") if given.again else None
    begin = {"checkpoint_id": latest.checkpoint_id} if latest else {"message": ""}
    return (await workflow.run(**begin)).get_outputs()[-1]


if __name__ == "__main__":
    main(run)
