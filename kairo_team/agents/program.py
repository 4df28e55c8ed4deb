"""`Program`: a command-line agent as a member."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from kairo_team._util.child_processes import supervised
from kairo_team._util.frozen import known_arguments
from kairo_team.agents.wrapped import check_function, made
from kairo_team.errors import KairoError

if TYPE_CHECKING:
    from kairo_team.addresses import ModelAddress
    from kairo_team.agents.wrapped import Make
    from kairo_team.budget import Budget
    from kairo_team.contracts import ChatModel, MemberContext, Models, ToolSource
    from kairo_team.tasks import Assignment
    from kairo_team.team import Role
    from kairo_team.tools.tool import Tool

TASK: Final = "{task}"
"""The word of a command in whose place the task is put."""
MCP: Final = "{mcp}"
"""The word of a command in whose place the path of the configuration for the tools is put."""
_MOST_OUTPUT: Final = 10_000_000
"""Most bytes that a program may print as its artifact."""
_MOST_ERRORS: Final = 2_000
"""Bytes kept of the end of what it prints on its standard error."""
_SECRETS: Final = ("_API_KEY", "_AUTH_TOKEN", "_ACCESS_KEY", "_BASE_URL", "_API_BASE")
"""Ends of names of variables by which a program might find a model that is outside the budget."""


@known_arguments
class Program:
    """Run a command-line agent for each task, with a governed model behind `context.address`.

    The program gets the task on its standard input, or in place of the word `{task}` in `argv`; `prompt` makes the text
    from assignment and context. What it prints on its standard output is the artifact, in UTF-8. It finds the model by
    the variables of `ModelAddress.env`. `tools` are governed functions, tools or sources such as MCP servers, which it
    finds over MCP: the word `{mcp}` in `argv` is the path of a configuration in the `mcpServers` format. It inherits
    the environment, without variables that end with `_API_KEY`, `_AUTH_TOKEN`, `_ACCESS_KEY`, `_BASE_URL` or
    `_API_BASE`; `env` adds more. `cwd` is its folder; None is the current one. Everything that it started is killed
    when the attempt ends. An exit status other than 0, and an empty output, fail the attempt. Only model calls and
    `tools` are governed: the program reads, writes and runs what its user may.

    >>> member = kt.Member("coder", Program(["my-agent", "--message", "{task}"], model="openai:gpt-5"))
    """

    reentrant = True
    own_loop = True

    def __init__(
        self,
        argv: Sequence[str],
        *,
        model: str | ChatModel,
        tools: Iterable[Tool | ToolSource | Callable[..., Any]] = (),
        prompt: Make | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        words = [] if isinstance(argv, str) else list(argv)
        if not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"Program.argv is a list of words, such as ['my-agent', '--quiet'], not {argv!r:.200}")
        check_function("Program.prompt", prompt)
        self.argv = tuple(words)
        self.model = model
        self.tools = tuple(tools)
        self.takes_tools = bool(self.tools)
        if MCP in " ".join(words) and not self.tools:
            raise ValueError("Program.argv has {mcp}, so it needs tools=, such as tools=[look]")
        self.env = dict(env or {})
        self._cwd = None if cwd is None else os.fspath(cwd)
        self._prompt = prompt

    def preflight(self, role: Role, models: Models, budget: Budget) -> list[str]:
        """Return why the program could not work: it, its folder, its model or the extra `address` is missing."""
        problems: list[str] = []
        if find_spec("h11") is None:
            problems.append("Program needs the extra 'address': pip install 'kairo-team[address]'")
        if self.tools and find_spec("mcp") is None:
            problems.append("Program(tools=) needs the extra 'mcp': pip install 'kairo-team[address,mcp]'")
        try:
            models.resolve(self.model)
        except KairoError as error:
            problems.append(str(error))
        if self._cwd is not None and not Path(self._cwd).is_dir():
            return [*problems, f"Program.cwd is not a folder: {self._cwd!r}"]
        try:
            supervised(self.argv, cwd=self._cwd)
        except OSError as error:
            problems.append(str(error))
        return problems

    async def run(self, assignment: Assignment, context: MemberContext) -> str:
        """Run the program and return what it printed."""
        asked = await self._prompt_text(assignment, context)
        in_words = any(TASK in word for word in self.argv)
        async with context.address(self.model, tools=self.tools or None) as address:
            with _configured(address) as config:
                # The task comes last: a `{mcp}` in it is the task's own.
                words = [word.replace(MCP, config).replace(TASK, asked) for word in self.argv]
                env = {name: value for name, value in os.environ.items() if not name.upper().endswith(_SECRETS)}
                command = supervised(words, cwd=self._cwd)
                # The user's variables come last: they may name a model on purpose.
                process = await anyio.open_process(command, cwd=self._cwd, env=env | address.env() | self.env)
                try:
                    printed = await _talk(process, b"" if in_words else asked.encode(), context)
                finally:
                    with anyio.CancelScope(shield=True):  # a cancelled attempt must kill what it has started, too
                        await _end(process)
        return printed

    async def _prompt_text(self, assignment: Assignment, context: MemberContext) -> str:
        if self._prompt is not None:
            return str(await made(self._prompt, assignment, context))
        task = context.render("task", assignment=assignment, role=context.role)
        return f"{context.role.instructions}\n\n{task}" if context.role.instructions else task

    def __repr__(self) -> str:
        return f"Program({list(self.argv)!r:.80})"


@contextmanager
def _configured(address: ModelAddress) -> Generator[str]:
    """Write the `mcpServers` configuration of an address that has tools into a file, for a block; yields its path."""
    if not address.has_tools:
        yield ""
        return
    file, path = mkstemp(suffix=".json", prefix="kairo-mcp-")  # it has the key, and only this user may read it
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump(address.mcp_servers(), stream)
        yield path
    finally:
        with suppress(OSError):
            Path(path).unlink()


async def _talk(process: Process, asked: bytes, context: MemberContext) -> str:
    """Give a program its task and return its whole output; raises `RuntimeError` for one that fails."""
    printed, errors = bytearray(), bytearray()
    too_long = False

    async def give() -> None:
        assert process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it need not read its input
            async with process.stdin as pipe:
                await pipe.send(asked)

    async def read(stream: ByteReceiveStream | None, into: bytearray, most: int) -> None:
        nonlocal too_long
        assert stream is not None
        async for piece in stream:
            into += piece
            if into is errors:
                del into[:-most]  # errors come last
                continue
            context.keep(into.decode("utf-8", "replace").strip())
            if len(into) > most:
                too_long = True
                tasks.cancel_scope.cancel()  # else the program would block on a full pipe

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give)
        tasks.start_soon(read, process.stdout, printed, _MOST_OUTPUT)
        tasks.start_soon(read, process.stderr, errors, _MOST_ERRORS)
    if too_long:
        raise RuntimeError(f"the program printed more than {_MOST_OUTPUT} bytes")
    status = await process.wait()
    said = errors.decode("utf-8", "replace").strip()
    if status:
        raise RuntimeError(f"the program ended with status {status}{f': {said}' if said else ''}")
    text = printed.decode("utf-8", "replace").strip()
    if not text:
        raise RuntimeError(f"the program printed nothing on its standard output{f'; it said: {said}' if said else ''}")
    return text


async def _end(process: Process) -> None:
    """Kill a program, and everything in its session; on Linux its watcher kills what it left elsewhere."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            process.kill()
        if os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()
