"""LlamaIndex Workflows: one step and one event type a task; a step takes an event of each task it depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from workflows import Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from benchmarks.peers.graph.experiment import Graph, Run, Work, last_of, main


def build(graph: Graph, work: Work) -> Run:
    """Make a workflow class and its steps; the last step waits for all tasks nothing depends on."""
    events: dict[str, type[Event]] = {name: type(f"Done_{name}", (Event,), {}) for name in graph}
    flow = type("Flow", (Workflow,), {})

    def act(name: str) -> Callable[..., Any]:
        async def run_task(**_: Event) -> Event:
            await work(name)
            return events[name]()

        return run_task

    async def finish(**_: Event) -> StopEvent:
        return StopEvent()

    for name, needs in graph.items():
        _add(flow, name, act(name), [events[need] for need in needs] or [StartEvent], events[name])
    _add(flow, "finish", finish, [events[name] for name in last_of(graph)], StopEvent)
    workflow = flow(timeout=None)

    async def run() -> None:
        await workflow.run()

    return run


def _add(flow: type[Workflow], name: str, act: Callable[..., Any], takes: Sequence[type], makes: type) -> None:
    """Add a step; the library reads its input and output from its signature."""
    given = {f"event_{number}": kind for number, kind in enumerate(takes)}
    parameters = [Parameter(each, Parameter.KEYWORD_ONLY, annotation=kind) for each, kind in given.items()]
    act.__name__ = act.__qualname__ = name
    act.__annotations__ = {**given, "return": makes}
    act.__signature__ = Signature(parameters, return_annotation=makes)  # type: ignore[attr-defined]  # inspect reads it
    step(workflow=flow)(act)


if __name__ == "__main__":
    main("llama-index-workflows", build)
