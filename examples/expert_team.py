"""Expert team: a model plans, members work on the plan, and plain code reviews every piece until it is right.

    python examples/expert_team.py               # on the model inside this process
    python examples/expert_team.py --offline     # a script in place of the model
    kairo run examples/expert_team.py "Put up a notice on the fog and the waves."

The planner, a model of 135 million parameters, turns the goal into tasks: a notice, and a sentence on each of its
subjects. The writer, the same model, writes a sentence from the harbour's record. The rubric counts: words that are
not in the record, or are missing, come back as findings. The editor, a function, joins the accepted sentences. If no
plan can be made, a plan of one task replaces it, the editor copies the record, and the run is DEGRADED.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import kairo_team as kt
from kairo_team.contracts import Planner
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import ScriptedModel

MODEL = "local:smollm2"
GOAL = "Put up a notice on the tide, the wind and the kites."
RECORD = {
    "tide": "high at 14:20, 6.8 m",
    "wind": "from the west, 5 knots",
    "water": "17 degrees, clear",
    "fog": "until 9:30",
    "waves": "0.4 m high",
    "kites": "forbidden near the pier",
    "rain": "after 18:00, 3 mm",
}
"""The harbour's log of the day."""

# ---------------------------------------------------------------- the model's prompts: examples, not rules

PLANNED = (["boats", "snow"], ["storms", "boats", "heat"], ["bread", "roads", "mail", "trains"], ["stars", "ice"])
WRITTEN = {
    "boats: first at 7:15, 12 seats": "The boats are first at 7:15, 12 seats.",
    "storms: from the south, 40 knots": "The storms are from the south, 40 knots.",
    "snow: 12 cm deep, fresh": "The snow is 12 cm deep and fresh.",
    "lights: after 21:00, 4 lamps": "The lights come after 21:00, 4 lamps.",
    "say mail, 9:40\nmail: from 9:40 and 15:00": "The mail comes from 9:40 and 15:00.",
    "leave out show\nstars: 200, late at night": "The stars are 200, late at night.",
    "heat: 34 degrees, dry": "The heat is 34 degrees and dry.",
    "ice: until 8:15": "The ice lasts until 8:15.",
}


def plan_for(names: list[str]) -> str:
    """Return the right plan, as text, for a goal with these subjects."""
    notice = {"id": "notice", "description": "Put up the notice.", "member": "editor", "depends_on": names}
    write: list[dict[str, Any]] = [
        {"id": name, "description": f"Write about the {name}.", "member": "writer", "depends_on": []} for name in names
    ]
    return json.dumps({"tasks": [notice, *write]})


def goal_for(names: list[str]) -> str:
    """Write the goal for these subjects."""
    *most, last = [f"the {name}" for name in names]
    return f"Put up a notice on {', '.join(most)} and {last}."


PLAN_PROMPT = "\n\n".join(
    [
        "Plan the work of a team: a notice, and one task for each subject of it.",
        "Members: {{ team.members | map(attribute='id') | join(', ') }}",
        *(f"Goal: {goal_for(names)}\nPlan: {plan_for(names)}" for names in PLANNED),
        "Goal: {{ request.goal }}\nPlan:",
    ]
)
WRITER = "\n\n".join(["Make a sentence of it.", *(f"{noted}\n{sentence}" for noted, sentence in WRITTEN.items())])
TASK_PROMPT = """{% for finding in assignment.findings if finding.status != "closed" %}
{{ finding.observed }}
{% endfor %}
{% for name, noted in assignment.context.items() if name in assignment.task.description %}
{{ name }}: {{ noted }}
{% endfor %}"""

# ---------------------------------------------------------------- the rubric: plain code

WORD = re.compile(r"[a-z]+|\d+(?:[:.]\d+)?")
LITTLE = {"a", "and", "are", "at", "come", "comes", "from", "has", "in", "is", "lasts", "the", "there", "until", "with"}
"""Words without own content."""


def subjects(text: str) -> list[str]:
    """Return the subjects of the record that a text names."""
    return [name for name in RECORD if name in text]


def recorded(names: list[str]) -> list[str]:
    """Return the words and figures of the record on these subjects."""
    return [word for name in names for word in (name, *WORD.findall(RECORD[name]))]


def asked(context: kt.EvaluationContext) -> list[str]:
    """Return the subjects of a task: one for a sentence, all subjects of the goal for the notice."""
    return subjects(context.task.description if context.task.member == "writer" else context.goal)


def true(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Find words and figures that the record does not have."""
    known = LITTLE.union(recorded(asked(context)))
    made_up = [word for word in WORD.findall(artifact.text.casefold()) if word not in known]
    return not made_up or f"leave out {', '.join(made_up)}"


def whole(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Find subjects and figures that were left out."""
    words = WORD.findall(artifact.text.casefold())
    missing = [word for word in recorded(asked(context)) if word not in words]
    return not missing or f"say {', '.join(missing)}"


def short(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Count the words."""
    words, most = len(artifact.text.split()), 15 * len(asked(context))
    return words <= most or "say it once"


RUBRIC = Rubric(
    [
        Criterion("true", "every word and figure stands in the record", true),
        Criterion("whole", "it says all that the record has on its subjects", whole),
        Criterion("short", "at most 15 words on a subject", short),
    ]
)

# ---------------------------------------------------------------- the team


class CheckedPlanner:
    """Asks a planner, and refuses a plan that leaves out a subject of the goal or adds one."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        """Plan the request; `ValueError` for a plan with other subjects."""
        graph = await self.planner.plan(request, team, context)
        wanted = sorted(subjects(request.goal))
        written = sorted(name for task in graph.tasks if task.member == "writer" for name in subjects(task.description))
        used = [len(task.depends_on) for task in graph.tasks if task.member == "editor"]
        if written != wanted or len(graph) != len(wanted) + 1 or used != [len(wanted)]:
            raise ValueError(
                f"the plan is not one sentence each on {', '.join(wanted) or 'what the record has'}, and a notice"
            )
        return graph


def editor(assignment: kt.Assignment) -> str:
    """Join the accepted sentences; without any, the lines of the record on the goal."""
    own = [f"{name}: {RECORD[name]}" for name in subjects(assignment.goal)] or ["The record has nothing on it."]
    return "\n".join([artifact.text for artifact in assignment.upstream.values()] or own)


def warmer(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision, so that the model tries something else."""
    return {"temperature": 0.3 * (assignment.attempt - 1), "seed": assignment.attempt, "max_tokens": 40}


def build(*, offline: bool = False) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team and its request; offline, scripts replace the planner and the writer."""
    plans, sentences = (ScriptedModel(PLANS), ScriptedModel(SENTENCES)) if offline else (MODEL, MODEL)
    planner = AgentPlanner(plans, max_tasks=6, settings={"temperature": 0, "max_tokens": 300})
    coordinator = ExpertTeamCoordinator(
        planner=CheckedPlanner(planner),
        planner_failure_mode=kt.PlannerFailureMode.SINGLE_TASK_FALLBACK,
        evaluator=RUBRIC,
        templates={"plan": PLAN_PROMPT, "task": TASK_PROMPT},
    )
    writer = kt.MiniAgent(sentences, max_turns=1, settings=warmer)
    members = [kt.Member("editor", editor), kt.Member(kt.Role("writer", WRITER), writer)]
    config = kt.TeamConfig(
        budget=kt.Budget(tokens=12_000, seconds=300),
        budget_policy=kt.BudgetPolicy(plan=0.3),
        risk_profile=kt.RiskProfile.LOW,
        max_parallel_tasks=1,  # one model, one processor
    )
    team = kt.Team("harbour-desk", members, coordinator=coordinator)
    return team, kt.TeamExecutionRequest(GOAL, context=RECORD, config=config)


# ---------------------------------------------------------------- scripts in place of the model, and main

PLANS = [plan_for(["tide", "wind", "kites"])]
SENTENCES = [
    "The tide is high at 14:20, 6.8 m.",
    "The wind is from the west, 15 knots.",  # sent back: the record has 5
    "The wind is from the west, 5 knots.",
    "The kites are forbidden near the pier.",
]


def watch(event: kt.events.Event) -> None:
    """Print the verdict of each review."""
    if isinstance(event, kt.events.EvaluationResult):
        verdict = event.verdict
        feedback = f": {verdict.feedback}" if verdict.feedback else ""
        print(f"review of {event.task_id}, attempt {event.attempt}: {verdict.outcome}{feedback}")


def summary(result: kt.TeamResult) -> str:
    """Print the plan, the notice, the errors, and the status."""
    tasks = result.plan.tasks if result.plan else ()
    plan = [f"{task.id:8} {task.member or '':7} {' '.join(task.depends_on)}".rstrip() for task in tasks]
    cost = f"{result.status.value.upper()}, {result.usage}"
    blocks = ["\n".join(["", "the plan:", *(plan or ["none"])]), result.output or "no notice", *result.warnings, cost]
    return "\n\n".join(blocks)


team, request = build()


def main(arguments: list[str]) -> int:
    """Run the team and print the result."""
    team, request = build(offline="--offline" in arguments)
    result = kt.run_sync(team, request, runtime=kt.Runtime(subscribers=[watch]))
    print(summary(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
