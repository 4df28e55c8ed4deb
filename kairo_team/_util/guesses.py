"""Answers to guessed names: a sentence with the name to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")


def _sentence_by_name(*groups: tuple[str, str]) -> Mapping[str, str]:
    """Return the sentence of each name; a group has names separated by spaces, and their sentence."""
    return {name: sentence for names, sentence in groups for name in names.split()}


_A_TEAM: Final = "write kt.Team(name, [kt.Member(role, agent), ...])"
_MINI: Final = 'write kt.MiniAgent("openai:gpt-5-mini"); any function, or class with a method run, is an agent too'
_RUN: Final = "write kt.run_sync(team, goal), or await kt.run(team, goal)"
_PEOPLE: Final = "people are asked through a gate, as in kt.Runtime(gate=kt.ConsoleGate())"
_REVIEW: Final = 'a review is a kt.Rubric of kt.Criterion(id, text, check=... or by="judge")'
_SAFE: Final = (
    "guardrails are in kairo_team.governance.policies, or your own class; give them to Team(guardrails=[...])"
)
_SAVED: Final = 'runs are recorded in a journal, as in kt.Runtime(journal=kt.SqliteJournal("runs.db"))'

OF_THE_PACKAGE: Final = _sentence_by_name(
    ("Crew Swarm Squad AgentTeam Ensemble", _A_TEAM),
    (
        "Graph StateGraph Workflow WorkflowBuilder Flow Plan DAG Pipeline SequentialBuilder ConcurrentBuilder",
        "write kt.TaskGraph([kt.Task(id, description, depends_on=[...]), ...]), and run it with kt.run(..., plan=...)",
    ),
    ("Node Step Job", "write kt.Task(id, description, role=...)"),
    (
        "Agent AssistantAgent ChatAgent LlmAgent LLMAgent SimpleAgent ReActAgent create_agent create_react_agent",
        _MINI,
    ),
    ("Runner Executor execute kickoff invoke arun run_async start main", _RUN),
    (
        "stream",
        "write async with kt.Runtime() as runtime, runtime.stream(team, goal) as run, and iterate over run.events()",
    ),
    (
        "Coordinator Orchestrator Manager Process Strategy",
        "write kt.ExpertTeamCoordinator(...), or one of the other four that docs/coordinators.md compares",
    ),
    ("GroupChat RoundRobinGroupChat SelectorGroupChat GroupChatBuilder", "write kt.GroupChatCoordinator(...)"),
    ("Handoff handoff HandoffBuilder", "write kt.HandoffCoordinator(...)"),
    ("Supervisor create_supervisor Hierarchical MagenticBuilder", "write kt.SupervisorCoordinator(...)"),
    ("ExpertTeam Experts", "write kt.ExpertTeamCoordinator(evaluator=...)"),
    ("TaskBoard TaskDispatch", "write kt.TaskDispatchCoordinator()"),
    (
        "Model LLM OpenAI OpenAIModel Anthropic ChatOpenAI LiteLLM",
        'a model is named by a string such as "openai:gpt-5-mini", as in kt.MiniAgent("openai:gpt-5-mini")',
    ),
    ("function_tool FunctionTool BaseTool", "write @kt.tool above a function"),
    (
        "UsageLimits Limits Limit Cost",
        "write kt.Budget(tokens=..., dollars=..., loops=..., tool_calls=..., seconds=...)",
    ),
    ("Evaluator Judge Review Reviewer Check Grader", _REVIEW),
    ("Guardrail Guard InputGuardrail OutputGuardrail input_guardrail output_guardrail", _SAFE),
    (
        "Constraint MaxTurns MaxMessages",
        "constraints are in kairo_team.governance, such as MaxIterations; give them to Team(constraints=[...])",
    ),
    ("Session Memory MemorySaver Checkpointer Store Journal", _SAVED),
    ("interrupt Interrupt HumanInTheLoop UserProxyAgent human_input ask Gate", _PEOPLE),
    ("Context RunContext", "an agent gets a kt.Assignment and a kt.MemberContext"),
    (
        "Result RunResult Output",
        "a run returns a kt.TeamResult, and an agent a string, a kt.Artifact or a kt.AgentOutput",
    ),
    ("Status RunStatus", "write kt.TeamStatus, or kt.TaskStatus"),
    ("Error KairoTeamError", "every error of the library is a kt.KairoError"),
)
"""Names of other libraries, and others that the package might have."""

OF_THE_COMMAND_LINE: Final = _sentence_by_name(
    ("watch follow tail log logs stream", "kairo events RUN --follow prints what happens, kairo console shows it"),
    ("list ls ps history jobs", "kairo runs lists the runs"),
    ("status info describe inspect get state", "kairo show RUN shows a run"),
    ("start exec execute invoke kickoff", "kairo run FILE runs a team"),
    ("stop kill abort end", "kairo cancel RUN ends a recorded run for good; Ctrl-C leaves one to resume"),
    ("retry restart continue rerun", "kairo resume RUN resumes a run, kairo fork RUN makes a new one of it"),
    ("delete remove rm clean prune", "kairo forget RUN deletes a recorded run"),
    ("approve reject reply respond", "kairo answer RUN answers its open question"),
    ("ui web dashboard studio dev", "kairo console shows the runs in a browser"),
    ("test evaluate evals benchmark", "kairo eval FILE runs a team on a dataset"),
    ("validate lint plan preview dry-run", "kairo check FILE says what a run would do, kairo graph FILE draws it"),
    ("new create scaffold", "kairo init writes a project"),
    ("upgrade update", "kairo migrate brings a journal to this version's format"),
    ("version", "write kairo --version"),
    ("help", "write kairo --help"),
)
"""Commands that other programs have, each with what to write."""

_OF_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Team": _sentence_by_name(
        (
            "run run_sync arun execute start invoke kickoff stream",
            "run it with kt.run_sync(team, goal), or await kt.run(...)",
        ),
        ("check dry_run", "write kt.check(team, goal)"),
        ("budget limits config", "a budget belongs to a run: kt.run(team, goal, budget=kt.Budget(...))"),
        ("tasks plan graph", "a plan belongs to a run: kt.run(team, goal, plan=kt.TaskGraph([...]))"),
        ("agents roles", "read the agent and the role of each one in team.members"),
        ("add add_member add_agent append", "a Team does not change: give all members to kt.Team(name, members)"),
    ),
    "Budget": _sentence_by_name(
        ("max_tokens token_limit total_tokens", "its limit is tokens"),
        ("usd cost max_cost money price cost_usd", "its limit in US dollars is dollars"),
        ("turns steps iterations max_turns max_iterations rounds", "its limit is loops"),
        ("calls tools max_tool_calls", "its limit is tool_calls"),
        ("time timeout duration minutes deadline", "its limit is seconds"),
        (
            "remaining left spent used usage",
            "a Budget is only the limits; read result.usage after a run, or context.remaining inside an agent",
        ),
    ),
    "Task": _sentence_by_name(
        ("name key title", "it is called id"),
        ("goal prompt instructions text objective expected_output", "it is called description"),
        ("agent assignee owner", "role names who may do it, and member names one member"),
        ("dependencies deps after parents context", "it is called depends_on"),
        ("result output status artifact verdict", "a Task is only the plan; read result[task.id] after a run"),
        ("run execute", "a task runs in a plan: kt.run(team, goal, plan=kt.TaskGraph([task]))"),
    ),
    "TeamResult": _sentence_by_name(
        ("text content answer final_output response value", "read output, or partial_output"),
        ("data structured json_dict pydantic", "read artifact.data, or artifact.data_as(kind)"),
        ("tasks results task_results tasks_output steps", "read outcomes, or result[task_id]"),
        ("cost dollars tokens total_tokens token_usage", "read usage, such as usage.tokens and usage.dollars"),
        ("ok success succeeded is_success", "compare status with kt.TeamStatus.COMPLETED, or call check()"),
        ("raise_for_status unwrap", "call check()"),
        ("errors exceptions", "read error, exception, and the error of each outcome"),
        ("html to_html save", 'call report("run.html")'),
        ("id", "it is called run_id"),
        ("graph", "it is called plan"),
    ),
    "Assignment": _sentence_by_name(
        ("item", "read inputs['item']"),
        ("input data arguments", "read inputs, by name"),
        ("prompt text message query question content", "read goal, or task.description"),
        ("id task_id description role", "read it of task, such as task.id"),
        ("results outputs dependencies depends_on artifacts", "read upstream, the artifacts by task id"),
        ("feedback", "read findings"),
    ),
    "Artifact": _sentence_by_name(
        ("content output value result answer message", "read text"),
        ("json structured pydantic", "read data, or data_as(kind)"),
    ),
    "TaskOutcome": _sentence_by_name(
        ("output text result content data", "read artifact.text, or artifact.data"),
        ("id task", "it is called task_id"),
        ("tokens cost dollars", "read usage, such as usage.tokens and usage.dollars"),
        ("findings feedback score", "read it of verdict"),
    ),
}
"""Attributes that a value might have."""


def answers_guesses(kind: type[T]) -> type[T]:
    """Give a class errors for missing attributes that say what to write.

    The method is set here, because a type checker that sees `__getattr__` in a class accepts any attribute.
    """
    name_of_kind = kind.__name__

    def missing(self: object, name: str) -> Any:
        hint = _OF_KINDS[name_of_kind].get(name)
        kind_of_it = f"{'an' if name_of_kind[0] in 'AEIO' else 'a'} {name_of_kind}"
        raise AttributeError(f"{kind_of_it} has no {name!r}{f': {hint}' if hint else ''}", name=name, obj=self)

    kind.__getattr__ = missing  # type: ignore[attr-defined]
    return kind
