"""The team whose run version 0.2.0 of 24 November 2026 left in flight, in `tests/data/journals/worker-*.sql.gz`.

A worker of that version coordinated it, made two calls of its first task, and waited for the third when it was killed:

    KAIRO_DATABASE=... kairo worker tests/cluster/kept_worker_team.py:team --engine dbos
    KAIRO_DATABASE=... kairo submit tests/cluster/kept_worker_team.py:team "Go." --run-id r
"""

from __future__ import annotations

import os

import anyio

import kairo_team as kt
from kairo_team.testing import FunctionModel

asked: list[str] = []
"""The prompts that came to the model."""


async def answer(request: kt.ModelRequest) -> str:
    """Answer; the worker that was killed waits for the answer to the third prompt."""
    prompt = request.messages[-1].text
    asked.append(prompt)
    if "WAITS" in os.environ and prompt.endswith("2"):
        await anyio.sleep_forever()
    return f"answer to {prompt}"


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Ask four times."""
    said: list[str] = []
    for number in range(4):
        prompt = f"{assignment.task.id} {number}"
        request = kt.ModelRequest([kt.Message.user(prompt)], max_tokens=50)
        said.append((await context.model("m:x").complete(request)).text)
    return ", ".join(said)


runtime = kt.Runtime(models={"m:x": FunctionModel(answer, name="test:x", dollars_per_token=0)})
clerks = [kt.Member("one", ask), kt.Member(kt.Role("two", instructions="Ask four times."), ask)]
team = kt.Team("desk", clerks, runtime=runtime)
