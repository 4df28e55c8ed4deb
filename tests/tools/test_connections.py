"""Tool sources are connected once per run, each in a task of its own, and left when the run ends."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kairo_team.tools.sources import Connections
from kairo_team.tools.tool import Tool
from tests.tools.mcp_rig import served

pytestmark = pytest.mark.anyio


class Source:
    """A tool source that notes what happens to it, and fails as told."""

    def __init__(self, name: str = "files", *, failures: int = 0, seconds: float = 0, leaving: float = 0) -> None:
        self.name = name
        self.failures = failures
        self.seconds = seconds
        self.leaving = leaving
        self.log: list[str] = []
        self.lost = anyio.Event()
        self.tasks: list[int] = []

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        self.tasks.append(anyio.get_current_task().id)
        self.log.append("connecting")
        await anyio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise ConnectionError(f"no answer from {self.name}")
        self.log.append("connected")
        try:
            async with anyio.create_task_group() as tasks:  # as the SDK's transports do: scopes must nest
                tasks.start_soon(self._watch)
                yield [Tool(f"{self.name}_look", self._look, server=self.name, server_tool="look")]
                tasks.cancel_scope.cancel()
        finally:
            self.tasks.append(anyio.get_current_task().id)
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.leaving)
            self.log.append("left")

    async def _watch(self) -> None:
        await self.lost.wait()
        raise ConnectionError("the server ended")

    async def _look(self, arguments: Mapping[str, Any]) -> str:
        return "seen"


async def test_a_source_is_connected_once_however_many_ask() -> None:
    source = Source(seconds=5)
    found: list[Sequence[Tool]] = []

    async def ask(connections: Connections) -> None:
        found.append(await connections.tools(source))

    async with served() as connections:
        async with anyio.create_task_group() as callers:
            for _ in range(20):
                callers.start_soon(ask, connections)
        await ask(connections)
        assert source.log == ["connecting", "connected"]
        assert {tools[0].name for tools in found} == {"files_look"}
        assert all(tools is found[0] for tools in found)
    assert source.log == ["connecting", "connected", "left"]


async def test_a_connection_is_entered_and_left_by_one_task_whoever_asked() -> None:
    source = Source()
    async with served() as connections:
        async with anyio.create_task_group() as callers:
            callers.start_soon(connections.tools, source)
        assert source.log[-1] == "connected", "it outlives the task that asked first"
    assert source.tasks[0] == source.tasks[1]


async def test_two_sources_are_connected_side_by_side() -> None:
    sources = [Source(name, seconds=10) for name in ("files", "web", "mail")]
    async with served() as connections:
        with anyio.fail_after(11):
            async with anyio.create_task_group() as callers:
                for source in sources:
                    callers.start_soon(connections.tools, source)
    assert [source.log[-1] for source in sources] == ["left"] * 3


async def test_a_failed_connect_is_told_to_all_who_wait_and_tried_anew_by_the_next() -> None:
    source = Source(failures=1, seconds=1)
    told: list[str] = []

    async def ask(connections: Connections) -> None:
        try:
            await connections.tools(source)
        except ConnectionError as error:
            told.append(str(error))

    async with served() as connections:
        async with anyio.create_task_group() as callers:
            for _ in range(3):
                callers.start_soon(ask, connections)
        assert told == ["no answer from files"] * 3
        assert [tool.name for tool in await connections.tools(source)] == ["files_look"]
    assert source.log == ["connecting", "connecting", "connected", "left"]


async def test_a_source_that_fails_leaves_the_others_alone() -> None:
    good, bad = Source("files"), Source("web", failures=1)
    async with served() as connections:
        await connections.tools(good)
        with pytest.raises(ConnectionError):
            await connections.tools(bad)
        assert good.log[-1] == "connected"


async def test_a_lost_connection_is_made_anew_by_the_next_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(leaving=60)
    async with served() as connections:
        await connections.tools(source)
        source.lost.set()
        await anyio.sleep(1)
        source.lost = anyio.Event()
        with anyio.fail_after(1):  # not until the old one is left, which takes a minute
            await connections.tools(source)
        assert source.log == ["connecting", "connected", "connecting", "connected"]
        with caplog.at_level(logging.WARNING, "kairo_team"):
            await anyio.sleep(61)
        assert "'files' is no longer connected: the server ended" in caplog.text
        await connections.tools(source)
        assert source.log.count("connected") == 2, "the end of the old connection does not forget the new one"


async def test_the_end_of_the_run_waits_until_every_connection_is_left() -> None:
    sources = [Source("files", leaving=5), Source("web", leaving=3)]
    began = anyio.current_time()
    async with served() as connections:
        for source in sources:
            await connections.tools(source)
    assert [source.log[-1] for source in sources] == ["left", "left"]
    assert anyio.current_time() - began == pytest.approx(5)


async def test_the_end_of_the_run_ends_a_connect_that_hangs_and_tells_who_waits() -> None:
    source = Source(seconds=math.inf)
    told: list[BaseException] = []

    async def ask(connections: Connections) -> None:
        try:
            await connections.tools(source)
        except ConnectionError as error:
            told.append(error)

    async with anyio.create_task_group() as callers, served() as connections:
        callers.start_soon(ask, connections)
        await anyio.wait_all_tasks_blocked()
    assert [str(error) for error in told] == ["the run ended before the tool source 'files' was connected"]


async def test_one_who_asked_may_leave_while_the_others_wait_on() -> None:
    source = Source(seconds=5)
    async with served() as connections:
        with anyio.move_on_after(1) as impatient:
            await connections.tools(source)
        assert impatient.cancelled_caught
        assert await connections.tools(source)
    assert source.log == ["connecting", "connected", "left"]


async def test_who_asks_before_the_run_serves_waits_for_it() -> None:
    connections, source = Connections(), Source()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connections.tools, source)
        await anyio.wait_all_tasks_blocked()
        assert source.log == []
        async with anyio.create_task_group() as run:
            run.start_soon(connections.serve)
            await connections.tools(source)
            run.cancel_scope.cancel()


async def test_after_the_run_nothing_is_connected_any_more() -> None:
    async with served() as connections:
        pass
    with pytest.raises(ConnectionError, match="the run has ended: the tool source 'files' can no longer be connected"):
        await connections.tools(Source())
    with pytest.raises(RuntimeError, match="make new Connections"):
        await connections.serve()


async def test_two_different_sources_of_one_name_are_refused() -> None:
    async with served() as connections:
        await connections.tools(Source("files"))
        with pytest.raises(ValueError, match="two different tool sources of this run are named 'files'"):
            await connections.tools(Source("files"))


@pytest.mark.parametrize("name", ["", "  ", None, 3])
async def test_a_source_without_a_name_is_refused(name: Any) -> None:
    async with served() as connections:
        with pytest.raises(ValueError, match="a tool source needs a name"):
            await connections.tools(Source(name))


@pytest.mark.parametrize("yielded", [None, 3, [print], ["look"]])
async def test_a_source_that_yields_no_tools_is_refused(yielded: Any) -> None:
    class Wrong:
        name = "wrong"

        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
            yield yielded

    async with served() as connections:
        with pytest.raises(TypeError, match="'wrong' must yield a sequence of Tool"):
            await connections.tools(Wrong())


async def test_a_source_whose_connect_is_no_context_manager_is_refused() -> None:
    class Wrong:
        name = "wrong"

        def connect(self) -> Any:
            return None

    async with served() as connections:
        with pytest.raises((TypeError, AttributeError)):
            await connections.tools(Wrong())
