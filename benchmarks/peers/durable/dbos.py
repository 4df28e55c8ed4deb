"""DBOS: one workflow that gathers a layer of steps after the other, one step a call, on its SQLite system database.

Steps are numbered in the order they begin, which must be the same after a kill: the layers make sure of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.durable.experiment import PROMPT, RUN, Ask, Go, Graph, layers, main


@asynccontextmanager
async def prepare(graph: Graph, ask: Ask, folder: Path, _way: str) -> AsyncGenerator[Go]:
    """Register the workflow; launching goes on with what was cut."""
    config = {"name": "askers", "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}", "log_level": "ERROR"}
    DBOS(config={**config, "application_version": "1"})

    @DBOS.step()
    async def call(name: str) -> str:
        return await ask(name, f"{name} {PROMPT}")

    @DBOS.workflow()
    async def work() -> list[str]:
        done: list[str] = []
        for names in layers(graph):
            await asyncio.gather(*(call(name) for name in names))
            done += names
        return done

    async def go(again: bool) -> Sequence[str]:
        if again:
            handle = await DBOS.retrieve_workflow_async(RUN)
        else:
            with SetWorkflowID(RUN):
                handle = await DBOS.start_workflow_async(work)
        return await handle.get_result()

    DBOS.launch()
    try:
        yield go
    finally:
        DBOS.destroy(destroy_registry=True)


if __name__ == "__main__":
    main("dbos", prepare, ["SQLite"])
