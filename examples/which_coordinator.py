"""Which coordinator when: each of the five does the same job, and the costs are compared.

    python examples/which_coordinator.py               # on the model inside this process
    python examples/which_coordinator.py --offline     # a script in place of the model

The job is a notice of two sentences. Two writers know one line of the harbour's record each, and a model of 135 million
parameters makes a sentence from it; the editor, a function, joins the sentences. The difference is who decides the next
step: the plan (task board), the plan and a review (expert team), each member (hand-off), a moderator (group chat), or
one member (supervisor). In the last three the decision comes from the same model, held to a schema of the members.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

import kairo_team as kt
from kairo_team.contracts import ChatModel, TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, TaskDispatchCoordinator
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.testing import FunctionModel

MODEL = "local:smollm2"
GOAL = "Put up a notice on the tide and the wind."
RECORD = {"tide": "high at 14:20, 6.8 m", "wind": "from the west, 5 knots"}
WORD = re.compile(r"[a-z]+|\d+(?:[:.]\d+)?")

# ---------------------------------------------------------------- the model's prompts: examples, not rules

WRITTEN = {
    "boats: first at 7:15, 12 seats": "The boats are first at 7:15, 12 seats.",
    "storms: from the south, 40 knots": "The storms are from the south, 40 knots.",
    "snow: 12 cm deep, fresh": "The snow is 12 cm deep and fresh.",
    "heat: 34 degrees, dry": "The heat is 34 degrees and dry.",
}
WRITER = "\n\n".join(["Make a sentence of it.", *(f"{noted}\n{sentence}" for noted, sentence in WRITTEN.items())])
END = "end of the talk"
CHOSEN = [("snow", "snow"), ("heat, mail", "heat"), ("nothing", END), ("stars", "stars"), ("nothing", END)]
"""What is still missing, and who is next."""


def choice(missing: str, who: str | None = None) -> str:
    """Write down what is missing; with the next member, the text is an example for the model."""
    return f"Missing: {missing}\nNext: {'' if who is None else json.dumps({'next': who})}".strip()


CHOICES = "\n\n".join(choice(*one) for one in CHOSEN)
MODERATOR = f"""{CHOICES}

Missing: {{% for member in members | sort(attribute="id") if member.id ~ ":" not in transcript -%}}
{{{{ ", " if not loop.first }}}}{{{{ member.id }}}}{{% else %}}nothing{{% endfor %}}

Next:"""


def holding(*names: str) -> dict[str, Any]:
    """Return the schema of a choice."""
    return {"type": "object", "properties": {"next": {"enum": [*names]}}, "required": ["next"]}


async def choose(context: kt.MemberContext, model: str | ChatModel, told: list[str], *names: str) -> str:
    """Have the model choose one of these names; `END` means the editor, who answers."""
    missing = [subject for subject in RECORD if subject not in told]
    prompt = f"{CHOICES}\n\n{choice(', '.join(missing) or 'nothing')}"
    settings = {"temperature": 0, "seed": 1}
    request = kt.ModelRequest([kt.Message.user(prompt)], (), holding(*names), 40, settings)
    chosen: str = json.loads((await context.model(model).complete(request)).text)["next"]
    return chosen


# ---------------------------------------------------------------- the members


class Writer:
    """Has a model write the sentence on its subject; if it must hand over, the model also chooses the next member."""

    reentrant = True

    def __init__(self, subject: str, model: str | ChatModel) -> None:
        self.subject = subject
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Write the sentence; each revision raises the temperature a little."""
        noted = f"{self.subject}: {RECORD[self.subject]}"
        settings = {"temperature": 0.3 * (assignment.attempt - 1), "seed": assignment.attempt}
        messages = [kt.Message.system(WRITER), kt.Message.user(noted)]
        request = kt.ModelRequest(messages, max_tokens=40, settings=settings)
        sentence = (await context.model(self.model).complete(request)).text.strip()
        if any(tool.name == "hand_over" for tool in context.offered):
            told = subjects([*sentences(assignment), sentence])
            others = [name for name in RECORD if name != self.subject]
            chosen = await choose(context, self.model, told, *others, END)
            context.keep(sentence)
            await context.tool("hand_over")(to="editor" if chosen == END else chosen, message="Go on.")
        return sentence


class Editor:
    """Joins the sentences; as a supervisor it asks for them first, and the model chooses whom."""

    reentrant = True

    def __init__(self, model: str | ChatModel) -> None:
        self.model = model

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Join the sentences, or ask for missing ones."""
        written = sentences(assignment)
        told = subjects(written)
        if any(tool.name == "create_task" for tool in context.offered):
            for missing in [subject for subject in RECORD if subject not in told]:
                member = await choose(context, self.model, told, *RECORD)
                await context.tool("create_task")(id=missing, description=f"Write about the {missing}.", member=member)
                told.append(member)
        return "\n".join(written) or "Nothing was written."


def sentences(assignment: kt.Assignment) -> list[str]:
    """Return the sentences so far, each once."""
    talk = [str(assignment.inputs.get(name, "")) for name in ("conversation", "the talk so far")]
    lines = "\n".join([*talk, *(artifact.text for artifact in assignment.upstream.values())]).splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if subjects([line]) and line.strip().endswith(".")))


def subjects(texts: list[str]) -> list[str]:
    """Return the subjects that texts name, as in "The tide is high."."""
    return [subject for subject in RECORD if any(f"The {subject}" in text for text in texts)]


# ---------------------------------------------------------------- the job, five times


def is_true(subject: str, text: str) -> bool:
    """Return whether a line of a text has all words and figures of the record's line, and no other figure."""
    wanted = set(WORD.findall(f"{subject} {RECORD[subject]}"))
    lines = [set(WORD.findall(line.casefold())) for line in text.splitlines()]
    return any(wanted <= found and not {one for one in found - wanted if one[0].isdigit()} for found in lines)


def whole(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Find what the sentence of a writer does not say."""
    subject = context.task.role or ""
    return subject not in RECORD or is_true(subject, artifact.text) or f"say {RECORD[subject]}, and no more"


def coordinators(model: str | ChatModel) -> Mapping[str, TeamCoordinator]:
    """Return the five."""
    return {
        "task board": TaskDispatchCoordinator(),
        "expert team": ExpertTeamCoordinator(evaluator=Rubric([Criterion("whole", "it says the record", whole)])),
        "hand-off": kt.HandoffCoordinator(max_hops=4),
        "group chat": kt.GroupChatCoordinator(
            moderator=model, max_turns=4, closing="editor", templates={"moderator": MODERATOR}
        ),
        "supervisor": kt.SupervisorCoordinator(supervisor="editor", max_tasks=4, max_turns=3),
    }


PLAN = kt.TaskGraph(
    [
        *(kt.Task(subject, f"Write about the {subject}.", role=subject) for subject in RECORD),
        kt.Task("notice", "Put up the notice.", role="editor", depends_on=list(RECORD)),
    ]
)
"""The plan of the two coordinators that need one."""


def build(name: str, model: str | ChatModel) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make the team with one of the coordinators, and its request."""
    members = [*(kt.Member(subject, Writer(subject, model)) for subject in RECORD), kt.Member("editor", Editor(model))]
    team = kt.Team("notice", members, coordinator=coordinators(model)[name])
    config = kt.TeamConfig(budget=kt.Budget(tokens=20_000), risk_profile=kt.RiskProfile.LOW, max_parallel_tasks=1)
    plan = PLAN if name in ("task board", "expert team") else None
    return team, kt.TeamExecutionRequest(GOAL, plan=plan, config=config)


def play(name: str, model: str | ChatModel) -> tuple[kt.TeamResult, int]:
    """Do the job with one of the coordinators; return the result and how often a model was called."""
    calls: list[kt.events.Event] = []

    def count(event: kt.events.Event) -> None:
        if isinstance(event, kt.events.ModelCalled):
            calls.append(event)

    team, request = build(name, model)
    return kt.run_sync(team, request, runtime=kt.Runtime(subscribers=[count])), len(calls)


def row(name: str, result: kt.TeamResult, calls: int, *, timed: bool) -> str:
    """Return the table's line for one run: its cost, and how much of the notice is right."""
    right = sum(is_true(subject, result.output or "") for subject in RECORD)
    seconds = f"{result.duration:8.1f}" if timed else ""
    cost = f"{len(result.outcomes):6}{calls:7}{result.usage.tokens:8,}"
    return f"{name:12}{cost}{seconds}  {result.status.value}, {right} of {len(RECORD)} lines right"


# ---------------------------------------------------------------- a script in place of the model, and main


def scripted(request: kt.ModelRequest) -> str:
    """Answer like a model that follows the examples."""
    asked = request.messages[-1].text
    if request.output_schema is None:
        subject, _, noted = asked.partition(": ")
        return f"The {subject} is {noted}."
    missing = re.findall(r"Missing: (.*)", asked)[-1]
    return json.dumps({"next": next((subject for subject in RECORD if subject in missing), END)})


def main(arguments: list[str]) -> int:
    """Do the job with each, and print the table."""
    offline = "--offline" in arguments
    print(f"{'':12}{'tasks':>6}{'calls':>7}{'tokens':>8}{'' if offline else f'{chr(115):>8}'}  result")
    statuses: list[kt.TeamStatus] = []
    if not offline:
        play("task board", MODEL)  # the first call loads the model
    for name in coordinators(MODEL):
        result, calls = play(name, FunctionModel(scripted) if offline else MODEL)
        print(row(name, result, calls, timed=not offline), flush=True)
        statuses.append(result.status)
    return 0 if kt.TeamStatus.FAILED not in statuses else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
