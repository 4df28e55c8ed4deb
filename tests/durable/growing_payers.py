"""Teams whose plans grow: maps, branches and loops, under budgets of their own."""

from __future__ import annotations

import json

import kairo_team as kt
from tests.durable.payers import Payer, ask


class Grows(Payer):
    """A map over a list, a branch that a function of the team decides, and a loop in rounds."""

    plan = kt.TaskGraph(
        [
            kt.Task("list", "List."),
            kt.Task.map("read", "Read.", over="list", max_items=3, budget=kt.Budget(tokens=4_000)),
            kt.Task("join", "Join.", depends_on=["read"], needs=0.5),
            kt.Task("warn", "Warn.", when={"from": "join", "holds": "long"}),
            kt.Task("calm", "Calm.", when={"from": "join", "field": "done", "equals": True}),
            kt.Task(
                "polish",
                "Polish.",
                depends_on=["list"],
                loop=kt.Loop(
                    [kt.Task("write", "Write."), kt.Task("test", "Test.", depends_on=["write"])],
                    until={"from": "test", "field": "done", "equals": True},
                    max_rounds=4,
                ),
                budget=kt.Budget(tokens=4_000),
            ),
        ]
    )

    def team(self) -> kt.Team:
        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
            name, seen = assignment.task.id, ", ".join(assignment.upstream)
            first = await context.model("m:x").complete(ask(f"{name} {seen} {assignment.inputs.get('item')}"))
            reply = await context.model("m:x").complete(ask(f"{name} {first.text}"))
            return kt.Artifact(reply.text, json.loads(reply.text))

        def long(artifact: kt.Artifact) -> bool:
            return len(artifact.text) > 3

        return kt.Team("team", [kt.Member("any", work)], conditions={"long": long})

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str:
        if "list" in said:
            return '["x", "y", "z"]'
        return json.dumps({"done": "polish.02.test" in said, "length": len(said)})


class GrowsInside(Grows):
    """A loop for each item of a map: the loops share the map's budget, and all share the team's."""

    config = kt.TeamConfig(budget=kt.Budget(tokens=9_000))
    plan = kt.TaskGraph(
        [
            kt.Task("list", "List."),
            kt.Task.map(
                "each",
                "Each.",
                over="list",
                max_items=3,
                loop=kt.Loop([kt.Task("write", "Write.")], max_rounds=2),
                budget=kt.Budget(tokens=6_000),
            ),
            kt.Task("join", "Join.", depends_on=["each"]),
        ]
    )
