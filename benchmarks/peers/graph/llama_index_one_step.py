"""LlamaIndex Workflows, the faster way: one step runs every task and counts the open dependencies itself."""

from __future__ import annotations

from collections import defaultdict

from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from benchmarks.peers.graph.experiment import Graph, Run, Work, main


class Ready(Event):
    """A task whose dependencies are done."""

    name: str


def build(graph: Graph, work: Work) -> Run:
    """Make a workflow class whose step may run once for each task at the same time."""
    waiting: dict[str, int] = {}
    behind: dict[str, list[str]] = defaultdict(list)
    for name, needs in graph.items():
        for need in needs:
            behind[need].append(name)

    class Counting(Workflow):
        @step
        async def begin(self, context: Context, _event: StartEvent) -> Ready | None:
            waiting.update({name: len(needs) for name, needs in graph.items()})
            for name in [name for name, left in waiting.items() if not left]:
                context.send_event(Ready(name=name))
            return None

        @step(num_workers=len(graph))
        async def act(self, context: Context, event: Ready) -> Ready | StopEvent | None:
            await work(event.name)
            del waiting[event.name]
            for name in behind[event.name]:
                waiting[name] -= 1
                if not waiting[name]:
                    context.send_event(Ready(name=name))
            return None if waiting else StopEvent()

    workflow = Counting(timeout=None)

    async def run() -> None:
        await workflow.run()

    return run


if __name__ == "__main__":
    main("llama-index-workflows", build)
