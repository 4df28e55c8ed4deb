"""Wrong tool sources, each rejected by the kit at one clause."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.tck import ToolSourceTCK
from kairo_team.tck.tool_source import ToolCallExample
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool
from tests.mutants.kit_mutant import registry

MUTANTS, mutant = registry()

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Good:
    """A good source: two tools, and a connection that is counted."""

    name = "echo"
    open: ClassVar[list[Any]] = []

    def __init__(self, *, reachable: bool = True) -> None:
        self.reachable = reachable

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        await checkpoint()
        if not self.reachable:
            raise ConnectionError("nobody listens there")
        connection = object()
        self.open.append(connection)
        try:
            yield self.tools(connection)
        finally:
            self.open.remove(connection)

    def tools(self, connection: Any) -> list[Tool]:
        async def say(arguments: Mapping[str, Any]) -> str:
            await checkpoint()
            if connection not in self.open:
                raise ConnectionError("the connection is closed")
            return f"you said {arguments['text']}"

        async def fail(arguments: Mapping[str, Any]) -> str:
            raise RuntimeError("the archive is closed")

        return [Tool("echo_say", say, parameters=TEXT), Tool("echo_fail", fail)]


class Kit(ToolSourceTCK):
    """The good source, unchanged."""

    shows_open = True
    examples = tuple(ToolCallExample("echo_say", {"text": text}, text) for text in ("the moon", "the sea"))
    failing_calls = (("echo_fail", {}),)
    kind: ClassVar[type[Good]] = Good

    @classmethod
    def make_source(cls) -> Good:
        return cls.kind()

    @classmethod
    def make_failing_source(cls) -> Good:
        return cls.kind(reachable=False)

    @classmethod
    def count_open(cls) -> int:
        return len(cls.kind.open)


class Opening(Good):
    """Opens a connection in a way of its own."""

    open: ClassVar[list[Any]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.open = []


class _StaysOpen(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        await checkpoint()
        if not self.reachable:
            raise ConnectionError("nobody listens there")
        self.open.append(self)
        yield self.tools(self)
        self.open.remove(self)


@mutant(clause="C7")
class StaysOpenAfterAnError(Kit):
    """What it opened is closed at the end of the block, and not when an error ends it."""

    kind = _StaysOpen


class _SwallowsErrors(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        async with super().connect() as tools:
            try:
                yield tools
            except Exception:  # noqa: BLE001 - it is wrong
                return


@mutant(clause="C7")
class SwallowsErrors(Kit):
    """What fails in the run looks like its end."""

    kind = _SwallowsErrors


class _MixesResults(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        last: dict[str, Any] = {}

        async def say(arguments: Mapping[str, Any]) -> str:
            last.update(arguments)
            await checkpoint()
            return f"you said {last['text']}"

        return [Tool("echo_say", say, parameters=TEXT), *super().tools(connection)[1:]]


@mutant(clause="C2")
class MixesResults(Kit):
    """Arguments are kept on the connection, where the next call overwrites them."""

    kind = _MixesResults


class _Renames(Opening):
    @property
    def name(self) -> str:  # type: ignore[override]  # it is wrong
        return f"echo-{len(self.open)}"


@mutant(clause="C3")
class RenamesItself(Kit):
    """Connected, it is called otherwise."""

    kind = _Renames


class _TwoOfOneName(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        return [*super().tools(connection), super().tools(connection)[0]]


@mutant(clause="C4")
class TwoOfOneName(Kit):
    """A model cannot say which of two tools it means."""

    kind = _TwoOfOneName


class _ChecksNothing(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)

        async def lenient(arguments: Mapping[str, Any]) -> Any:
            return await say.call({"text": "", **arguments})

        return [Tool("echo_say", lenient, parameters=TEXT, check=dict), fail]


@mutant(clause="C4")
class ChecksNothing(Kit):
    """A call without its arguments is made."""

    kind = _ChecksNothing


class _FailsInWords(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, _ = super().tools(connection)

        async def fail(arguments: Mapping[str, Any]) -> str:
            return "Error: the archive is closed"

        return [say, Tool("echo_fail", fail)]


@mutant(clause="C5")
class FailsInWords(Kit):
    """The text of a failure is a result."""

    kind = _FailsInWords


class _ChecksWhatIsRequired(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)

        def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            if not isinstance(arguments.get("text"), str):
                raise ValueError("text must be a string")
            return arguments

        times = {"properties": {"text": {"type": "string"}, "times": {"type": "integer"}}}
        return [Tool("echo_say", say.call, parameters={**TEXT, **times}, check=check), fail]


@mutant(clause="C4")
class ChecksWhatIsRequired(Kit):
    """An argument that may be left out may be anything."""

    kind = _ChecksWhatIsRequired


class _EndsOtherCalls(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, fail = super().tools(connection)
        under_way: list[anyio.CancelScope] = []

        async def speak(arguments: Mapping[str, Any]) -> Any:
            with anyio.CancelScope() as scope:
                under_way.append(scope)
                await anyio.sleep(0.1)
                return await say.call(arguments)
            raise ConnectionError("the connection was lost")

        async def break_off(arguments: Mapping[str, Any]) -> Any:
            for scope in under_way:
                scope.cancel()
            return await fail.call(arguments)

        return [Tool("echo_say", speak, parameters=TEXT), Tool("echo_fail", break_off)]


@mutant(clause="C5", by="ends_no_other_call")
class EndsOtherCalls(Kit):
    """A call that fails ends all that are under way on its connection."""

    kind = _EndsOtherCalls


class _FailsSilently(Opening):
    def tools(self, connection: Any) -> list[Tool]:
        say, _ = super().tools(connection)

        async def fail(arguments: Mapping[str, Any]) -> ToolResult:
            return ToolResult("", is_error=True)

        return [say, Tool("echo_fail", fail)]


@mutant(clause="C5")
class FailsSilently(Kit):
    """A call fails, and nobody says why."""

    kind = _FailsSilently


class _OneForAll(Opening):
    """All its users share one connection, which the first to leave closes."""

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        await checkpoint()
        if not self.reachable:
            raise ConnectionError("nobody listens there")
        if "it" not in self.open:
            self.open.append("it")
        try:
            yield self.tools("it")
        finally:
            self.open.clear()


@mutant(clause="C6")
class OneForAll(Kit):
    """The first run to end closes the connection of the second."""

    kind = _OneForAll


class _Once(Opening):
    def __init__(self, *, reachable: bool = True) -> None:
        super().__init__(reachable=reachable)
        self.generator = super().connect()

    def connect(self) -> Any:
        return self.generator


@mutant(clause="C6")
class ConnectsOnce(Kit):
    """A team that has it works for one run."""

    kind = _Once


class _Hangs(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        if not self.reachable:
            await anyio.sleep_forever()
        async with super().connect() as tools:
            yield tools


@mutant(clause="C8")
class WaitsForEver(Kit):
    """A server that is not there holds the run up."""

    kind = _Hangs


class _Exits(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        if not self.reachable:
            raise SystemExit("no server")
        async with super().connect() as tools:
            yield tools


@mutant(clause="C8")
class EndsTheProgram(Kit):
    """A server that is not there ends the program."""

    kind = _Exits


class _SaysNothing(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        if not self.reachable:
            raise ConnectionError
        async with super().connect() as tools:
            yield tools


@mutant(clause="C8")
class DoesNotSayWhy(Kit):
    """It cannot connect, and nobody learns the reason."""

    kind = _SaysNothing


class _LeaksWhenItFails(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        if not self.reachable:
            self.open.append("half a connection")
        async with super().connect() as tools:
            yield tools


@mutant(clause="C8")
class LeaksWhenItFails(Kit):
    """Each try to connect leaves a process behind."""

    kind = _LeaksWhenItFails


class _Shields(Opening):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        async with super().connect() as tools:
            try:
                yield tools
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(3600)


@mutant(clause="C7")
class WillNotBeLeft(Kit):
    """A run that is killed waits an hour for its goodbye."""

    kind = _Shields
