"""The kit of `ToolSource`: connections of one run and of two, calls, and every way to leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, cast

import anyio

from kairo_team._util.frozen import thaw
from kairo_team.contracts import MemberContext, ToolSource
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.governance.policies.mcp_policy import McpPolicy, McpSecurityPolicy
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.tck.calls import at_once, no_examples, result_or_error, skip_unless
from kairo_team.tck.kit import ContractTCK, clause, make_it
from kairo_team.team import Member, Team, TeamExecutionRequest
from kairo_team.tools.arguments import CallRefusedError, check_arguments
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool

_SOON: Final = 30.0
"""Seconds within which a block must have been left."""
_AT_ONCE: Final = 8


class ToolCallExample(NamedTuple):
    """A call to try, and a text in its result."""

    tool: str
    arguments: Mapping[str, Any]
    result: str


class ToolSourceTCK(ContractTCK):
    """The contract kit of tool sources: override `make_source`, and give `examples`."""

    contract: ClassVar[type] = ToolSource

    examples: ClassVar[Sequence[ToolCallExample]] = ()
    """Calls that succeed, with the tools' names as the model has them."""
    failing_calls: ClassVar[Sequence[tuple[str, Mapping[str, Any]]]] = ()
    """Calls whose arguments fit, and which fail all the same: a name and its arguments."""
    can_fail: ClassVar[bool] = True
    """Whether a source can be made that cannot be connected: `make_failing_source`."""
    shows_open: ClassVar[bool] = False
    """Whether `count_open` counts open processes or sockets. Without it the kit cannot see leaks."""

    @classmethod
    def make_source(cls) -> ToolSource:
        """Make the source. A fresh one each time, of the same tools."""
        raise make_it(cls, "make_source(cls)")

    @classmethod
    def make_failing_source(cls) -> ToolSource:
        """Make a source that cannot be connected, such as to a server that is not there."""
        raise make_it(cls, "make_failing_source(cls), or say can_fail = False,")

    @classmethod
    def count_open(cls) -> int:
        """Count the processes, sockets or files that this kit's sources have open now, from outside."""
        raise make_it(cls, "count_open(cls), or say shows_open = False,")

    # ------------------------------------------------------------------ a run

    @clause("C1", "C7")
    async def test_c01_a_run_connects_it_once_and_leaves_it(self) -> None:
        """Two members at the same time, with three calls each."""
        watched = _Watched(self.make_source())
        example = self._examples()[0]

        async def work(assignment: Assignment, context: MemberContext) -> str:
            await context.tools([watched])
            texts = [await context.tool(example.tool)(**example.arguments) for _ in range(3)]
            return "\n".join(map(str, texts))

        result = await _run(work)
        assert result.status == "completed", f"two members used it, and their run is {result.status}: {result.error}"
        assert watched.entered == 1, f"in one run it was connected {watched.entered} times"
        assert watched.left == 1, f"the run has ended, and of 1 connection {watched.left} was left"
        self._assert_closed("the run has ended")

    # ------------------------------------------------------------------ tools

    @clause("C2")
    async def test_c02_calls_at_once_get_their_own_results(self) -> None:
        """The examples, over and over, all at the same time."""
        async with self.make_source().connect() as tools:
            calls = (self._examples() * _AT_ONCE)[: max(_AT_ONCE, len(self.examples))]
            results = await at_once([partial(_called, tools, one) for one in calls])
            for one, result in zip(calls, results, strict=True):
                _check_result(one, result, "at the same time as others")

    @clause("C3")
    async def test_c03_its_name_stays(self) -> None:
        source = self.make_source()
        before: Any = source.name
        named = isinstance(before, str) and before.strip()
        assert named, f"its name is {before!r}: a text that is not blank"
        async with source.connect():
            assert source.name == before, f"its name was {before!r}, and while it is connected {source.name!r}"
        assert source.name == before, f"its name was {before!r}, and after it was left {source.name!r}"

    @clause("C4")
    async def test_c04_its_tools_are_tools_of_different_names(self) -> None:
        async with self.make_source().connect() as tools:
            odd = [one for one in tools if not isinstance(one, Tool)]
            assert not odd, f"it yields tools, made of kairo_team.tools.Tool or as_tool, not {odd!r:.200}"
            names = [one.name for one in tools]
            assert names, "it yields no tool"
            twice = sorted({name for name in names if names.count(name) > 1})
            assert not twice, f"the tools differ by their names, and these names come twice: {twice}"
            for tool in tools:
                kind = thaw(tool.parameters).get("type")
                assert kind == "object", f"the parameters of {tool.name!r} are the schema of {kind!r}, not of an object"

    @clause("C4")
    async def test_c04_arguments_that_do_not_fit_are_refused(self) -> None:
        """Without each required one, and with one of the wrong type, required or not."""
        tried = 0
        async with self.make_source().connect() as tools:
            for one in self._examples():
                tool = _tool(tools, one.tool)
                schema = thaw(tool.parameters)
                required, properties = schema.get("required", ()), schema.get("properties", {})
                for name in dict.fromkeys((*required, *properties)):
                    others = {key: value for key, value in one.arguments.items() if key != name}
                    if name in required:
                        await _check_refused(tool, others, f"without {name!r}")
                    wrong = _of_another_type(properties.get(name, {}))
                    if wrong is not None:
                        await _check_refused(tool, {**others, name: wrong}, f"with {name} = {wrong!r}")
                    tried += 1
        skip_unless(tried, "no example's tool has an argument")

    @clause("C5")
    async def test_c05_what_fails_is_no_result(self) -> None:
        """And the calls after it are made."""
        skip_unless(self.failing_calls, "failing_calls is empty")
        example = self._examples()[0]
        async with self.make_source().connect() as tools:
            for name, arguments in self.failing_calls:
                tool = _tool(tools, name)
                given = await result_or_error(partial(_made, tool, arguments))
                failed = isinstance(given, Exception) or (isinstance(given, ToolResult) and given.is_error)
                assert failed, f"{name}({dict(arguments)}) fails, and it returned {given!r:.200}"
                said = given.text if isinstance(given, ToolResult) else str(given)
                assert said.strip(), f"{name}({dict(arguments)}) fails without a word on why"
                _check_result(example, await _called(tools, example), f"after {name} failed")

    @clause("C5")
    async def test_c05_what_fails_ends_no_other_call(self) -> None:
        """Calls that fail, and calls at the same time on the same connection."""
        skip_unless(self.failing_calls, "failing_calls is empty")
        async with self.make_source().connect() as tools:
            fail = [
                partial(result_or_error, partial(_made, _tool(tools, name), arguments))
                for name, arguments in self.failing_calls
            ]
            examples = (self._examples() * _AT_ONCE)[:_AT_ONCE]
            half = len(examples) // 2
            begin, end = ([partial(_called, tools, one) for one in some] for some in (examples[:half], examples[half:]))
            results = await at_once([*begin, *fail, *end])
            for one, result in zip(examples, [*results[:half], *results[half + len(fail) :]], strict=True):
                _check_result(one, result, "while another call failed")

    # ------------------------------------------------------------------ connections

    @clause("C6")
    async def test_c06_two_runs_have_a_connection_each(self) -> None:
        """Tested with one source, and with two of the same kind; the first connection is left first."""
        example = self._examples()[0]
        one = self.make_source()
        for other in (one, self.make_source()):
            first, second = one.connect(), other.connect()
            async with second as staying:
                async with first as leaving:
                    assert _names(leaving) == _names(staying), "two connections have different tools"
                    _check_result(example, await _called(leaving, example), "in the first of two connections")
                _check_result(example, await _called(staying, example), "after another connection was left")

    @clause("C6")
    async def test_c06_it_can_be_connected_again(self) -> None:
        source, example = self.make_source(), self._examples()[0]
        seen: list[list[str]] = []
        for _ in range(3):
            async with source.connect() as tools:
                seen.append(_names(tools))
                _check_result(example, await _called(tools, example), "connected again")
        assert seen[1:] == seen[:-1], f"connected again, its tools are others: {seen}"

    @clause("C7")
    async def test_c07_an_error_in_the_block_comes_out_of_it(self) -> None:
        error: Exception | None = None
        try:
            async with self.make_source().connect():
                raise LookupError("of the run")
        except Exception as raised:  # noqa: BLE001 - looked at below
            error = raised
        leaves = list(_leaves(error))
        assert [type(one) for one in leaves] == [LookupError], f"in the block was a LookupError, out came {error!r}"
        self._assert_closed("its block ended by an error")

    @clause("C7")
    async def test_c07_a_cancellation_passes_through(self) -> None:
        """While the block waits, and while it connects."""
        for seconds in (0.5, 0.0):
            with anyio.move_on_after(_SOON) as patience:
                with anyio.move_on_after(seconds) as scope:
                    async with self.make_source().connect():
                        await anyio.sleep_forever()
                assert scope.cancelled_caught, "its block was cancelled, and the cancellation did not come out of it"
            assert not patience.cancelled_caught, f"cancelled, its block was not left within {_SOON:g} seconds"
            self._assert_closed("its block was cancelled")

    @clause("C7")
    async def test_c07_a_cancelled_call_has_no_other_result(self) -> None:
        """The call ends by the cancellation, unless it is done before that arrives."""
        async with self.make_source().connect() as tools:
            for example in self._examples():
                made: list[Any] = []
                with anyio.move_on_after(_SOON) as patience:
                    with anyio.CancelScope() as scope:
                        scope.cancel()
                        made.append(await _made(_tool(tools, example.tool), example.arguments))
                assert not patience.cancelled_caught, f"a call of {example.tool} was cancelled, and did not end"
                for given in made:
                    _check_result(example, given, "cancelled")
                _check_result(example, await _called(tools, example), "after a call was cancelled")

    @clause("C7", needs="shows_open")
    async def test_c07_what_was_opened_is_closed(self) -> None:
        """While it is connected something is open, or `count_open` sees nothing."""
        async with self.make_source().connect() as tools:
            await _called(tools, self._examples()[0])
            assert self.count_open() > 0, "it is connected, and count_open returns 0: count what it opens"
        self._assert_closed("its block was left")

    @clause("C8", needs="can_fail")
    async def test_c08_where_it_cannot_connect_it_says_why(self) -> None:
        entered, error = False, None
        with anyio.move_on_after(_SOON * 2) as patience:
            try:
                async with self.make_failing_source().connect():
                    entered = True
            except BaseException as raised:
                error = raised
                if not isinstance(raised, Exception) and patience.cancel_called:
                    raise
        assert not patience.cancelled_caught, f"it cannot connect, and says so after more than {_SOON * 2:g} seconds"
        assert not entered, "it cannot connect, and its block was entered"
        assert isinstance(error, Exception), f"it cannot connect; that is an exception, and it raised {error!r}"
        assert all(str(one).strip() for one in _leaves(error)), f"it cannot connect, and does not say why: {error!r}"
        self._assert_closed("it could not connect")

    @clause("C8", "C5", needs="can_fail")
    async def test_c08_in_a_run_only_its_users_fail(self) -> None:
        """A member without the source does its task."""
        source = self.make_failing_source()

        async def work(assignment: Assignment, context: MemberContext) -> str:
            if assignment.task.id == "a":
                await context.tools([source])
            return "done"

        result = await _run(work)
        ends = {one.task_id: str(one.status) for one in result.outcomes}
        assert ends == {"a": "failed", "b": "completed"}, f"'a' uses it and 'b' does not; the tasks ended so: {ends}"

    # ------------------------------------------------------------------

    @classmethod
    def _examples(cls) -> list[ToolCallExample]:
        if not cls.examples:
            no_examples(cls, "examples", "calls that succeed, such as ToolCallExample('add', {'a': 1, 'b': 2}, '3')")
        return list(cls.examples)

    @classmethod
    def _assert_closed(cls, when: str) -> None:
        if cls.shows_open:
            left = cls.count_open()
            assert left == 0, f"{when}, and {left} of what it opened is open still"


class _Watched:
    """A source that counts its connections."""

    def __init__(self, source: ToolSource) -> None:
        self.source = source
        self.name = source.name
        self.entered = self.left = 0

    def connect(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        return _Connection(self)


class _Connection(AbstractAsyncContextManager[Sequence[Tool]]):
    def __init__(self, watched: _Watched) -> None:
        self.watched = watched
        self.inner = watched.source.connect()

    async def __aenter__(self) -> Sequence[Tool]:
        self.watched.entered += 1
        return await self.inner.__aenter__()

    async def __aexit__(self, *raised: object) -> bool | None:
        try:
            return await self.inner.__aexit__(*cast("Any", raised))
        finally:
            self.watched.left += 1


async def _run(work: Any) -> TeamResult:
    """Run two tasks, `a` and `b`, of two members at the same time, without retries."""
    plan = TaskGraph([Task(name, "Work.", member=name) for name in ("a", "b")])
    permissions = ToolPermissions(mcp=McpPolicy(McpSecurityPolicy.ALLOW_ALL))
    team = Team("kit", [Member(name, work) for name in ("a", "b")], permissions=permissions)
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
    return await coordinator.execute(TeamExecutionRequest("Work.", plan=plan), team)


def _names(tools: Sequence[Tool]) -> list[str]:
    return sorted(one.name for one in tools)


def _tool(tools: Sequence[Tool], name: str) -> Tool:
    found = next((one for one in tools if one.name == name), None)
    assert found is not None, f"the examples name the tool {name!r}, and it yields {_names(tools)}"
    return found


async def _made(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    return await tool.call(check_arguments(tool, arguments))


async def _called(tools: Sequence[Tool], one: ToolCallExample) -> Any:
    """Make the call of an example; its error is its result, about which `_check_result` has the words."""
    return await result_or_error(partial(_made, _tool(tools, one.tool), one.arguments))


def _check_result(one: ToolCallExample, given: Any, when: str) -> None:
    text = given.text if isinstance(given, ToolResult) else str(given)
    failed = isinstance(given, Exception) or (isinstance(given, ToolResult) and given.is_error)
    assert not failed, f"{when}, {one.tool}({dict(one.arguments)}) failed: {text or repr(given):.200}"
    assert one.result in text, (
        f"{when}, {one.tool}({dict(one.arguments)}) returned {text!r:.200}, without {one.result!r}"
    )


async def _check_refused(tool: Tool, arguments: Mapping[str, Any], how: str) -> None:
    refused = False
    try:
        given: Any = await _made(tool, arguments)
        refused = isinstance(given, ToolResult) and given.is_error
    except CallRefusedError:
        refused = True
    except Exception as error:
        raise AssertionError(
            f"{tool.name} {how} does not fit its schema, and was called: {error!r:.200}. Give the Tool a `check`"
        ) from error
    assert refused, f"{tool.name} {how} does not fit its schema, and was called. Give the Tool a `check`"


def _of_another_type(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema of one plain type forbids; None where no value is sure to be wrong."""
    wrong: dict[Any, Any] = {"string": {"a": 1}, "integer": "many", "number": "many", "object": 7, "array": 7}
    kind = schema.get("type")
    return wrong.get(kind) if isinstance(kind, str) else None


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(one)
    elif error is not None:
        yield error
