"""What a third party implements: one protocol each, its clauses numbered.

The library calls nothing beyond these; our own agents, coordinators and evaluators stand on the same footing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.events import Event
    from kairo_team.governance.constraints import ResourceAction, ResourceContext, ResourceValidation
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.models.chat_model import ModelRequest, ModelResponse
    from kairo_team.results import AgentOutput, Artifact, TeamResult
    from kairo_team.runtime import Runtime
    from kairo_team.tasks import Assignment, TaskGraph
    from kairo_team.team import Role, Team, TeamExecutionRequest
    from kairo_team.tools.permissions import PermissionDecision
    from kairo_team.tools.pipeline import GovernedTool, Toolbox
    from kairo_team.tools.tool import SideEffect, Tool
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict

Subscriber = Callable[["Event"], Awaitable[None] | None]
"""Called with every event of a run, in order. A plain function is called in place and must be quick; an async one
has a bounded buffer of its own. One that raises is removed and reported."""


@runtime_checkable
class ChatModel(Protocol):
    """A language model.

    C1. `complete` answers one request or raises; it keeps no conversation and is safe to call concurrently.
    C2. The reply never has more tokens than `request.max_tokens`, when that is set.
    C3. `ModelResponse.usage` is what the provider says it used, or None when it does not say.
    C4. Cancellation passes through.

    Optional: `async count_tokens(request) -> int`, an upper bound of the prompt's tokens; `price(usage) -> Money`,
    what a reply cost; `async stream(request, tell) -> ModelResponse`, the same as `complete` but calling `tell(text)`
    with each piece of the reply's text as it comes; `max_output_tokens`, the most a reply may have when the request
    does not say. `kairo_team.errors.ModelCallError` says which failures may be tried again, or elsewhere.
    """

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request."""
        ...


class GovernedChatModel(Protocol):
    """A chat model as a member gets it: every call is held, clamped, settled and recorded.

    Optional: `async count_tokens(request) -> int | None`, the model's own count of the prompt's tokens; None without.
    """

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raises `HaltError` or `InsufficientBudget` instead of overspending.

        `ConstraintExit` when a constraint ends the attempt gracefully: return what there is, or let it pass.
        `GuardrailDenied` when a guardrail refuses the request or its reply.
        """
        ...

    async def stream(self, request: ModelRequest) -> ModelResponse:
        """Do the same, and tell the run's subscribers each piece of the text as it comes: `model.delta` events.

        While a guardrail looks at replies, nothing is told before the whole reply passed.
        """
        ...


class MemberContext(Protocol):
    """What a member may use during one attempt."""

    @property
    def governor(self) -> Governor:
        """The attempt's own budget; book on it what is spent elsewhere."""
        ...

    @property
    def remaining(self) -> Budget:
        """What could be spent now."""
        ...

    @property
    def cancelled(self) -> bool:
        """True once the attempt is to end: for code that cannot be interrupted, such as a plain function."""
        ...

    @property
    def role(self) -> Role:
        """The role the member fills."""
        ...

    @property
    def output_type(self) -> Any:
        """The type the artifact's data must have; None when the task names none."""
        ...

    @property
    def runtime(self) -> Runtime | None:
        """A runtime like the run's whose own runs are spent here, for a team inside the task; None outside a run."""
        ...

    def model(self, model: str | ChatModel) -> GovernedChatModel:
        """Return a model, by name or as an object, whose calls are governed."""
        ...

    def tool(self, tool: str | Tool | Callable[..., Any]) -> GovernedTool:
        """Return a tool whose every call goes through the tool pipeline.

        Takes a function, a `Tool`, or the name of one that `tools` brought in this attempt.
        """
        ...

    async def tools(self, tools: Iterable[Tool | ToolSource | Callable[..., Any]]) -> Toolbox:
        """Return the governed tools of functions and of tool sources, such as MCP servers, which are connected now."""
        ...

    def render(self, template: str, **values: object) -> str:
        """Fill in one of the run's prompt templates."""
        ...

    def emit(self, text: str, **data: Any) -> None:
        """Report progress: an `attempt.progress` event."""
        ...

    def name_inner_run(self, team: str, goal: str) -> str:
        """Return the id for a run of a team inside the attempt, the same one when the attempt is made again."""
        ...

    async def put_off(self, question: HumanRequest) -> None:
        """End the attempt, to be made again once a question is answered; returns where the work is no attempt."""
        ...

    def keep(self, text: str) -> None:
        """Put partial work in safety: it comes back when the attempt is killed, halted or times out."""
        ...


class Agent(Protocol):
    """Does a task.

    C1. `run` returns an `AgentOutput`, a string or an `Artifact`; None or anything else is a failure, not tried again.
    C2. It holds no state between calls when it declares `reentrant = True`; otherwise it is never called twice at once.
    C3. `HaltError` and cancellation pass through it untouched.
    C4. What it spends outside the governed models of its context it books on `context.governor`.

    Optional: `own_loop = True` when it calls `context.governor.pre_step()` itself (else each attempt counts as one
    loop); `preflight(role, models, budget)`, sentences on why it could not work here, asked before anything starts.
    """

    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput | Artifact | str:
        """Make the artifact the assignment asks for."""
        ...


@runtime_checkable
class ResourceConstraint(Protocol):
    """A soft limit inside the budget: looks at an attempt before each turn and after each reply.

    C1. `validate` says whether the limit is reached (`>=`, not `>`), with a reason and what it measured; it changes
        nothing and keeps nothing of one attempt: one object guards many at once.
    C2. `on_violation` is asked only about a violation, and says what is to happen; it never waits.
    C3. Whatever it raises or returns that is not of these types stops the attempt as an emergency, in its name.
    C4. Cancellation passes through.

    Optional: `name` (default: the class's name); `share(context) -> float`, how much of the limit is used, 1.0 being
    all, which lets `WarnAt` wrap it; `async watch() -> ResourceValidation`, awaited beside the attempt (a member's
    constraint) or beside the run (a team's) and cancelled with it: a violation it returns is acted on at once, in the
    middle of a call too.
    """

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Look at one attempt."""
        ...

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Decide what a violation leads to."""
        ...


@runtime_checkable
class GuardrailPolicy(Protocol):
    """Looks at what goes into and comes out of models and tools.

    C1. `evaluate` returns a `GuardrailDecision` about the payload it is shown, and changes nothing itself.
    C2. Whatever it raises or returns that is not a decision denies, in its name.
    C3. A modified payload is of the same phase as the one shown.
    C4. Cancellation passes through.

    Optional: `name` (default: the class's name); `order` (default 0; lower goes first); `phases`, the set of
    `GuardrailPhase`s it wants to see (default: all); `for_run() -> GuardrailPolicy`, a policy with state of its own
    for one run, asked when the run begins.
    """

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Decide about one payload."""
        ...


@runtime_checkable
class PermissionGuard(Protocol):
    """Decides which tool calls may happen.

    C1. `check` answers allow, deny or ask for every tool, whatever its name; it changes nothing.
    C2. Whatever it raises or returns that is not a decision denies.
    C3. Cancellation passes through.
    """

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Decide about one call; `side_effect` is what the tool declares, "system" where it declares nothing."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Where tools come from that are known only once connected, such as an MCP server.

    C1. `connect` is entered once per run, before the first of its tools is offered, and left when the run ends.
    C2. The tools it yields are safe to call concurrently while it is connected.
    """

    @property
    def name(self) -> str:
        """Unique among the sources of a run."""
        ...

    def connect(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Connect, and yield the tools; raises when that is not possible."""
        ...


@runtime_checkable
class HumanGate(Protocol):
    """Asks a person, for one run or many.

    C1. `decide` returns what the person decided about this question; it changes nothing itself.
    C2. It never approves by itself: to give up, or to have waited long enough, is to return None or to raise.
    C3. It may be asked several questions at once.
    C4. Cancellation passes through: the run has ended.
    """

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask one question; None is silence."""
        ...


class Models(Protocol):
    """Where model names become models."""

    def resolve(self, model: str | ChatModel) -> ChatModel:
        """Return the model of that name; raises `ModelUnavailable` or `MissingExtra`."""
        ...


class EvaluationStrategy(Protocol):
    """Decides what happens to one artifact.

    C1. No evidence, no PASS.
    C2. Its own failure never passes, never scores and never reaches the member: raise, or return REVIEW_EXCEEDED.
    C3. It is re-entrant and changes nothing.
    C4. Cancellation passes through; it is not a verdict.
    """

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        ...


class Planner(Protocol):
    """Turns a goal into tasks.

    C1. It returns a `TaskGraph` or raises; it starts no work.

    Optional: `preview(request, team)`, the same plan, where it is known without asking anybody; `preflight(models)`,
    sentences on why it could not plan here, asked before anything starts.
    """

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Plan the request for this team."""
        ...


class TeamCoordinator(Protocol):
    """Runs a team.

    C1. `execute` does nothing before it is awaited and raises only `RunExists` or its caller's cancellation.
    C2. Every other end is a `TeamResult`.
    C3. One object runs many teams at once and keeps nothing of any.

    Optional: `preview(request, team)`, the plan it will run where that is known without asking anybody (else None), for
    `kairo_team.check`; it raises `PlanRefused` for what `execute` would refuse. `preflight(request, team)`, sentences
    on what else it would refuse, such as a planner without a model.
    """

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        ...


class Journal(Protocol):
    """Where a run's recorded steps are kept: an internal seam without a promise."""

    def get(self, key: str, default: object) -> object:
        """Return the value recorded under `key`, else `default`."""
        ...

    def put(self, key: str, value: object) -> None:
        """Record `value` under `key`."""
        ...


def check_constraints(owner: str, constraints: Any) -> tuple[ResourceConstraint, ...]:
    """Return constraints as a tuple; `ValueError` in the name of `owner` for what is none."""
    methods = {"validate": "async validate(context)", "on_violation": "on_violation(validation)"}
    return _check_parts(owner, constraints, "constraint", methods)


def check_guardrails(owner: str, guardrails: Any) -> tuple[GuardrailPolicy, ...]:
    """Return guardrail policies as a tuple; `ValueError` in the name of `owner` for what is none."""
    return _check_parts(owner, guardrails, "guardrail", {"evaluate": "async evaluate(context)"})


def _check_parts(owner: str, parts: Any, what: str, methods: Mapping[str, str]) -> tuple[Any, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise ValueError(f"{owner}: {what}s are given as a list, not {parts!r}")
    given = tuple(cast("Iterable[Any]", parts))  # type: ignore[redundant-cast]  # pyright needs it
    for one in given:
        if isinstance(one, type):
            raise ValueError(f"{owner}: {one.__name__} is a class, not a {what}: make one, {one.__name__}(...)")
        lacking = [name for name in methods if not callable(getattr(one, name, None))]
        if lacking:
            raise ValueError(
                f"{owner}: a {what} has {' and '.join(methods.values())}; {one!r} lacks {' and '.join(lacking)}"
            )
    return given
