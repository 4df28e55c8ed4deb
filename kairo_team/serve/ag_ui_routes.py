"""AG-UI: a run as the events that frontends show, by the types of `ag-ui-protocol`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ag_ui import core
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route

from kairo_team import events
from kairo_team.files import File
from kairo_team.messages import Message
from kairo_team.models.address.parts import Refused, an_object, event, file_from_base64, file_from_url, parsed
from kairo_team.results import TeamStatus
from kairo_team.serve.ends import described, reply_of
from kairo_team.serve.people import ANSWER, decision_of, question_text
from kairo_team.serve.posts import EventStream, Post, begun, caller_of, goal_of, key_of
from kairo_team.views.progress import RowState

if TYPE_CHECKING:
    from starlette.types import Send

    from kairo_team.human import HumanRequest
    from kairo_team.results import TeamResult
    from kairo_team.serve.asked import AskedRun, Caller, Served
    from kairo_team.serve.posts import Reply
    from kairo_team.views.progress import TaskRow

PATH: Final = "/ag-ui"
OURS: Final = "kairo"
"""The entry of the state with the run's tasks; the client's own entries stay."""
_AT_WORK: Final = (RowState.RUNNING, RowState.REVIEWING)


def ag_ui_routes(served: Served) -> list[Route]:
    """Return the route that takes runs."""
    return [Route(PATH, Post(AgUi(served).begin))]


class AgUi:
    """The requests of frontends: each is a run, or the answer to the question of one. A client that leaves ends it."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._team = served.rules.team.name

    async def begin(self, request: Request, body: bytes) -> Reply:
        """Begin a run, or continue one; raises `Refused`."""
        try:
            given = core.RunAgentInput.model_validate(parsed(body))
        except ValidationError as error:
            first = error.errors()[0]  # one mistake: the client's library writes all fields
            place = ".".join(map(str, first["loc"]))
            raise Refused(f"this is not a RunAgentInput: {place}: {first['msg']}") from None
        caller = caller_of(self._served, request)
        if given.resume:  # a run asks one question at a time
            run = await self._answered(caller, given.resume[0])
        else:
            run = await self._request_of(request, caller, given)

        async def reply(send: Send) -> None:
            with run.listening():
                await Shown(given, run).send(EventStream(send, {"x-kairo-run": run.request.run_id}), self._team)

        return reply

    async def _request_of(self, request: Request, caller: Caller, given: core.RunAgentInput) -> AskedRun:
        messages = [one for message in given.messages if (one := _message(message)) is not None]
        if not messages:
            raise Refused("the run has no message: the last one, the user's, is the goal of the team's run")
        goal, files, context = goal_of(messages)
        context |= {one.description: one.value for one in given.context or ()}
        return await begun(caller.ask(goal, files=files, context=context, key=key_of(request), answers=True))

    async def _answered(self, caller: Caller, entry: core.ResumeEntry) -> AskedRun:
        """Answer the question of an interrupted run; the answer to any other is refused, and begins nothing."""
        run_id, _, question_id = entry.interrupt_id.partition(" ")
        run = await begun(_found(caller, run_id))
        if run.question is None or run.question.id != question_id:
            raise Refused(_CLOSED, 409, "no_open_question")
        if entry.status == "cancelled":
            run.answer(question_id, None)
            return run
        payload: Any = entry.payload
        decision = decision_of(an_object(payload, "payload") if isinstance(payload, dict) else {"decision": payload})
        if decision is None:
            raise Refused("an answer is approve, reject, or revise with feedback: the interrupt has its schema")
        return await begun(caller.answer(run, decision))


_CLOSED: Final = "the question is no longer open: its run has ended, or was left too long"


async def _found(caller: Caller, run_id: str) -> AskedRun:
    run = await caller.find_run(run_id)
    if run is None:
        raise Refused(_CLOSED, 409, "no_open_question")
    return run


# ---------------------------------------------------------------- messages of a frontend


def _message(given: core.Message) -> Message | None:
    """Return a message of the conversation; None for one outside it, such as a shown thought."""
    match given:
        case core.SystemMessage() | core.DeveloperMessage():
            return Message.system(given.content)
        case core.AssistantMessage():
            return Message.assistant(given.content) if given.content else None
        case core.UserMessage(content=str() as text):
            return Message.user(text)
        case core.UserMessage(content=list() as parts):
            texts = [part.text for part in parts if isinstance(part, core.TextPart)]
            files = [_file(part.source) for part in parts if not isinstance(part, core.TextPart)]
            return Message.user("\n\n".join(texts), files)
        case _:
            return None


def _file(source: core.DataSource | core.UrlSource | core.FileSource) -> File:
    if isinstance(source, core.DataSource):
        return file_from_base64(source.value, source.mime_type)
    if isinstance(source, core.FileSource):
        raise Refused("a file at a provider cannot be given to a team: send its data, or a URL")
    return file_from_url(source.value, source.mime_type)


# ---------------------------------------------------------------- events for a frontend


class Shown:
    """The events of a run for one request: tasks as steps and as state, tool calls, and the texts of members.

    A member's text is not accepted yet, and so it is reasoning; the output of the run is the one message.
    """

    def __init__(self, given: core.RunAgentInput, run: AskedRun) -> None:
        self._given = given
        self._run = run
        self._written: list[str] = []
        self._steps: dict[str, None] = {}
        self._calls: dict[str, None] = {}
        self._thoughts: dict[tuple[str | None, str | None], str] = {}
        self._count = 0
        self._shown: dict[str, dict[str, Any]] = {}
        self._begin()  # before the first await: the snapshot and the events after it leave no gap
        run.listeners.append(self._take)

    async def send(self, stream: EventStream, team: str) -> None:
        """Send the events as they come, until the run ends or asks a question."""
        run = self._run
        try:
            await stream.begin()
            while not run.ended and run.question is None:
                if self._written:
                    await stream.give(self._pieces())
                else:
                    await stream.news(run)
        finally:
            run.listeners.remove(self._take)
        self._close()
        if run.question is not None:
            run.expect_back()  # before this request ends: its end would cancel the run
            self._ask(run.question)
        else:
            self._end(team)
        await stream.give(self._pieces(), more=False)

    def _pieces(self) -> str:
        pieces = "".join(self._written)
        self._written.clear()
        return pieces

    def _write(self, one: core.BaseEvent) -> None:
        self._written.append(event(one.model_dump(mode="json", by_alias=True)))

    def _new_id(self, what: str) -> str:
        self._count += 1
        return f"{self._given.run_id}-{what}-{self._count}"

    # ------------------------------------------------------------------ begin and end

    def _begin(self) -> None:
        rows = self._run.progress.rows
        self._shown = {row.id: _shown(row) for row in rows.values()}
        given: Any = self._given.state
        state = an_object(given, "state") if isinstance(given, dict) else {}
        self._write(
            core.RunStartedEvent(
                thread_id=self._given.thread_id, run_id=self._given.run_id, protocol_version=core.PROTOCOL_VERSION
            )
        )
        self._write(core.StateSnapshotEvent(snapshot={**state, OURS: {"tasks": dict(self._shown)}}))
        for row in rows.values():
            if row.state in _AT_WORK:
                self._open_step(row.id)

    def _close(self) -> None:
        """Close what is open: nothing may be when a run ends."""
        for key in list(self._thoughts):
            self._close_thought(key)
        for call in list(self._calls):
            self._close_call(call, "no end is known")
        for step in list(self._steps):
            self._close_step(step)

    def _ask(self, question: HumanRequest) -> None:
        interrupt = core.Interrupt(
            id=f"{self._run.request.run_id} {question.id}",
            reason=f"{OURS}:{question.kind}",
            message=question_text(question),
            response_schema=dict(ANSWER),
            expires_at=(datetime.now(UTC) + timedelta(seconds=self._run.question_seconds)).isoformat(),
        )
        self._finish(core.RunFinishedInterruptOutcome(interrupts=[interrupt]))

    def _end(self, team: str) -> None:
        run, result = self._run, self._run.result
        if result is not None and result.status is TeamStatus.CANCELLED and result.artifact is None:
            self._finish(core.RunFinishedCancelledOutcome(), result)
            return
        try:
            reply = reply_of(run, team)
        except Refused as refused:
            about = None if result is None else {OURS: described(result)}
            usage = _usage(result)
            self._write(core.RunErrorEvent(message=refused.sentence, code=refused.kind, usage=usage, metadata=about))
            return
        message = self._new_id("output")
        self._write(core.TextMessageStartEvent(message_id=message, role="assistant"))
        self._write(core.TextMessageContentEvent(message_id=message, delta=reply.text))
        self._write(core.TextMessageEndEvent(message_id=message))
        self._finish(core.RunFinishedSuccessOutcome(), result)

    def _finish(self, outcome: Any, result: TeamResult | None = None) -> None:
        self._write(
            core.RunFinishedEvent(
                thread_id=self._given.thread_id,
                run_id=self._given.run_id,
                result=None if result is None else _result(result),
                outcome=outcome,
                usage=_usage(result),
            )
        )

    # ------------------------------------------------------------------ the events of the run

    def _take(self, happened: events.Event) -> None:
        """Show an event of the run; events of runs inside it are left out."""
        if happened.run_id == self._run.request.run_id:
            self._show_tasks(happened)
            self._tell(happened)

    def _tell(self, happened: events.Event) -> None:
        match happened:
            case events.TaskAssigned():
                self._open_step(happened.task_id)
            case events.TaskEnded():
                self._close_step(happened.task_id)
            case events.ModelDelta() | events.ModelThinking():
                self._think((happened.task_id, happened.member), happened.text)
            case events.ModelCalled():
                self._close_thought((happened.task_id, happened.member))
            case events.ToolStarted():
                self._calls[happened.call_id] = None
                self._write(core.ToolCallStartEvent(tool_call_id=happened.call_id, tool_call_name=happened.tool))
                # At once: this event ends the arguments, which are not shown, and not the call.
                self._write(core.ToolCallEndEvent(tool_call_id=happened.call_id))
            case events.ToolCalled():
                self._close_call(
                    happened.call_id, f"{happened.outcome}: {happened.reason}" if happened.reason else happened.outcome
                )
            case _:
                pass

    def _show_tasks(self, happened: events.Event) -> None:
        rows = self._run.progress.rows
        if isinstance(happened, events.PlanReady | events.PlanGrew):
            for row in rows.values():
                self._show(row)
        elif isinstance(happened, events.WorkEvent) and happened.task_id in rows:
            self._show(rows[happened.task_id])

    def _show(self, row: TaskRow) -> None:
        """Show the state of a task, if it is new."""
        state = _shown(row)
        if self._shown.get(row.id) != state:
            self._shown[row.id] = state
            # `add` also replaces, and the task may be new.
            patch: list[Any] = [{"op": "add", "path": f"/{OURS}/tasks/{row.id}", "value": state}]
            self._write(core.StateDeltaEvent(delta=patch))

    def _open_step(self, task_id: str) -> None:
        if task_id not in self._steps:
            self._steps[task_id] = None
            self._write(core.StepStartedEvent(step_name=task_id))

    def _close_step(self, task_id: str) -> None:
        if task_id in self._steps:
            del self._steps[task_id]
            self._write(core.StepFinishedEvent(step_name=task_id))

    def _close_call(self, call_id: str, outcome: str) -> None:
        if call_id in self._calls:  # the call may have begun before this request
            del self._calls[call_id]
            message = self._new_id("tool")
            self._write(core.ToolCallResultEvent(message_id=message, tool_call_id=call_id, content=outcome))

    def _think(self, key: tuple[str | None, str | None], text: str) -> None:
        if key not in self._thoughts:
            self._thoughts[key] = thought = self._new_id("work")
            self._write(core.ReasoningStartEvent(message_id=thought))
            self._write(core.ReasoningMessageStartEvent(message_id=thought, role="reasoning"))
            text = f"{key[1]}: {text}" if key[1] else text
        self._write(core.ReasoningMessageContentEvent(message_id=self._thoughts[key], delta=text))

    def _close_thought(self, key: tuple[str | None, str | None]) -> None:
        if (thought := self._thoughts.pop(key, None)) is not None:
            self._write(core.ReasoningMessageEndEvent(message_id=thought))
            self._write(core.ReasoningEndEvent(message_id=thought))


def _shown(row: TaskRow) -> dict[str, Any]:
    return {"state": row.state.value, "member": row.member, "attempt": row.attempt}


def _result(result: TeamResult) -> dict[str, Any]:
    files = () if result.artifact is None else result.artifact.files
    return described(result) | ({"files": [_describe_file(file) for file in files]} if files else {})


def _describe_file(file: File) -> dict[str, Any]:
    about = {"name": file.name, "mimeType": file.media_type}
    if file.url is not None:
        return {**about, "url": file.url}
    return about if file.data is None else {**about, "data": base64.b64encode(file.data).decode()}


def _usage(result: TeamResult | None) -> list[core.TokenUsage] | None:
    """Return the usage of each model; a run that was interrupted reports all of it at its end."""
    if result is None or not result.usage_by_model:
        return None
    return [
        core.TokenUsage(
            model=model,
            input_tokens=used.usage.prompt_tokens,
            output_tokens=used.usage.completion_tokens,
            total_tokens=used.usage.tokens,
            reasoning_tokens=used.reasoning_tokens or None,
            cached_input_tokens=used.cached_tokens or None,
        )
        for model, used in result.usage_by_model.items()
    ]
