"""How a typed function becomes a tool: its schema, its words, its call, and what is refused."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from kairo_team.messages import ToolSpec
from kairo_team.tools.tool import NO_PARAMETERS, Tool, as_tool, tool

if TYPE_CHECKING:
    from kairo_team.unknown import Unknown  # type: ignore[import-not-found]  # there is no such module when it runs

pytestmark = pytest.mark.anyio


class Kind(StrEnum):
    WEB = "web"
    LIBRARY = "library"


class Range(BaseModel):
    low: int
    high: int = 9


@dataclass
class Point:
    x: float
    y: float = 0.0


async def echo(arguments: Mapping[str, Any]) -> Any:
    return dict(arguments)


def search(query: str, limit: int = 5, kind: Kind = Kind.WEB, *, between: Range | None = None, anything=1) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Look for documents
    that answer a question.

    The second paragraph is for people.

    Args:
        query: what to look for,
            in any language
        limit (int, optional): how many at most
        kind: where: in the web, or not
        stranger: no parameter

    Returns:
        limit: this is not a parameter
    """
    return f"{query} {limit} {kind!r} {between!r} {anything!r}"


def properties(function: Callable[..., Any]) -> Any:
    return as_tool(function).parameters["properties"]


# ---------------------------------------------------------------- the schema


def test_the_schema_is_read_from_the_signature_and_the_docstring() -> None:
    made = as_tool(search)
    assert (made.name, made.description) == ("search", "Look for documents that answer a question.")
    assert made.parameters["type"] == "object"
    assert made.parameters["required"] == ("query",)
    assert made.parameters["additionalProperties"] is False
    assert "title" not in made.parameters
    given = made.parameters["properties"]
    assert given["query"] == {"type": "string", "description": "what to look for, in any language"}
    assert given["limit"] == {"type": "integer", "default": 5, "description": "how many at most"}
    assert given["kind"] == {"$ref": "#/$defs/Kind", "description": "where: in the web, or not"}
    assert given["between"]["anyOf"] == ({"$ref": "#/$defs/Range"}, {"type": "null"})
    assert given["anything"] == {"default": 1}
    assert made.spec == ToolSpec("search", made.description, made.parameters)


NUMPY = """Add two numbers.

Parameters
----------
a : int
    the first
    of them
b
    the second

Returns
-------
int
    a : no parameter
"""
SPHINX = """Add two numbers.

:param a: the first
    of them
:param int b: the second
:returns: b: no parameter
"""
GOOGLE = """Add two numbers.

Arguments:
  a: the first
    of them

  b (int): the second
"""


EPYDOC = """Add two numbers.

@param a: the first
    of them
@param b: the second
@return: b: no parameter
"""


@pytest.mark.parametrize("docstring", [NUMPY, SPHINX, GOOGLE, EPYDOC], ids=["numpy", "sphinx", "google", "epydoc"])
def test_audit_g21_the_docstrings_of_tools_are_read_in_every_common_style(docstring: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    assert as_tool(add).description == "Add two numbers."
    assert {name: one["description"] for name, one in properties(add).items()} == {
        "a": "the first of them",
        "b": "the second",
    }


@pytest.mark.parametrize(
    "docstring", [None, "", "\n\n", ":param", ": :", "Args:", "Args:\n", "Parameters\n-----", "a\nArgs:\n x"]
)
def test_a_poor_docstring_is_no_error(docstring: str | None) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    assert as_tool(add).description == " ".join((docstring or "").split()), "it is a text and no more"


def test_what_pydantic_is_told_of_a_parameter_goes_before_the_docstring() -> None:
    def add(a: Annotated[int, Field(ge=0, description="own words")], b: int = Field(default=3, lt=10)) -> int:
        """Add.

        Args:
            a: the docstring's words
            b: the second
        """
        return a + b

    assert properties(add)["a"] == {"type": "integer", "minimum": 0, "description": "own words"}
    assert as_tool(add).parameters["required"] == ("a",)
    assert checked(add, {"a": 1}) == {"a": 1, "b": 3}
    with pytest.raises(ValueError, match="'b': Input should be less than 10, not 11"):
        checked(add, {"a": 1, "b": 11})


def test_a_parameter_may_have_any_name() -> None:
    def odd(
        copy: int, json: int, model_config: int, _private: int, context: str, cls: int, schema: int = 1
    ) -> None: ...

    names = list(properties(odd))
    assert names == ["copy", "json", "model_config", "_private", "context", "cls", "schema"]
    given = dict.fromkeys(names[:4], 1) | {"context": "c", "cls": 1}
    assert checked(odd, given) == {**given, "schema": 1}


def test_a_type_named_by_a_string_is_looked_up_where_the_function_was_written() -> None:
    class Local(BaseModel):
        n: int

    def use(local: Local) -> Local:
        return Local(n=local.n)  # named inside, so that the function remembers it

    assert properties(use)["local"] == {"$ref": "#/$defs/Local"}


# ---------------------------------------------------------------- arguments


def checked(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    check = as_tool(function).check
    assert check is not None
    return check(arguments)


def test_arguments_are_coerced_and_defaults_filled_in() -> None:
    got = checked(search, {"query": "x", "limit": "7", "kind": "library", "between": {"low": "1"}})
    assert got == {"query": "x", "limit": 7, "kind": Kind.LIBRARY, "between": Range(low=1, high=9), "anything": 1}


def test_a_default_is_the_functions_own_object_and_is_not_checked() -> None:
    default = object()

    def use(a: int = default) -> None: ...  # type: ignore[assignment]  # the point

    assert checked(use, {})["a"] is default
    assert "default" not in properties(use)["a"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "'query' is missing"),
        ({"query": 5}, "'query': Input should be a valid string, not 5"),
        ({"query": "x", "limit": "many"}, "'limit': Input should be a valid integer, .*, not 'many'"),
        ({"query": "x", "limits": 5}, "there is no 'limits'"),
        ({"query": "x", "kind": "shop"}, "'kind': Input should be 'web' or 'library', not 'shop'"),
        ({"query": "x", "between": {"low": 1, "high": "z"}}, r"'between'\['high'\]: Input should be .*, not 'z'"),
        ({"query": "x", "p0": "y"}, "there is no 'p0'"),
        ({"query": "x" * 10**6, "limit": "z" * 10**6}, "not 'zzzzzzzzzzzz...zzzzzzzzzzzzz'"),
        ({"query": "x", 5: 1}, "string"),
    ],
)
def test_what_is_wrong_with_arguments_is_said_with_the_parameters_there_are(arguments: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        checked(search, arguments)
    assert "the parameters are 'anything', 'between', 'kind', 'limit', 'query'" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_an_iterable_can_be_gone_through_by_guards_and_by_the_tool() -> None:
    """Pydantic makes an iterator of it: whoever looks first would leave nothing for the tool."""

    def total(numbers: Iterable[int], more: dict[str, Iterable[int]]) -> int:
        return sum(numbers) + sum(map(sum, more.values()))

    made = as_tool(total)
    assert made.check is not None
    assert made.check({"numbers": ["1", 2], "more": {"a": [3]}}) == {"numbers": [1, 2], "more": {"a": [3]}}
    with pytest.raises(ValueError, match="valid integer"):
        made.check({"numbers": ["one"], "more": {}})


def test_of_many_faults_only_some_are_told() -> None:
    with pytest.raises(ValueError, match="and 993 more"):
        checked(search, {"query": "x"} | {f"x{number}": 1 for number in range(1001)})


# ---------------------------------------------------------------- what can be called


class Counter:
    """Counts."""

    def add(self, amount: int) -> int:
        """Add to it."""
        return amount

    async def add_later(self, amount: int) -> int:
        return self.add(amount)

    @staticmethod
    def twice(amount: int) -> int:
        return 2 * amount

    @classmethod
    def named(cls, amount: int) -> str:
        return f"{cls.__name__} {amount}"

    def __call__(self, amount: int) -> int:
        return self.add(amount)


class Later:
    async def __call__(self, amount: int) -> int:
        """Come later."""
        return amount


async def add(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
    return (a, b, c, d)


def gives_an_awaitable(amount: int) -> Any:
    return Counter().add_later(amount)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("function", "name", "arguments", "result"),
    [
        (Counter().add, "add", {"amount": 2}, 2),
        (Counter().add_later, "add_later", {"amount": 2}, 2),
        (Counter.twice, "twice", {"amount": 2}, 4),
        (Counter.named, "named", {"amount": 2}, "Counter 2"),
        (Counter(), "Counter", {"amount": "2"}, 2),
        (Later(), "Later", {"amount": 2}, 2),
        (add, "add", {"a": 1, "c": 5}, (1, 2, 5, 4)),
        (functools.partial(add, 7), "add", {"b": 8}, (7, 8, 3, 4)),
        (functools.partial(functools.partial(add, 7), d=9), "add", {}, (7, 2, 3, 9)),
        (gives_an_awaitable, "gives_an_awaitable", {"amount": 3}, 3),
        (len, "len", {"obj": [1, 2]}, 2),
    ],
)
async def test_functions_of_every_kind_are_called(function: Any, name: str, arguments: Any, result: Any) -> None:
    made = as_tool(function)
    assert made.name == name
    assert made.check is not None
    assert await made.call(made.check(arguments)) == result


def test_what_a_partial_has_fixed_is_neither_seen_nor_changed() -> None:
    bound = functools.partial(search, limit=3)
    assert "limit" not in properties(bound)
    with pytest.raises(ValueError, match="there is no 'limit'"):
        checked(bound, {"query": "x", "limit": 9})


def test_the_docstring_of_a_callable_objects_class_describes_it() -> None:
    assert as_tool(Counter()).description == "Counts."
    assert as_tool(Later()).description == "Come later."


@pytest.mark.real_time
async def test_a_plain_function_runs_in_a_worker_thread_and_an_async_one_does_not() -> None:
    def where() -> int:
        return threading.get_ident()

    async def here() -> int:
        return threading.get_ident()

    assert await as_tool(where).call({}) != threading.get_ident()
    assert await as_tool(here).call({}) == threading.get_ident()


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


def takes_args(*values: int) -> None: ...
def takes_kwargs(a: int, **values: int) -> None: ...
def takes_a_callable(a: int, done: Callable[[], None]) -> None: ...
def takes_a_context(a: int, files: AbstractContextManager[int]) -> None: ...
def takes_an_unknown(a: int, b: Unknown) -> None: ...  # pyright: ignore[reportUnknownParameterType]  # the point


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (takes_args, r"takes_args takes \*values: a tool has parameters with names"),
        (takes_kwargs, r"takes_kwargs takes \*\*values: a tool has parameters with names"),
        (takes_a_callable, r"takes_a_callable: the type .*Callable.* of parameter 'done' has no JSON Schema"),
        (takes_a_context, "takes_a_context: the type .* of parameter 'files' has no JSON Schema"),
        (takes_an_unknown, "the type 'Unknown' of parameter 'b' cannot be found"),
        (lambda x: x, "a lambda has no name: give the tool one"),
        (yields, "yields yields: a tool must return its result"),
        (yields_later, "yields_later yields"),
        (Counter, "a tool is a function, .*, not <class"),
        (Counter.add, r"Counter\.add takes self: give a method of an object"),
        (5, "a tool is a function, .*, not 5"),
        (None, "a tool is a function"),
        ("search", "a tool is a function"),
        (print, r"print takes \*args"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_its_parameter(function: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        as_tool(function)


def test_a_function_without_a_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="min has no signature to make a schema of"):
        as_tool(min)


# ---------------------------------------------------------------- marks and options


def test_a_marked_function_stays_the_function_it_is() -> None:
    @tool
    def plain(a: int) -> int:
        return a + 1

    @tool(side_effect="read", name="look", description="Look.", timeout=2)
    def marked(a: int) -> int:
        """Do something else."""
        return a + 2

    assert (plain(1), marked(1)) == (2, 3)
    assert as_tool(plain).side_effect == "system"
    made = as_tool(marked)
    assert (made.name, made.description, made.side_effect, made.timeout) == ("look", "Look.", "read", 2)
    assert as_tool(functools.partial(marked, a=1)).side_effect == "read"


def test_methods_of_every_kind_can_be_marked() -> None:
    class Files:
        @tool(side_effect="read")
        def list(self, path: str) -> str:
            return path

        @tool(side_effect="read")
        @staticmethod
        def head(path: str) -> str:
            return path

        @tool(side_effect="write")
        @classmethod
        def touch(cls, path: str) -> str:
            return path

        @tool(side_effect="write")
        def __call__(self, path: str) -> str:
            return path

    files = Files()
    effects = [as_tool(one).side_effect for one in (files.list, files.head, files.touch, files)]
    assert effects == ["read", "read", "write", "write"]
    assert list(properties(files.list)) == ["path"]


def test_what_is_unmarked_is_a_system_tool_and_options_go_before_marks() -> None:
    marked = tool(side_effect="read", name="look")(search)
    assert as_tool(Counter().add).side_effect == "system"
    made = as_tool(marked, name="other", side_effect="write", description="d", timeout=1)
    assert (made.name, made.side_effect, made.description, made.timeout) == ("other", "write", "d", 1)
    assert as_tool(lambda query: query, name="lookup").name == "lookup"
    assert as_tool(made) is made
    assert as_tool(made, name="third").name == "third"
    del search.__kairo_tool__  # type: ignore[attr-defined]  # it was marked above


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: tool(5), "@tool decorates a function, not 5"),
        (lambda: tool(print), "cannot be marked: make the tool by as_tool"),
        (lambda: tool(side_effect="reads"), "must be one of read, write, system, not 'reads'"),  # type: ignore[call-overload]
        (lambda: as_tool(search, side_effect="no"), "tool 'search': side_effect must be one of"),  # type: ignore[arg-type]
        (lambda: as_tool(search, timeout=0), "timeout must be seconds > 0, or None for no limit, not 0"),
        (lambda: as_tool(search, timeout=float("nan")), "timeout must be seconds > 0"),
        (lambda: as_tool(search, timeout=True), "timeout must be seconds > 0"),
        (lambda: as_tool(search, timeout="5"), "timeout must be seconds > 0"),  # type: ignore[arg-type]
        (lambda: as_tool(search, name="look up"), "a tool's name is 1 to 64 letters"),
        (lambda: Tool("", echo), "a tool's name is 1 to 64 letters"),
        (lambda: Tool("größe", echo), "not 'größe': give it another"),
        (lambda: Tool("x" * 65, echo), "a tool's name"),
        (lambda: Tool("x\n", echo), "a tool's name"),
        (lambda: Tool(5, echo), "a tool's name"),  # type: ignore[arg-type]
        (lambda: Tool("x", 5), "tool 'x': call must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: Tool("x", echo, check=5), "tool 'x': check must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: Tool("x", echo, 5), "tool 'x': the description must be a string, not 5"),  # type: ignore[arg-type]
        (lambda: Tool("x", echo, "", []), "must be the JSON Schema of an object, not"),  # type: ignore[arg-type]
        (lambda: Tool("x", echo, "", {"type": "array"}), "must be the JSON Schema of an object"),
        (lambda: Tool("x", echo, "", {"properties": {"a": {1, 2}}}), "the parameters are not a JSON Schema"),
    ],
)
def test_bad_options_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_a_tool_made_by_hand_is_a_frozen_value() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
    made = Tool("x", echo, "d", schema)
    schema["properties"] = {}
    assert made.parameters["properties"] == {"a": {"enum": (1, 2)}}
    assert made.side_effect == "system"
    assert Tool("x", echo).parameters == Tool("x", echo, parameters={}).parameters == NO_PARAMETERS
    assert made == Tool("x", echo, "d", made.parameters)
    assert hash(made) == hash(Tool("x", echo, "d", made.parameters))
    with pytest.raises(AttributeError):
        made.name = "y"  # type: ignore[misc]  # the point


def rich(when: date, where: Path, point: Point, tags: set[str], pick: Literal["a", "b"] = "a") -> str:
    return f"{when:%d.%m.} {where.name} {point.x} {sorted(tags)} {pick}"


@pytest.mark.real_time
async def test_rich_types_go_through_json() -> None:
    made = as_tool(rich)
    assert made.check is not None
    given = {"when": "2026-03-01", "where": "a/b", "point": {"x": "1"}, "tags": ["u", "t", "t"]}
    assert await made.call(made.check(given)) == "01.03. b 1.0 ['t', 'u'] a"
