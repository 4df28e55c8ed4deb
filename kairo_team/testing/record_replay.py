"""A chat model that records the replies of a real one, and replays them without it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from anyio.lowlevel import checkpoint

from kairo_team._util.late_pydantic import adapter, read
from kairo_team.errors import ModelCallError, ModelErrorKind, NoRecord, known
from kairo_team.messages import ModelRequest, ModelResponse
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.models.resolver import file_problem

if TYPE_CHECKING:
    from kairo_team.contracts import ChatModel
    from kairo_team.files import File

Mode = Literal["auto", "record", "replay"]
Answer = ModelResponse | ModelCallError

_logger = logging.getLogger("kairo_team")
_MOST_SHOWN: Final = 80
"""Characters of a request that an error shows."""


class RecordReplayModel:
    """Replay the recorded replies of `model`; by default make a call that is not in the file, and record it.

    `mode="replay"` never calls the model; `mode="record"` repeats every call, and uses the new replies before older
    ones. The file has one line of JSON for each call, is only ever appended to, and contains the full texts: do not
    record secrets. A call is identified by its messages, with the reasoning that goes back, its tools, schema and
    settings, and by the number of equal calls before it. The limit on the reply and a `Message.aside` do not count,
    because they depend on the rest of a budget; a recorded reply that is longer than the limit is refused. Usage and
    `ModelCallError`s are replayed; other errors are not recorded.

    Raises `ValueError` for a file that is not a record, and `NoRecord` for a call that is not in the file, which costs
    nothing and is not retried. A last line that was cut off, for example by a killed process, is skipped with a warning
    in the log.
    """

    def __init__(self, path: str | os.PathLike[str], model: ChatModel | None = None, mode: Mode = "auto") -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {known(get_args(Mode))}, not {mode!r}")
        if mode == "record" and model is None:
            raise ValueError("mode='record' needs a model to record")
        self._file = _File(Path(path))
        self._model = None if mode == "replay" else model
        self._answers: dict[str, list[Answer]] = {}
        self._asked: dict[str, int] = {}
        recorded = self._file.read()
        self.name = model.name if model is not None else next((line["model"] for line in recorded), "recorded:model")
        """The `provider:model` of the recorded model."""
        if mode != "record":
            for line in recorded:
                _put(self._answers.setdefault(line["request"], []), line["number"], _answer(line))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request, from the record if it has the call."""
        key = _digest(request)
        asked, answers = self._asked.get(key, 0), self._answers.setdefault(key, [])
        if asked < len(answers):
            self._asked[key] = asked + 1
            await checkpoint()  # as a real call would, so that tasks interleave
            return self._recorded_answer(request, answers[asked])
        if self._model is None:
            raise self._missing(request, asked + 1)
        answer = await self._record(request, key)
        if isinstance(answer, ModelCallError):
            raise answer.with_traceback(None)
        return answer

    async def stream(self, request: ModelRequest, on_text: Callable[[str], object]) -> ModelResponse:
        """Answer like `complete`, and emit the text at once."""
        response = await self.complete(request)
        if response.text:
            on_text(response.text)
        return response

    def file_problem(self, file: File) -> str | None:
        """Return what the model says; without a model, a record takes every file."""
        return None if self._model is None else file_problem(self._model, file)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count like the model; without a model return the recorded usage, else the general bound."""
        count = getattr(self._model, "count_tokens", None)
        if count is not None:
            return int(await count(request))
        key = _digest(request)
        answers, asked = self._answers.get(key, ()), self._asked.get(key, 0)
        usage = getattr(answers[asked], "usage", None) if asked < len(answers) else None
        return usage.prompt_tokens if usage is not None else prompt_bound(request)

    async def _record(self, request: ModelRequest, key: str) -> Answer:
        model = cast("ChatModel", self._model)
        try:
            answer: Answer = await model.complete(request)
        except ModelCallError as error:
            answer = error
        self._answers[key].append(answer)  # kept too: an equal call of this run comes after it
        self._asked[key] = len(self._answers[key])
        self._file.add({"request": key, "number": self._asked[key], "model": model.name, **_line(request, answer)})
        return answer

    def _recorded_answer(self, request: ModelRequest, answer: Answer) -> ModelResponse:
        if isinstance(answer, ModelCallError):
            raise answer.with_traceback(None)  # the same object may be raised again, and would collect tracebacks
        used, most = answer.usage, request.max_tokens
        if used is not None and most is not None and used.completion_tokens > most:
            raise NoRecord(
                self.name,
                f"{self._file}: the recorded reply to {_show_request(request)} has {used.completion_tokens} tokens, "
                f"this call allows {most}: allow more, or record again with mode='record'",
            )
        return answer

    def _missing(self, request: ModelRequest, number: int) -> NoRecord:
        which = "no record of" if number == 1 else f"no record number {number} of"
        return NoRecord(
            self.name,
            f"{self._file}: {which} the request {_show_request(request)} ({_digest(request)[:12]}); to record it, give "
            "RecordReplayModel the model and a mode other than 'replay'",
        )

    def __repr__(self) -> str:
        return f"RecordReplayModel({str(self._file)!r}, {self.name!r})"


class _File:
    """A file of JSON lines, appended one by one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sound: int | None = None
        """Length of the complete lines in bytes, if the last one is cut off."""

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> list[dict[str, Any]]:
        """Return the lines; empty without a file."""
        data = self._path.read_bytes() if self._path.exists() else b""
        whole, _, rest = data.rpartition(b"\n")
        lines = list(self._parse(whole))
        if rest.strip():
            _logger.warning("%s: the last line is cut off and left out", self._path)
            self._sound = len(data) - len(rest)
        return lines

    def _parse(self, data: bytes) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(data.splitlines(), 1):
            if not line.strip():
                continue
            try:
                yield _checked(json.loads(line))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise ValueError(
                    f"{self._path}, line {number}: this is not a record of a model's call ({error})"
                ) from None

    def add(self, line: dict[str, Any]) -> None:
        """Append a line in one write, so that several processes may share one file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._sound is not None:
            os.truncate(self._path, self._sound)  # now, not when read: a replay changes no file
            self._sound = None
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def _checked(line: Any) -> dict[str, Any]:
    """Return the line if it is a record; else raise `ValueError`, `TypeError` or `LookupError`."""
    kinds = {"request": str, "number": int, "model": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(line[name], kind)]
    if wrong or line["number"] < 1:
        raise ValueError(f"wrong {known(wrong or ['number'])}")
    _answer(line)
    return cast("dict[str, Any]", line)


def _answer(line: dict[str, Any]) -> Answer:
    if "error" in line:
        error = line["error"]
        if error["kind"] not in get_args(ModelErrorKind):
            raise ValueError(f"wrong kind {error['kind']!r}")
        return ModelCallError(
            error["kind"], error["model"], error["why"], retry_after=error["retry_after"], unspent=error["unspent"]
        )
    return read(ModelResponse, line["response"])


def _line(request: ModelRequest, answer: Answer) -> dict[str, Any]:
    """Return the record of a call: the request, for people to read, and the answer."""
    asked = request.messages[-1].text if request.messages else ""
    if isinstance(answer, ModelCallError):
        details = {name: getattr(answer, name) for name in ("kind", "model", "why", "retry_after", "unspent")}
        return {"asked": asked, "error": details}
    return {"asked": asked, "response": adapter(ModelResponse).dump_python(answer, mode="json")}


def _put(answers: list[Answer], number: int, answer: Answer) -> None:
    """Put an answer at its place; a later one of the same number replaces it."""
    if number > len(answers):
        answers.append(answer)
    else:
        answers[number - 1] = answer


def _digest(request: ModelRequest) -> str:
    plain, what = request.without_asides, {"max_tokens"}
    # Without defaults, so that a new field of requests does not change the digests of old ones.
    asked = adapter(ModelRequest).dump_python(plain, mode="json", exclude=what, exclude_defaults=True)
    if natives := {at: one.native for at, one in enumerate(plain.messages) if one.native is not None}:
        asked["natives"] = natives  # sent in place of text and calls
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _show_request(request: ModelRequest) -> str:
    asked = request.messages[-1].text if request.messages else ""
    return repr(asked if len(asked) <= _MOST_SHOWN else f"{asked[:_MOST_SHOWN]}...")
