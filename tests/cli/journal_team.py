"""Teams for the commands on recorded runs: their provider writes every call into `asked.txt` beside the file."""

OFFICE = """
import anyio, pathlib
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import FunctionModel

HERE = pathlib.Path(__file__).parent

def reply(request):
    with (HERE / "asked.txt").open("a") as account:
        account.write(request.messages[-1].text + "\\n")
    return "as asked"

model = FunctionModel(reply, name="test:provider")

async def ask(context, text):
    return (await context.model(model).complete(kt.ModelRequest([kt.Message.user(text)], max_tokens=40))).text

async def write(assignment, context):
    await ask(context, f"{assignment.task.id} {assignment.attempt}")
    if assignment.task.id == "wait":
        print("at work", flush=True)
        while not (HERE / "go").exists():
            await anyio.sleep(0.02)
        await ask(context, "after the wait")
    return "a shorter letter" if assignment.previous else "a long letter \\x1b[2J"

class Unsure:
    async def evaluate(self, context):
        if not context.task.id.startswith("letter") or "shorter" in context.artifact.text:
            return kt.EvaluationVerdict.passed(1.0)
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person must see it")

experts = ExpertTeamCoordinator(evaluator=Unsure(), failure_policy=FailurePolicy(retries=0))
clerk = kt.Member(kt.Role("clerk", "Write."), write)
"""

ASKS = (
    OFFICE
    + """
team = kt.Team("office", [clerk], coordinator=experts)
plan = kt.TaskGraph([kt.Task("letter", "Write."), kt.Task("beside", "x"), kt.Task("end", "x", depends_on=["letter"])])
request = kt.TeamExecutionRequest("Send \\x9b31m it.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=900)))
"""
)
"""A person has to accept its letter."""

ASKS_TWICE = ASKS.replace('kt.Task("beside", "x")', 'kt.Task("letter2", "x")')

WAITS = (
    OFFICE
    + """
team = kt.Team("office", [clerk])
plan = kt.TaskGraph([kt.Task("first", "x"), kt.Task("wait", "x", depends_on=["first"])])
"""
)
"""It waits for a file named `go`."""
