"""The protocols that third parties implement, with numbered clauses.

The library calls nothing beyond these; the built-in agents, coordinators and evaluators use no private hooks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from kairo_team._util.plugin_shapes import check_parts

if TYPE_CHECKING:
    from kairo_team.addresses import ModelAddress
    from kairo_team.artifacts import Artifact
    from kairo_team.budget import Budget, Usage
    from kairo_team.constraints import ResourceAction, ResourceContext, ResourceValidation
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.errors import JournalError
    from kairo_team.events import Event
    from kairo_team.governance.governor import Governor
    from kairo_team.guardrails import GuardrailContext, GuardrailDecision
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.messages import ModelRequest, ModelResponse
    from kairo_team.permissions import PermissionDecision, SideEffect
    from kairo_team.recorded import Place, RecoveredRun
    from kairo_team.results import AgentOutput, Data, TeamResult
    from kairo_team.tasks import Assignment, TaskGraph
    from kairo_team.team import Role, Team, TeamExecutionRequest
    from kairo_team.tools.pipeline import GovernedTool, Toolbox
    from kairo_team.tools.tool import Tool
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict

Made: TypeAlias = "AgentOutput | Artifact | str | Data"
"""What an agent returns; data becomes an artifact, whose text is its JSON."""
Subscriber = Callable[["Event"], Awaitable[None] | None]
"""Called with every event of a run, in order. A plain function is called at once and must be quick; an async one has
its own bounded buffer. A subscriber that raises is removed and reported.

A subscriber with a method `around` is a `Surrounding` too."""


@runtime_checkable
class Surrounding(Protocol):
    """A subscriber that also wraps the work of a run, such as in a span. Contract 1.0, experimental.

    Optional: `traceparent(run_id) -> str | None`, the W3C trace context of its span for a run that has begun. It is
    recorded with the run, and `TeamResumed` has it when the run is resumed, in any process.
    """

    def around(self, event: Event) -> AbstractContextManager[object]:
        """Return the context manager that wraps the work, in the work's own task.

        `event` is the first one of the work, delivered before: `TeamStarted` or `TeamResumed`, `AttemptStarted`,
        `EvaluationStarted`, `ModelStarted`, `ToolStarted`. The context manager can neither swallow nor replace what the
        work raises. A subscriber that raises is reported and wraps no more work.
        """
        ...


@runtime_checkable
class ChatModel(Protocol):
    """A language model. Contract 1.17, experimental.

    C1. `name` is `provider:model` and stays so; `complete` answers one request with a `ModelResponse`, or raises.
    C2. It keeps no conversation: an earlier request is not part of a later one.
    C3. Calls at the same time do not mix.
    C4. The reply never has more tokens than `request.max_tokens`, when that is set, else than `max_output_tokens`.
    C5. `ModelResponse.usage` is what the provider reports, or None when it reports nothing: no guess, and not zero
        after a provider was called.
    C6. Cancellation passes through, and leaves the model fit for the next call.
    C7. It does not change the request.
    C8. A provider that does not answer is a `kairo_team.errors.ModelCallError`, whose `kind` shows whether the call may
        be repeated, here or elsewhere; it is never a reply.
    C9. It calls its provider once for each call: retries are made by the caller, each with its own hold.
    C10. `count_tokens` is never less than the tokens of the prompt that the provider counts.
    C11. `price` is a finite amount, not negative, the same for the same usage, and not smaller for more tokens.
    C12. `stream` passes on the text of the reply it returns, in order; an exception of `on_text` ends the call.
    C13. A file of a message reaches the provider whole, or the call is refused: it is never left out.
    C14. A message's `native` form is sent in place of its text and calls, if this model made it and it says the same.
    C15. All of a request reaches the provider: messages in order with their roles, tool calls and results, the tools,
        the schema and the settings. What it cannot send it refuses with a `ModelCallError`, and asks nobody.
    C16. All of the provider's answer is in the reply: the text, the tool calls in order, and why it ended.
    C17. The provider's failure is the error's `kind`, and the wait that it asks for is `retry_after`.

    Optional: `async count_tokens(request) -> int`, an upper bound of the prompt's tokens; `price(usage) -> Money`;
    `file_problem(file) -> str | None`, why it takes no such file (without it, it gets none); `async stream(request,
    on_text)`, or `stream(request, on_text, on_thinking)`, as `complete`, with each piece of text, or of reasoning, as
    it comes; `max_output_tokens`, the most a reply may have when the request sets no limit; `context_window`, the most
    tokens of prompt and reply, None if unknown. `kairo_team.models.idempotency_key()` names the try that is being sent.
    """

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request."""
        ...


class GovernedChatModel(Protocol):
    """A chat model as a member gets it: every call is held, capped, settled and recorded.

    Optional: `async count_tokens(request) -> int | None`, the model's own count of the prompt's tokens; None without
    one; `context_window` and `file_problem`, as of the model.
    """

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; raise `HaltError` or `InsufficientBudget` instead of overspending.

        Raises `ConstraintExit` if a constraint ends the attempt gracefully: return the work so far, or do not catch it.
        Raises `GuardrailDenied` if a guardrail refuses the request or its reply.
        """
        ...

    async def stream(self, request: ModelRequest) -> ModelResponse:
        """Answer one request like `complete`, and emit each piece of the reply as it comes: `model.delta` events.

        With a guardrail for replies, nothing is emitted before the whole reply has passed.
        """
        ...


class MemberContext(Protocol):
    """What a member may use during one attempt."""

    @property
    def governor(self) -> Governor:
        """The attempt's own budget; book spending outside the context on it."""
        ...

    @property
    def remaining(self) -> Budget:
        """What could be spent now."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should end: for code that cannot be interrupted, such as a plain function."""
        ...

    @property
    def role(self) -> Role:
        """The role the member fills."""
        ...

    @property
    def output_type(self) -> Any:
        """The type the artifact's data must have; None if the task names none."""
        ...

    @property
    def foreign(self) -> bool:
        """Whether a model may have written the goal or the task: then prompts quote them."""
        ...

    @property
    def runtime(self) -> Runtime | None:
        """A runtime whose runs are spent here, for a team inside the task; None outside a run."""
        ...

    @property
    def offered(self) -> Sequence[Tool]:
        """Tools that the coordinator offers for this attempt, such as one that hands over; mostly empty.

        The role's `allowed_tools` do not apply to them: the coordinator brings them, not the member. The tools allowed
        to a task around the run do apply.
        """
        ...

    def model(self, model: str | ChatModel) -> GovernedChatModel:
        """Return a model, by name or as an object, whose calls are governed."""
        ...

    def address(
        self, model: str | ChatModel, *, tools: Iterable[Tool | ToolSource | Callable[..., Any]] | None = None
    ) -> AbstractAsyncContextManager[ModelAddress]:
        """Serve a model to a client of another library, or a program, at an address of this machine.

        `async with context.address("openai:gpt-5") as address:`. Every request is a loop and a governed call. With
        `tools`, these and the coordinator's are served over MCP at `address.mcp`, and every call of them is one of
        `context.tools`; None serves no tools. The end of the block raises the first error that ended the calls, even if
        the library hid it. Needs the extra `address`, with tools also `mcp`.
        """
        ...

    def tool(self, tool: str | Tool | Callable[..., Any]) -> GovernedTool:
        """Return a tool whose every call goes through the tool pipeline.

        Takes a function, a `Tool`, or the name of a tool that the coordinator offers, or that `tools` brought in this
        attempt; `KeyError` for another name. Awaiting a tool that ends the attempt does not return: its `TurnEnded`
        leaves the member.
        """
        ...

    async def tools(self, tools: Iterable[Tool | ToolSource | Callable[..., Any]]) -> Toolbox:
        """Return the governed tools of functions and of tool sources, such as MCP servers, which are connected now.

        The coordinator's tools come after them; two tools of one name raise a `ValueError`.
        """
        ...

    def render(self, template: str, **values: object) -> str:
        """Fill in one of the run's prompt templates."""
        ...

    async def recorded(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returned when this work was first done; `make` may be async, its value JSON can hold.

        Use this for values in a prompt that come from the clock, a random source or the remaining budget. A suspended
        attempt that is repeated must have the same prompt, or its model is called, and paid, again. A name may be used
        several times: its second use has the second value.
        """
        ...

    def emit(self, text: str, **data: Any) -> None:
        """Report progress: an `attempt.progress` event."""
        ...

    def name_inner_run(self, team: str, goal: str) -> str:
        """Return the id for a run of a team inside the attempt, the same in a repeated attempt."""
        ...

    async def put_off(self, question: HumanRequest | None = None) -> None:
        """End the attempt until a question is answered, then make it again; returns if the work is not an attempt.

        Without a `question`, wait for the questions of deferred calls (`GovernedTool.call_of_reply`), if there are any.
        """
        ...

    def keep(self, text: str) -> None:
        """Save partial work: it is returned when the attempt is killed, halted or times out."""
        ...


@runtime_checkable
class Agent(Protocol):
    """Does a task. Contract 1.14, experimental.

    C1. `run` returns an `AgentOutput`, an `Artifact`, a string that is not blank, or data (a pydantic model, dataclass,
        dict or list). None or anything else is a failed attempt, which is not retried.
    C2. An agent made for any task gives its model the whole assignment: goal, context, task, inputs, upstream
        artifacts, directives and, on a revision, the previous artifact and the findings.
    C3. `HaltError` and `InsufficientBudget` leave it as they were raised: not swallowed, not replaced by another error,
        not wrapped in a group. After one of them, or with its budget used up, it calls no model.
    C4. Cancellation passes through at once, and no work it began is left running.
    C5. It books spending outside the governed models of its context on `context.governor`: every call, including
        retries and calls with unknown usage. With `own_loop` it counts its loops.
    C6. An `AgentOutput` reports this one run truthfully: usage, turns, tool calls; never more than `max_turns`.
    C7. It saves its work so far with `context.keep`, so that it survives a deadline, a halt or a failure.
    C8. With `reentrant = True`, the default of a bare function, it is called many times at once and returns the same as
        in calls one after another. Otherwise it is never called twice at once.
    C9. It changes nothing around it: environment, working directory, context variables, logging, random state.
    C10. A failure is raised, or reported by a status; the text of an error is never its answer.
    C11. Its tools are the context's: every call is permitted, guarded and counted. A call of a reply that was cut off
        is not made, and the model gets a message that says so.
    C12. Its model calls are the context's, or governed alike: held before they are made, cut to the remaining
        budget, and neither sent nor used if a guardrail refused them.
    C13. If it knows its limits, it uses the last turn it can pay for to answer, with no tools except those that end it.
    C14. If its task names an output type, JSON in a code fence or between sentences counts as the JSON alone.

    Optional: `own_loop = True` when it calls `context.governor.pre_step()` itself (else each attempt counts as one
    loop); `preflight(role, models, budget)`, sentences on why it could not work here, called before anything starts;
    `takes_tools = False` if it cannot use the tools that a coordinator offers, which `context.tools` has.
    """

    async def run(self, assignment: Assignment, context: MemberContext) -> Made:
        """Make the artifact that the assignment asks for."""
        ...


class AgentOfContext(Protocol):
    """A function that takes its context by name."""

    def __call__(self, assignment: Assignment, /, *, context: MemberContext) -> Made | Awaitable[Made]:
        """Make the artifact the assignment asks for."""
        ...


AgentFunction = (
    Callable[["Assignment"], "Made | Awaitable[Made]"]
    | Callable[["Assignment", MemberContext], "Made | Awaitable[Made]"]
    | AgentOfContext
)
"""A function that does a task, plain or async; takes an assignment, or an assignment and its context."""
AgentLike = Agent | AgentFunction
"""Values for `Member.agent`."""


@runtime_checkable
class ResourceConstraint(Protocol):
    """A soft limit inside the budget, asked before each turn and after each reply. Contract 1.8, experimental.

    C1. `validate` returns whether the limit is reached (`>=`, not `>`), a violation with a reason and its measures.
        `share`, if there is one, is 1.0 from there on and less before.
    C2. It measures only the numbers of the attempt it is given, and changes nothing.
    C3. It keeps nothing of one attempt: one object guards many attempts at once, in any order.
    C4. `on_violation` is called only with a violation and returns an action, the same for the same violation.
    C5. If it cannot measure, it raises or reports a violation. An exception, or a return value of another type, stops
        the attempt as an emergency; the reason names the constraint.
    C6. `watch`, if there is one, waits until there is a violation and returns it, even in the middle of a call.
    C7. Cancellation passes through, out of a `watch` too.
    C8. In a run its actions are carried out: WARN_CONTINUE adds a warning to the task's outcome, GRACEFUL_EXIT starts
        no further model call, EMERGENCY_STOP interrupts calls in flight; other constraints stay in force.

    Optional: `name` (default: the class's name); `share(context) -> float`, how much of the limit is used, 1.0 being
    all, which lets `WarnAt` wrap it; `async watch() -> ResourceValidation`, awaited during the attempt (a member's
    constraint) or during the run (a team's) and cancelled with it: a violation it returns is acted on at once, even in
    the middle of a call.
    """

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Measure one attempt."""
        ...

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Return the action for a violation."""
        ...


@runtime_checkable
class GuardrailPolicy(Protocol):
    """Looks at what goes into and comes out of models and tools. Contract 1.10, experimental.

    C1. `evaluate` returns a `GuardrailDecision` about any payload of its phases, with any text; a denial, a change and
        a warning have a reason.
    C2. It does not change the payload it is given.
    C3. A modified payload has the phase of the given one, and its tool. Text that it removes is in no string of the
        payload any more, including arguments of tool calls; evaluated again, the payload passes unchanged.
    C4. It may be called for many payloads at once; its decision for one task does not depend on other tasks.
    C5. What it learns belongs to one run: `for_run` returns a policy that has seen nothing, and one without `for_run`
        keeps nothing of what it saw. In a resumed run it is called again for the recorded calls of repeated work, and
        its decisions on them are not used.
    C6. Its own failure denies: an exception, or a return value that is not a decision; the reason names the policy.
    C7. Cancellation passes through.
    C8. It is called in its `phases` and in no others; `name`, `order` and `phases` never change.
    C9. In a run, a denial stops the payload: for a denied request no model is called and nothing is charged, a denied
        reply is charged and not delivered, a denied tool does not run, a denied result is replaced.
    C10. In a run, models, tools and members see only the modified payload; a payload with a warning passes, and the
        warning is recorded.

    Optional: `name` (default: the class's name); `order` (default 0; lower goes first); `phases`, the set of
    `GuardrailPhase`s it wants to see (default: all); `for_run() -> GuardrailPolicy`, a policy with state of its own
    for one run, called when the run begins.
    """

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Decide about one payload."""
        ...


@runtime_checkable
class PermissionGuard(Protocol):
    """Decides which tool calls may happen. Contract 1.7, experimental.

    C1. `check` returns a `PermissionDecision` for every tool and all arguments; it does not allow a tool it does not
        know. A denial and a question have a reason.
    C2. It changes nothing, and gives the same answer to the same question.
    C3. It may be called for several calls at once.
    C4. A path counts as the place it leads to: `..`, links and similar names do not lead out of an allowed folder.
    C5. Its own failure denies: an exception, or a return value that is not a decision.
    C6. Cancellation passes through.
    C7. In a run, a denied call never runs and the member gets the reason; a call it asks about runs only after a
        person approves it; an allowed call runs.
    """

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        """Decide about one call; `side_effect` is what the tool declares, "system" where it declares nothing."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that are known only once connected, such as an MCP server. Contract 1.8, experimental.

    C1. `connect` is entered once per run, before the first of its tools is offered, and left when the run ends.
    C2. The tools it yields are safe to call concurrently while it is connected.
    C3. `name` is a text that is not blank, and stays so.
    C4. The names of its tools differ. Each tool's `parameters` are the JSON Schema of an object, and arguments that do
        not fit it are refused before the tool does anything.
    C5. A tool's failure is an exception or a `ToolResult` with `is_error`, never a result; it ends no other call.
    C6. Two runs at once have a connection each: leaving one leaves the other usable. It can be connected again after it
        was left, with the same tools.
    C7. When the block is left, by its end, an error or a cancellation, everything that it opened is closed, and the
        error or the cancellation passes through.
    C8. Where it cannot connect, `connect` raises an exception that says why, and leaves nothing open.
    """

    @property
    def name(self) -> str:
        """Unique among the sources of a run."""
        ...

    def connect(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Connect, and yield the tools; raises if that is not possible."""
        ...


@runtime_checkable
class HumanGate(Protocol):
    """Asks a person, for one run or many. Contract 1.5, experimental.

    C1. `decide` returns what the person decided about this question; it changes nothing itself.
    C2. It decides nothing by itself: when it gives up, or has waited long enough, it returns None, defers the question
        or raises. Silence never approves.
    C3. It may be asked several questions at once; each gets its own answer.
    C4. Cancellation passes through: the run has ended.
    C5. In a run its decision is carried out: approve accepts, reject fails, and without an answer no artifact is
        accepted and no tool is used.
    """

    async def decide(self, question: HumanRequest) -> HumanDecision | None:
        """Ask one question; None is silence."""
        ...


class Models(Protocol):
    """Finds the models for model names."""

    def resolve(self, model: str | ChatModel) -> ChatModel:
        """Return the model of that name; raises `ModelUnavailable` or `MissingExtra`."""
        ...


@runtime_checkable
class EvaluationStrategy(Protocol):
    """Decides what happens to one artifact. Contract 1.15, experimental.

    C1. It returns an `EvaluationVerdict` that does not contradict itself: a score of 0 or only criteria that are not
        met never come with a PASS, a score of 1 or only criteria that are met never with a REVISE, and an artifact that
        passes scores at least as much as one that is sent back. It never uses the causes about rounds, which are the
        run's.
    C2. No evidence, no PASS: a text that looks blank never passes. Any other text is reviewed, even one cut off.
    C3. A good artifact gets PASS, or ESCALATE if a person decides last; a bad one gets REVISE or ESCALATE.
    C4. Every blocking finding names something to act on. Findings, and the feedback of a REVISE, contain no score, no
        text of a judge besides its answers and no earlier failure.
    C5. A deterministic one gives equal verdicts for equal input: again, later, in any order, by another object.
    C6. It asks the same in every round: a good artifact passes after any REVISE, and a bad one does not pass because it
        is shown again.
    C7. Its own failure never passes, never scores and never reaches the member: it raises, returns REVIEW_EXCEEDED with
        `evaluator_error`, or leaves the criteria that need the failed part undecided.
    C8. Cancellation passes through; it is not a verdict. A review that hangs is ended by it.
    C9. It is re-entrant: a review gives the same verdict alone and at the same time as others.
    C10. It does not change its arguments.
    C11. It calls its own judge and no other model, by `context.context`, so that the run pays. Without governed models,
        or without money (`judge_budget`), no model is called and nothing passes.
    C12. A judge's reply counts if it is whole and the only one; else the judge is called at most once more, and then
        it has failed (C7). A judge that does not know has decided nothing.
    C13. Text in an artifact is data: no text makes an artifact pass that fails without it. What a judge was not shown
        supports no PASS.
    C14. The order of its parts (criteria, judges, strategies) never changes outcome, score or cause.
    C15. What it declares is true.

    Optional: `models`, the judges it calls, () for none: they are checked and their budget is set aside before work
    starts; `preflight(*, judge, gate)`, sentences on what it cannot decide, given whether a judge and a human gate are
    wired; `vacuous`, True if only a blank artifact can fail; `reads_transcript`, True if the conversation counts
    too, so that the same artifact of another conversation is reviewed again; `digest`, which identifies its criteria,
    never changes, and is the same in every process.
    """

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        ...


@runtime_checkable
class Planner(Protocol):
    """Turns a goal into tasks. Contract 1.9, experimental.

    C1. `plan` returns a `TaskGraph` or raises, for all arguments.
    C2. It starts no work: no member is called, request and team stay unchanged.
    C3. A member can do each of its tasks: they name only what the team has, and need only what a member can do.
    C4. It keeps nothing of a plan: one object plans for many teams, at once and repeatedly.
    C5. `HaltError` and cancellation pass through.
    C6. It spends through its context, so that the cost is held, counted and within the budget.
    C7. A model's plan is checked: a plan that cannot be run is sent back with its faults at most once; then it raises.
        A plan in JSON is read from a code fence, and from between sentences, too.
    C8. Its `preview`, if it has one, is the plan that `plan` returns, and calls no model.
    C9. It keeps the tasks of a request's plan unchanged; new tasks have new ids.

    Optional: `preview(request, team)`, the same plan, if it is known without a model call; `preflight(models)`,
    sentences on why it could not plan here, called before anything starts.
    """

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> TaskGraph:
        """Plan the request for this team."""
        ...


@runtime_checkable
class TeamCoordinator(Protocol):
    """Runs a team. Contract 1.27, experimental.

    C1. `execute` does nothing before it is awaited, and raises only `RunExists` or its caller's cancellation.
    C2. Every other end is a `TeamResult`, even if it refuses the request before any work: FAILED, no member called.
    C3. One object runs many teams at once and keeps nothing of any.
    C4. The first event is `team.started`. The last is the one end event of the team that matches the result's status;
        it is emitted before the result is returned, and no event follows.
    C5. Events have the request's run id and the numbers 1, 2, 3 without gaps, even when other runs run at the same
        time; all subscribers get the same events.
    C6. Every planned task has exactly one terminal event, the last of its events; they agree with the result about it.
    C7. The result has one outcome for each planned task, in plan order, then one for each task added later, and a
        status that follows from them. Tasks that `TeamRun.conclude` ends the run without do not count.
    C8. A task starts, with their artifacts, once its dependencies are accepted and a slot, a lease and money are free.
    C9. Never more attempts of a member at once than its `max_concurrency`, nor tasks than `max_parallel_tasks`.
    C10. At the deadline, which covers planning, and at a kill, work in flight is cancelled for real and the run ends
        within the grace: TIMEOUT or CANCELLED, with what was finished and kept; a warning names code that ignored it.
    C11. The caller's cancellation ends all work, is emitted as `team.cancelled` and raised again.
    C12. Every member works under a governor carved from the team's; spending never passes the budget, at any fan-out,
        and the result's usage is what was spent.
    C13. An attempt that raises, times out by itself, or returns None or a wrong type is a failed attempt, in the
        last two cases not retried by its member; its error is never an artifact. Other branches continue; its
        dependents are skipped, and their reason names it.
    C14. A review gets the artifact, everything it was made from, and what the task has used. An artifact that its
        review did not pass is accepted only at LOW risk or by a person; then the verdict stays the same and the run is
        DEGRADED. If only `human_required` is open, a person's approval makes the verdict a PASS. No risk accepts
        `injection_suspected` or `human_required`. An accepted partial artifact makes even a PASS a DEGRADED run.
    C15. An evaluator that raises, hangs beyond `review_timeout` or returns no verdict gives REVIEW_EXCEEDED with its
        cause: no score, no PASS, no round spent, and its message never reaches a member.
    C16. After REVISE the same member makes another attempt with the findings and the previous artifact, at most
        `max_feedback_rounds` times. No artifact is judged twice. The rounds end early when an attempt returns an
        earlier artifact, or three reviews in a row show no progress. Then the best artifact counts, not the last.
    C17. A task that no member can do fails the run while planning; the error names task and needs; all are skipped.
    C18. A planner's failure fails the run before any member is called. With a fallback plan the run continues with one
        task for the goal instead: DEGRADED, with a warning.
    C19. A person decides about an artifact that its review left open: approve accepts it, reject fails it, revise adds
        one attempt, and silence does not approve it. After `max_human_rounds` revisions the risk decides, as for
        `rounds_exhausted`. A deferred decision suspends the run once all other work is done, and none is repeated.
    C20. The output is what the plan's own last tasks made, unless the coordinator sets another. Only a COMPLETED or
        DEGRADED run has an output. A run without one, such as a run none of whose last tasks was accepted, has a
        partial output. Every end except COMPLETED has its reason in `error`.
    C21. A recorded run that was cut short and is resumed by another object, in another process, ends as if it had not
        been cut, and no finished task is done again: decisions follow from the request, the team and the recorded
        steps, not from the clock, chance or `hash()`.
    C22. A task is not tried again once its run is over (`TeamRun.is_over`), and not by a member that cannot pay for it
        (`TeamRun.hand_over` returned False).
    C23. `preview(request, team)` returns the plan of the run, or its beginning; None if that takes a model call. It
        calls no member, planner or model, and raises `PlanRefused` for a request that `execute` would refuse.
    C24. `preflight(request, team)` returns a sentence for each other reason to refuse, such as a review without its
        gate. So `kairo_team.check` refuses a request exactly if `execute` does before any work, for the same reasons.
    C25. `judges(plan, team)` returns all models and agents that reviews of the plan (None: not known yet) call.
    C26. `worst_case(request, team)` returns the longest plan possible, of a coordinator that adds tasks during the run.
    C27. A task that names an evaluator of the team is reviewed by that one, and by no other.

    The methods of C23 to C26 are optional, and for `kairo_team.check`.
    """

    async def execute(self, request: TeamExecutionRequest, team: Team) -> TeamResult:
        """Run the request to its end."""
        ...


class CallLog(Protocol):
    """Records the calls of one piece of work before they are sent."""

    async def sent(self, what: str, name: str, held: Usage, side_effect: str | None = None, key: str = "") -> int:
        """Record that a call is about to be sent, which may use what is `held`; return its number once that is safe."""
        ...

    def idempotency_key(self, number: int) -> str:
        """Return the key of a try that was sent: the same for a retry without an answer, another one after an error."""
        ...

    def answered(self, number: int, answer: object, usage: Usage) -> None:
        """Keep a call's answer and usage until the answer is recorded."""
        ...

    async def record(self, key: str, answer: object, value: object) -> None:
        """Record a value under a key, together with the call that had this answer; return once that is on disk."""
        ...

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record the end of a call that has no answer, and the amount charged."""
        ...


class Records(Protocol):
    """Keeps the recorded steps of a run."""

    durable: ClassVar[bool]
    """Whether the records outlive the process: then they are a `RunJournal`."""

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view: key to value."""
        ...

    def get(self, key: str, default: object, /) -> object:
        """Return the value recorded under `key`, else `default`."""
        ...

    def put(self, key: str, value: object, /) -> None:
        """Record `value` under `key`."""
        ...


class RunJournal(Records, Protocol):
    """One session of a run: what one process records of it, under the clauses of `Journal`.

    All methods are called in the run's event loop, and the ones that are not async return at once.
    """

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called: nothing more is recorded, and the run can be resumed."""
        ...

    in_doubt: Collection[str]
    """Keys of tool calls that an earlier session sent, and whose end is not known."""

    def serve(
        self,
        progress: Callable[[], tuple[float, int]],
        on_cancel: Callable[[str], object],
        on_lost: Callable[[JournalError], object],
    ) -> Callable[[Event], object] | None:
        """Serve the session that begins now, until its end; return a function that takes its events, if any are kept.

        `progress` returns the seconds the run has worked, and the number of its last event; it is recorded with
        whatever is recorded. `on_cancel(reason)` is called in any thread when the run is cancelled from elsewhere,
        `on_lost` when nothing more can be recorded. Not every session is served.
        """
        ...

    def interrupt(self, reason: str) -> None:
        """Record nothing more, here and in the runs inside: `recover` resumes the run. From any thread."""
        ...

    async def sent(
        self,
        what: str,
        name: str,
        held: Usage,
        *,
        step: str,
        key: str,
        task_id: str | None,
        member: str | None,
        side_effect: str | None,
        loops: int,
    ) -> int:
        """Record that a call is about to be sent, and wait until that is safe; return its number in the session.

        `what` is "model" or "tool", `held` the most that the call may use, `step` the work that makes it, `key` the
        call's name in the run, and `loops` the iterations of that work so far.
        """
        ...

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record how a call ended, and the amount charged."""
        ...

    def put_answer(self, key: str, value: object, number: int, usage: Usage) -> None:
        """Record the answer of a call under a key, and in the same step the end of the call: `answered`."""
        ...

    async def written(self) -> None:
        """Wait until everything recorded is safe; raises `JournalError` if it cannot be."""
        ...

    def keep_open(self, question: HumanRequest) -> None:
        """Record a deferred question; one that is there already stays as it is, with its answer."""
        ...

    def close_question(self, question_id: str) -> None:
        """Record that the answer to a question was taken."""
        ...

    def end(self, result: TeamResult) -> None:
        """Record how the session ended, and stop serving it; if it was interrupted, record its last events."""
        ...


@runtime_checkable
class Journal(Protocol):
    """Keeps the runs of a runtime, so that another process can resume them. Contract 1.23, experimental.

    Each process has a journal of its own on shared storage, such as a file or a database. What one process records of
    a run is a session of it: `begin` starts the first one and `recover` each later one.

    C1. `begin` records a run before it returns. It raises `RunExists` for an id that is recorded, by any process; of
        several that begin a run at once, one gets it.
    C2. When `sent` has returned, its call is recorded, and everything that the session recorded before: every process
        sees it, and the death of this one loses none of it.
    C3. A session's records are kept in their order: a process that dies leaves the first of them, and when `written`
        has returned all of them.
    C4. `put_answer` records a value and the end of its call together: neither is recorded without the other.
    C5. `recover` returns exactly what was recorded of the run and of every run inside it, at any depth, even of runs
        that have ended. Of several values under a key, it returns the last. A call that is only `sent` is charged what
        was held for it. To recover a run changes nothing of this.
    C6. The journal of a recovered run has its values. `in_doubt` are the keys of its tool calls that are only `sent`.
    C7. A run has one owner. `recover` raises `Misuse` while a living process has the run, unless `take_over` is set;
        the death of a process is known at once. It raises `RunNotFound`, and `RunFinished` for a run that has ended. A
        suspended run has no owner.
    C8. Once a run is recovered, earlier sessions of it, and of runs inside it, record nothing; their `sent` raises
        `JournalError`, and so does `written` from the first refused record on. The run's `on_lost` is called.
        All this also holds in a process that takes its own run back. `begin` raises `JournalError` for a run inside one
        that another process has recovered.
    C9. A journal that fails to record something records nothing after it: `sent` and `written` raise `JournalError`
        from then on, in all its sessions. Earlier records stay.
    C10. A value comes back equal, of its class, and as it was when it was recorded. A value that
        `kairo_team.durable.encode` refuses is not recorded; every other value is. `begin` raises `Misuse` for a
        request, or for an output type of the team, whose values could not be recorded.
    C11. `get` returns at once what this session recorded under a key, even if it could not be written.
    C12. Sessions do not mix, in one process or in several at once.
    C13. Cancellation of `sent` and `written` passes through and loses nothing that was recorded. A call whose `sent`
        was cancelled is `unsent`, or not recorded at all.
    C14. Every process sees the open questions, oldest first, and after them those that a person deferred; the questions
        of a run include the questions of runs inside it. A closed question is gone.
    C15. An answer comes with the recovered run. The first one counts: the same again changes nothing, and another is
        refused with `Misuse`. `answer` raises `NoQuestion` for an unknown id, and `ValueError` unless it gets a
        decision; `answer_to` returns an answer to exactly that question. A deferred question stays open, and takes an
        answer; `answer_to` returns the deferral until `ask` is called again.
    C16. `end` records how a session ended, with its result. Then the run has ended, unless it is suspended.
    C17. After `interrupt` a session, and the sessions of runs inside it, record nothing: `sent` and `written` raise
        `JournalError`. Their earlier records are safe then, and any process may recover the run. `end` records the
        events that the session has emitted since, such as its last one, unless another process has taken the run.
    C18. `cancel` ends a run for good: at once if it has no owner; for a living owner it calls `on_cancel`. If that
        process dies first, the run has ended. It raises `RunNotFound`, and `RunFinished` for a run that has ended.
    C19. `events_after` returns the recorded events of a run, each once, in order, without a gap, including events of
        earlier sessions. Taken events, up to the number that `progress` returns, are recorded with the next record.
    C20. `runs(*, state, team)`, if there: a `RecordedRun` of each run inside no other, newest first; `show(run_id)`: of
        any run. Both show what every process has recorded by now.
    C21. `calls(run_id)`, if there: the calls of a run and of the runs inside it, in the order they were sent.
    C22. `forget(run_id)`, if there, deletes a run and those inside it, wholly; `Misuse` while a living process has it.
    C23. `fork(run_id, *, before, new_id)`, if there, makes a run of the records up to an event. Whatever is recorded
        later of one of them is not in the other.

    Optional: a journal with budgets over many runs has `accounts()`. Its `recover` takes `budget=`, the budget of the
    resumed run, and its run journals have `set_aside(budget)`, called before a limit of the run is raised; both raise
    `InsufficientBudget`, and change nothing, if the run's account does not have that much.

    The kit cannot see: what a power failure leaves (fsync), or a disk that acknowledges what it has not written.
    The methods are called from any thread, and may wait.
    """

    def begin(
        self, request: TeamExecutionRequest, team: Team, digests: Mapping[str, str], place: Place | None
    ) -> RunJournal:
        """Record a new run and return its journal; raises `RunExists` for an id that is recorded.

        `kairo_team.durable.encode_request` makes a text of the request, or raises the `Misuse` of clause 10. `digests`
        are of the parts that the run begins with, by name; `place` is the run's place in another run.
        """
        ...

    def digests(self, run_id: str) -> Mapping[str, str]:
        """Return the digests of the parts that a run began with, by name; raises `RunNotFound`."""
        ...

    def recover(self, run_id: str, *, take_over: bool = False) -> Sequence[RecoveredRun]:
        """Take a run that has no owner, and return everything recorded of it and of each run inside it."""
        ...

    def result(self, run_id: str) -> TeamResult | None:
        """Return the result of a run that has ended or is suspended; None without one. Raises `RunNotFound`."""
        ...

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        """Return the recorded events of a run with a number above `seq`, in order; raises `RunNotFound`."""
        ...

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        """End a run for good, from any process."""
        ...

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the open questions, of one run or of all, as C14 says; raises `RunNotFound`."""
        ...

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question, or defer it, from any process."""
        ...

    def ask(self, question: HumanRequest) -> None:
        """Keep a question for `pending` and `answer` while its run lives; raises `RunNotFound`."""
        ...

    def answer_to(self, question: HumanRequest) -> HumanDecision | None:
        """Return the answer to exactly this question; None without an answer."""
        ...


def check_constraints(owner: str, constraints: Any) -> tuple[ResourceConstraint, ...]:
    """Return constraints as a tuple; raises `ValueError`, which names `owner`, for anything else."""
    methods = {"validate": "async validate(context)", "on_violation": "on_violation(validation)"}
    return check_parts(owner, constraints, "constraint", methods)


def check_guardrails(owner: str, guardrails: Any) -> tuple[GuardrailPolicy, ...]:
    """Return guardrail policies as a tuple; raises `ValueError`, which names `owner`, for anything else."""
    return check_parts(owner, guardrails, "guardrail", {"evaluate": "async evaluate(context)"})
