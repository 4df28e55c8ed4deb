"""The base of the wrappers for other libraries' agents."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from anyio.lowlevel import current_token

from kairo_team import artifacts
from kairo_team.artifacts import Artifact
from kairo_team.budget import Usage
from kairo_team.engine.live.task_pool import run_in_new_loop
from kairo_team.engine.run.lone_agent import run_alone
from kairo_team.errors import KairoError
from kairo_team.results import AgentOutput, AgentStatus

if TYPE_CHECKING:
    from types import TracebackType

    from kairo_team.budget import Budget
    from kairo_team.contracts import ChatModel, MemberContext, Models
    from kairo_team.files import File
    from kairo_team.messages import ModelRequest, ModelResponse
    from kairo_team.tasks import Assignment
    from kairo_team.team import Role
    from kairo_team.tools.result import ToolResult

Make = Callable[["Assignment", "MemberContext"], Any]
"""Makes something for one run; it may be async."""


class WrappedAgent(ABC):
    """A wrapper for another library's agent, with the methods that a team, or a caller without a team, needs."""

    own_loop = True
    library: ClassVar[str]
    """The name of the library in messages."""

    def __init__(self, prompt: Make | None) -> None:
        check_function(f"{type(self).__name__}.prompt", prompt)
        self._prompt = prompt

    def preflight(self, role: Role, models: Models, budget: Budget) -> list[str]:
        """Return why the agent could not work: its model is not available, or the budget allows no turn."""
        problem = self._model_problem()
        if problem is not None:
            return [problem]
        needs = {"loop": budget.loops, "token": budget.tokens}
        return [f"it needs at least 1 {what}, the budget allows 0" for what, limit in needs.items() if limit == 0]

    async def run(
        self, assignment: Assignment | str, context: MemberContext | None = None, **alone: Any
    ) -> AgentOutput:
        """Do a task: in a team with the team's `context`, else alone, as `MiniAgent.run` does.

        In a team `HaltError`, `InsufficientBudget`, `ConstraintExit` and `GuardrailDenied` pass through the library
        unchanged, and the text so far is kept.
        """
        if context is None:
            return await run_alone(self, assignment, **alone)
        if isinstance(assignment, str):
            raise TypeError(f"with a context the agent takes an Assignment, not the string {assignment!r:.200}")
        if "asyncio" not in current_token().backend_class.__module__:
            raise RuntimeError(
                f"{self.library} runs its agents on asyncio alone: run the team there, not on another event loop"
            )
        try:
            output = await self._attempt(assignment, context)
        except KairoError:
            raise
        except Exception:
            await context.put_off()  # it may be what the library made of a call that was put off
            raise
        await context.put_off()
        return output

    def run_sync(self, task: Assignment | str, **alone: Any) -> AgentOutput:
        """Do a task alone, as `run` does, from code without an event loop; raises `Misuse` inside one."""
        return run_in_new_loop(partial(run_alone, self, task, **alone), "await agent.run(...)")

    @abstractmethod
    async def _attempt(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        """Do the task of a team."""
        raise NotImplementedError

    def _model_problem(self) -> str | None:
        """Return why the agent's model is not available; None if it is, or if that is unknown."""
        return None

    async def _ask(self, assignment: Assignment, context: MemberContext) -> Any:
        """Return the agent's input: the text of `prompt`, or the rendered task."""
        if self._prompt is not None:
            return await made(self._prompt, assignment, context)
        return context.render("task", assignment=assignment, role=context.role)

    def _files(self, assignment: Assignment) -> Sequence[File]:
        """Return the files to add to the input; none if a `prompt` makes the whole input."""
        return () if self._prompt is not None else assignment.all_files


class GovernedCalls:
    """The calls of one attempt of another library's agent: governed, and counted."""

    def __init__(self, context: MemberContext) -> None:
        self.context = context
        self.turns = 0
        """Answered model calls, nested runs included."""
        self.usage = Usage()
        self.tool_calls: int = 0
        """Tool calls that were executed, whatever their outcome."""
        self.ending = Ending()

    async def call(self, model: ChatModel, request: ModelRequest) -> ModelResponse:
        """Count a loop, call the model on the governed path, and book the reply."""
        await self.context.put_off()
        self.context.governor.pre_step()
        response = await self.context.model(model).complete(request)
        self.turns += 1
        self.usage += response.usage or Usage()
        return response

    async def use_offered(self, name: str, arguments: Mapping[str, Any] | str, call_id: str | None) -> ToolResult:
        """Call a tool of the coordinator; a tool that ends the turn raises, which ends the library's run."""
        with self.ending:
            result = await self.context.tool(name).call_of_reply(arguments, call_id=call_id)
        if result.refused_by is None:
            self.tool_calls += 1
        return result


class Ending:
    """Keeps the first governing error of a run: no call begins after it, even if the library converts it."""

    def __init__(self) -> None:
        self.error: KairoError | None = None

    def note(self, error: KairoError) -> None:
        """Keep an error, unless there is an earlier one."""
        self.error = self.error or error

    def check(self) -> None:
        """Raise the error again, if there is one."""
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if isinstance(error, KairoError):
            self.note(error)


def check_function(name: str, given: Any) -> None:
    """Raise `ValueError` unless `given` is None or callable."""
    if given is not None and not callable(given):
        raise ValueError(f"{name} is a function of assignment and context, not {given!r:.200}")


async def made(function: Make, assignment: Assignment, context: MemberContext) -> Any:
    """Return the value that a function, which may be async, makes for one run."""
    value = function(assignment, context)
    return await value if inspect.isawaitable(value) else value


async def shared_or_made(given: Any, assignment: Assignment, context: MemberContext) -> Any:
    """Return a value unchanged, or the value that a function of assignment and context returns for this run."""
    return await made(given, assignment, context) if _is_function(given) else given


def _is_function(given: object) -> bool:
    # Not `callable`: a value that tools receive may be an object that can be called.
    return inspect.isroutine(given) or isinstance(given, partial)


def end_of(last: ModelResponse | None) -> tuple[AgentStatus, str | None]:
    """Return the status of an agent with this last reply, and why its artifact is partial; None for a complete one."""
    if last is None or last.finish_reason != "content_filter":
        return AgentStatus.COMPLETED, None if last is None else last.cut_by
    return AgentStatus.BLOCKED, last.cut_by


def artifact_of(output: Any, *, partial: bool = False) -> Artifact:
    """Return an answer as an artifact; a structured answer is JSON data, and its JSON the text."""
    if isinstance(output, str):
        return Artifact(output, partial=partial)
    return artifacts.artifact_of(output, partial=partial, fallback=str)
