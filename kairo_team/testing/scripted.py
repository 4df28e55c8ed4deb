"""Chat models and agents for tests. The models count one token per word, so budgets can be worked out by hand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Generic, TypeGuard, TypeVar, cast

from anyio.lowlevel import checkpoint

from kairo_team._util.plugin_shapes import check_function
from kairo_team.artifacts import Artifact
from kairo_team.budget import Money, Usage, picodollars, to_dollars
from kairo_team.errors import known
from kairo_team.messages import ModelRequest, ModelResponse
from kairo_team.models.prompt_bounds import refuse_files
from kairo_team.results import AgentOutput

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.files import File
    from kairo_team.tasks import Assignment

Reply = str | ModelResponse


class FunctionModel:
    """A model that answers with `function(request)`, sync or async.

    A string is a reply of one token per word, cut to `request.max_tokens` words like a real one; a `ModelResponse` is
    returned unchanged. Every token, of prompt or reply, costs `dollars_per_token`. `calls` holds the requests. The
    model takes files whose media type fits one of `files`, such as `("image/*",)`; each counts as 100 tokens.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Reply | Awaitable[Reply]],
        *,
        name: str = "test:function",
        dollars_per_token: Money = 0,
        files: Iterable[str] = ("*",),
    ) -> None:
        if not callable(function):
            raise ValueError(f"FunctionModel takes a function of a request, not {function!r:.80}: write lambda _: ...")
        check_function("FunctionModel", function, "function(request)")
        self.name = name
        self._files = tuple(files)
        self.calls: list[ModelRequest] = []
        self._function = function
        self._picos = picodollars(dollars_per_token)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; yield once to the event loop, as a real call does."""
        refuse_files(self, request)
        self.calls.append(request)
        await checkpoint()
        reply = self._function(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, ModelResponse):
            return reply
        if not isinstance(reply, str):
            raise TypeError(
                f"the function of model {self.name!r} must return a text or a ModelResponse, not {reply!r:.80}"
            )
        words, most = reply.split(), request.max_tokens
        is_cut = most is not None and len(words) > most
        if is_cut:
            words = words[:most]
            reply = " ".join(words)
        prompt, completion = _words(request), len(words)
        usage = Usage(prompt, completion, to_dollars(self._picos * (prompt + completion)))
        return ModelResponse(reply, usage=usage, model=self.name, finish_reason="length" if is_cut else "stop")

    async def stream(self, request: ModelRequest, on_text: Callable[[str], object]) -> ModelResponse:
        """Answer like `complete`, and emit the text word by word; yield once to the event loop before each."""
        response = await self.complete(request)
        for word in re.findall(r"\s*\S+\s*|\s+", response.text):
            await checkpoint()
            on_text(word)
        return response

    def file_problem(self, file: File) -> str | None:
        """Return why the model does not take a file; None if it does."""
        if any(fnmatchcase(file.media_type, pattern) for pattern in self._files):
            return None
        return f"it takes {known(self._files)}" if self._files else "it takes no files"

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count the words of the prompt, and 100 for each file."""
        return _words(request)

    def price(self, usage: Usage) -> Decimal:
        """Price every token alike."""
        return to_dollars(self._picos * usage.tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, {len(self.calls)} calls)"


class ScriptedModel(FunctionModel):
    """A model that returns the replies of a script, one per call; an exception in the script is raised.

    A call beyond the script raises `AssertionError`; inside a run that is a failed attempt, so end the test with
    `assert_complete`.
    """

    def __init__(
        self,
        replies: Iterable[Reply | Failure],
        *,
        name: str = "test:scripted",
        dollars_per_token: Money = 0,
        files: Iterable[str] = ("*",),
    ) -> None:
        self._script: Script[Reply] = Script(replies, f"ScriptedModel {name!r}")
        self._script.check(
            (str, ModelResponse), "a text, an exception or kt.ModelResponse('', [kt.ToolCall('1', 'name', {...})])"
        )
        super().__init__(lambda _: self._script.take(), name=name, dollars_per_token=dollars_per_token, files=files)

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless there was exactly one call for each reply."""
        self._script.assert_complete()


def _words(request: ModelRequest) -> int:
    return sum(len(message.text.split()) + 100 * len(message.files) for message in request.messages)


Output = AgentOutput | Artifact | str


class ScriptedAgent:
    """An agent that returns the outputs of a script, one per assignment; an exception in the script is raised.

    `None` is allowed, as the return value of a broken agent. `calls` holds the assignments. A call beyond the script is
    a failed attempt, so end the test with `assert_complete`.
    """

    reentrant = True

    def __init__(self, outputs: Iterable[Output | Failure | None]) -> None:
        self.calls: list[Assignment] = []
        self._script: Script[Output | None] = Script(outputs, "ScriptedAgent")

    async def run(self, assignment: Assignment, context: MemberContext) -> Output:
        """Return the next output; yield once to the event loop."""
        self.calls.append(assignment)
        output = self._script.take()
        await checkpoint()
        return cast("Output", output)  # may also be None, from a broken agent

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless there was exactly one assignment for each output."""
        self._script.assert_complete()

    def __repr__(self) -> str:
        return f"ScriptedAgent({len(self.calls)} calls)"


T = TypeVar("T")

Failure = BaseException | type[BaseException]
"""An exception in a script, which is raised instead of returned."""


def _is_failure(item: object) -> TypeGuard[Failure]:
    return isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException))


class Script(Generic[T]):
    """Items in order. An exception among them is raised; a call beyond the last item is an error."""

    __slots__ = ("_asked", "_items", "_what")

    def __init__(self, items: Iterable[T | Failure], what: str) -> None:
        if isinstance(items, str):
            raise ValueError(f"{what} takes a list of items, not the string {items!r}")
        self._items = list(items)
        self._what = what
        self._asked = 0

    def take(self) -> T:
        """Return or raise the next item; raise `AssertionError` after the last."""
        self._asked += 1  # before the check: `assert_complete` reports the calls beyond the script too
        if self._asked > len(self._items):
            raise AssertionError(f"{self._what}: call {self._asked} of a script of {len(self._items)}")
        item = self._items[self._asked - 1]
        if _is_failure(item):
            raise item
        return cast("T", item)

    def check(self, kinds: tuple[type, ...], takes: str) -> None:
        """Raise `ValueError` for the first item that is neither of these classes nor an exception."""
        for number, item in enumerate(self._items, 1):
            if not isinstance(item, kinds) and not _is_failure(item):
                raise ValueError(f"{self._what}: reply {number} is {item!r:.80}, not {takes}")

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless there was exactly one call for each item."""
        if self._asked != len(self._items):
            raise AssertionError(f"{self._what}: {self._asked} calls of a script of {len(self._items)}")
