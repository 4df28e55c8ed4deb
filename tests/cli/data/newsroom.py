"""A team whose writer needs two rounds; everything in it is a plain function."""

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric


async def write(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=100, completion_tokens=20)
    if assignment.task.id == "moon" and assignment.attempt == 1:
        return "The moon."
    return f"Tides follow the {assignment.task.id}, as everybody knows."


def join(assignment: kt.Assignment) -> str:
    return "\n".join(f"- {artifact.text}" for artifact in assignment.upstream.values())


def long_enough(artifact: kt.Artifact) -> bool | str:
    words = len(artifact.text.split())
    return words >= 4 or f"it has {words} words"


rubric = Rubric([Criterion("length", "at least four words", check=long_enough)])
team = kt.Team(
    "newsroom",
    [kt.Member("writer", write), kt.Member("editor", join)],
    coordinator=ExpertTeamCoordinator(evaluator=rubric),
)
plan = kt.TaskGraph(
    [
        kt.Task("moon", "What the moon does.", role="writer"),
        kt.Task("sun", "What the sun does.", role="writer"),
        kt.Task("page", "Put it together.", role="editor", depends_on=["moon", "sun"], needs=1),
    ]
)
request = kt.TeamExecutionRequest(
    "Explain tides.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=2_000, seconds=60))
)
