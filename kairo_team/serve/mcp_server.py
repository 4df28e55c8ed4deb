"""The team as a tool of an MCP server, by the official SDK, over stdio and over streamable HTTP."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anyio
from mcp import MCPError, types
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from kairo_team._util.reply_json import object_schema
from kairo_team._util.version import version_of_library
from kairo_team.errors import KairoError, Misuse
from kairo_team.results import TeamStatus
from kairo_team.serve.asked import NOT_OPEN, OtherRequest, TooMany
from kairo_team.serve.ends import STOPPED, described, why
from kairo_team.serve.guard import CALLER, MOST_BYTES
from kairo_team.serve.people import ANSWER, decision_of, question_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

    from kairo_team.files import File
    from kairo_team.human import HumanRequest
    from kairo_team.serve.asked import AskedRun, Served

    Context = ServerRequestContext[Any, Any]
    Answer = types.CallToolResult | types.InputRequiredResult

KEY: Final = "kairo-team/idempotency-key"
"""The entry of a call's `_meta` that names a run, as the header `Idempotency-Key` does over HTTP."""
STDIO: Final = "stdio"
"""The one caller of a server over stdio."""
_MOST_SESSIONS: Final = 1_000
"""Sessions over HTTP at once."""


def tool_name(team: str) -> str:
    """Return the name of a team's tool: at most 64 characters that every client takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", team).strip("_")[:64] or "team"


def make_server(served: Served, caller_of: Callable[[Context], str], description: str) -> Server[Any]:
    """Return the server; `caller_of` names who makes a request."""
    team = served.rules.team.name
    what = "The goal of the team, with everything it needs."
    goal_schema = {"type": "string", "minLength": 1, "description": what}
    tool = types.Tool(
        name=tool_name(team),
        title=team,
        description=description,
        input_schema=object_schema({"goal": goal_schema}),
        annotations=types.ToolAnnotations(open_world_hint=True),
    )

    async def listed(_context: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def called(context: Context, params: types.CallToolRequestParams) -> Answer:
        if params.name != tool.name:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r} here, only {tool.name!r}")
        arguments = params.arguments or {}
        goal = arguments.get("goal")
        if not isinstance(goal, str) or not goal.strip() or len(arguments) > 1:
            raise MCPError(types.INVALID_PARAMS, f"{tool.name} takes one argument: goal, a text that is not blank")
        caller = served.caller(caller_of(context))
        if params.request_state is not None:
            run = caller.find(params.request_state)
            if run is None:
                return _failed("the question is no longer open: its run has ended, or was left too long")
            _take_answers(run, params.input_responses or {})
        else:
            try:
                named = dict(context.meta or {}).get(KEY)
                key = named if isinstance(named, str) and named else None
                run = await caller.ask(goal, key=key, answers=_can_ask(context))
            except TooMany:
                return _failed("too many of your runs are under way: wait until one of them ends")
            except OtherRequest:
                return _failed("the idempotency key was used before, for another goal")
            except (KairoError, ValueError) as error:
                return _failed(str(error))
        return await _followed(context, run)

    return Server(tool.name, version=version_of_library(), on_list_tools=listed, on_call_tool=called)


async def serve_stdio(served: Served, description: str) -> None:
    """Serve one client over stdin and stdout, until it closes them."""
    server = make_server(served, lambda _context: STDIO, description)
    async with served.open(), stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


class McpOverHttp:
    """The server as an ASGI app behind the guard: a session belongs to the key that began it."""

    def __init__(self, served: Served, description: str) -> None:
        self._server = make_server(served, _caller_of, description)
        self._manager: StreamableHTTPSessionManager | None = None  # made in `run`: the SDK's can run only once

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Take requests while the block runs."""
        # The guard has checked names, origins and the body.
        manager = StreamableHTTPSessionManager(
            self._server, max_request_body_size=MOST_BYTES, max_sessions=_MOST_SESSIONS
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; `Misuse` outside `run`."""
        if self._manager is None:
            raise Misuse(NOT_OPEN)
        name = scope[CALLER]
        # The SDK binds a session to this user.
        scope["user"] = AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))
        await self._manager.handle_request(scope, receive, send)


def _caller_of(context: Context) -> str:
    request = context.request
    assert request is not None, "every message came in a request"
    name: str = request.scope[CALLER]
    return name


# ---------------------------------------------------------------- one call


def _is_modern(context: Context) -> bool:
    """Return whether a server's question is an answer to the call, which the client then repeats."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _can_ask(context: Context) -> bool:
    offered = context.session.client_capabilities
    if offered is None or offered.elicitation is None:
        return False
    # A client of the first version declares neither, and means forms.
    forms = offered.elicitation.form is not None or offered.elicitation.url is None
    return forms and (_is_modern(context) or context.session.can_send_request)


async def _followed(context: Context, run: AskedRun) -> Answer:
    """Report what happens in the run until it ends, or asks the client."""
    told = 0
    with run.listening():
        while True:
            while told < len(run.lines):
                told += 1
                await context.session.report_progress(told, message=run.lines[told - 1])
            if run.ended:
                return _answer(run)
            if (question := run.question) is None:
                await run.news()
            elif _is_modern(context):
                run.expect_back()  # before `listening` ends, which would cancel the run
                asked = types.ElicitRequest(params=_form(question))
                return types.InputRequiredResult(input_requests={question.id: asked}, request_state=run.token)
            else:
                await _elicited(context, run, question)


async def _elicited(context: Context, run: AskedRun, question: HumanRequest) -> None:
    """Ask the client, as long as the question is open."""
    form = _form(question)

    async def ask() -> None:
        try:
            reply = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            _take_answer(run, question.id, reply)
        except (MCPError, ValidationError):
            run.answer(question.id, None)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        # The question may be answered elsewhere or time out; then the client is no longer asked.
        while run.question is question and not run.ended:
            await run.news()
        tasks.cancel_scope.cancel()


def _form(question: HumanRequest) -> types.ElicitRequestFormParams:
    return types.ElicitRequestFormParams(message=question_text(question), requested_schema=dict(ANSWER))


def _take_answers(run: AskedRun, replies: types.InputResponses) -> None:
    for question_id, reply in replies.items():
        _take_answer(run, question_id, reply)


def _take_answer(run: AskedRun, question_id: str, reply: Any) -> None:
    """Answer a question; a revision without words leaves it open."""
    if not isinstance(reply, types.ElicitResult) or reply.action == "cancel":
        run.answer(question_id, None)
        return
    given = dict(reply.content or {}) if reply.action == "accept" else {"decision": "reject"}
    decision = decision_of(given)
    if decision is not None or given.get("decision") != "revise":  # else the client is asked again
        run.answer(question_id, decision)


# ---------------------------------------------------------------- results


def _failed(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=sentence)], is_error=True)


def _answer(run: AskedRun) -> types.CallToolResult:
    if run.result is None:
        return _failed(str(run.error) if run.error is not None else STOPPED)
    result = run.result
    artifact = result.artifact or result.partial_artifact
    texts = [] if artifact is None else [artifact.text]
    if result.status is not TeamStatus.COMPLETED:
        texts.append(why(result))
    blocks: list[types.ContentBlock] = [types.TextContent(text=text) for text in texts]
    files = () if artifact is None else artifact.files
    blocks += [block for file in files if (block := _block(result.run_id, file)) is not None]
    return types.CallToolResult(content=blocks, structured_content=described(result), is_error=result.artifact is None)


def _block(run_id: str, file: File) -> types.ContentBlock | None:
    if file.url is not None:
        return types.ResourceLink(name=file.name, uri=file.url, mime_type=file.media_type)
    if file.data is None:  # only its description was kept
        return None
    data, kind = base64.b64encode(file.data).decode(), file.media_type
    if kind.startswith("image/"):
        return types.ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return types.AudioContent(data=data, mime_type=kind)
    uri = f"kairo://{quote(run_id)}/{quote(file.name)}"
    return types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind))
