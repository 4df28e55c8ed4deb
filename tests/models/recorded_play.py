"""Play a recorded conversation: our requests to the real client libraries, and a server with the recorded replies."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Recorded JSON has no types.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import httpx2

import kairo_team as kt
from kairo_team._util.frozen import thaw
from kairo_team.models.providers import ProviderModel
from tests.models.provider_wires import client_of
from tests.models.recorded_requests import feature_of, kinds, leaves, plain, said_before, schema_in, specs, turns
from tests.models.recorded_wires import said, streamed, whole

Body = dict[str, Any]
Way = Literal["complete", "stream"]

_SHOWN: Final = 80


class Server:
    """The server of a conversation: answers with the recorded replies, as a stream where it is asked for one."""

    def __init__(self, exchanges: list[Body]) -> None:
        self._left = iter(exchanges)
        self.asked: list[Body] = []
        """The requests that came."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        exchange, body = next(self._left), json.loads(request.content)
        self.asked.append(body)
        wire, status, reply = exchange["api"], exchange["status"], exchange["response"]
        after = exchange.get("retry_after")
        headers = {} if after is None else {"retry-after": str(after)}
        if status != 200:
            return httpx2.Response(status, json=reply, headers=headers)
        if body.get("stream") or "streamGenerateContent" in str(request.url):
            kind = {"content-type": "text/event-stream"}
            return httpx2.Response(200, content=streamed(wire, reply).encode(), headers=kind)
        return httpx2.Response(200, json=whole(wire, reply))


class Played(NamedTuple):
    """What came of one exchange."""

    where: str
    """Names the exchange."""
    wire: str
    feature: str | None
    """What our types cannot say of the request."""
    problems: dict[str, str]
    """What differs, by what was compared."""
    went_back: int
    """Earlier replies that this request carries."""


async def play(conversation: Body, way: Way) -> list[Played]:
    """Play a whole conversation, one call an exchange."""
    played: list[Played] = []
    replies: list[kt.ModelResponse] = []
    for number, exchange in enumerate(conversation["exchanges"]):
        wire, recorded = exchange["api"], exchange["request"]
        where = f"{conversation['name']}[{number}] {way}"
        feature = feature_of(wire, recorded)
        if exchange["status"] != 200:
            continue
        server = Server([exchange])
        model = ProviderModel(f"{wire}:m", client_of(exchange, server))
        asked, back = our_request(wire, recorded, replies)
        pieces: list[str] = []
        try:
            reply = await (model.complete(asked) if way == "complete" else model.stream(asked, pieces.append))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            played.append(Played(where, wire, feature, {"reply": f"{error!r:.300}"}, 0))
            continue
        replies.append(reply)
        problems = dict(_differences(wire, exchange, reply))
        if way == "stream" and "".join(pieces) != reply.text:
            problems["pieces"] = f"{pieces!r:.80}"
        if feature is None:
            bound = await model.count_tokens(asked)
            if reply.usage is not None and bound < reply.usage.prompt_tokens:
                problems["bound"] = f"{bound} < {reply.usage.prompt_tokens}"
            problems |= dict(_lost(wire, recorded, server.asked[0], back))
        played.append(Played(where, wire, feature, problems, len(back)))
    return played


def _differences(wire: str, exchange: Body, reply: kt.ModelResponse) -> Iterator[tuple[str, str]]:
    """Yield in what a reply differs from what the provider said."""
    want = said(wire, whole(wire, exchange["response"]))
    if "".join(reply.text.split()) != want.text:
        yield "text", f"{reply.text[-_SHOWN:]!r}, not {want.text[-_SHOWN:]!r}"
    calls = [(call.name, thaw(call.arguments)) for call in reply.tool_calls]
    if calls != want.calls:
        yield "calls", f"{calls}, not {want.calls}"
    if reply.finish_reason != want.finish:
        yield "finish", f"{reply.finish_reason}, not {want.finish}"
    usage = reply.usage and (reply.usage.prompt_tokens, reply.usage.completion_tokens)
    if usage != want.usage:
        yield "usage", f"{usage}, not {want.usage}"


def our_request(wire: str, recorded: Body, replies: list[kt.ModelResponse]) -> tuple[kt.ModelRequest, list[int]]:
    """Return a recorded request as ours, and which of its messages are earlier replies."""
    messages: list[kt.Message] = []
    back: list[int] = []
    waiting: list[tuple[str, str, str]] = []
    left = list(replies)
    for at, turn in enumerate(turns(wire, recorded)):
        if turn.role == "assistant":
            text, calls = said_before(wire, turn.reply)
            before = _find(left, text, calls)
            if before is None:
                made = [kt.ToolCall(which or f"c{at}-{n}", name, given) for n, (which, name, given) in enumerate(calls)]
                messages.append(kt.Message.assistant(text, made))
            else:
                left.remove(before)
                back.append(at)
                made = list(before.tool_calls)
                messages.append(kt.Message.assistant(before.text, made, before.native))
            waiting += [(was, ours.name, ours.id) for (was, _, _), ours in zip(calls, made, strict=True)]
        elif turn.role == "tool":
            answered = next((one for one in waiting if turn.call in one[:2]), None)
            if answered is not None:
                waiting.remove(answered)
                messages.append(kt.Message.tool(answered[2], turn.text))
        else:
            messages.append(kt.Message(turn.role, turn.text))  # type: ignore[arg-type]
    return kt.ModelRequest(messages, specs(wire, recorded), schema_in(recorded)), back


def _find(replies: list[kt.ModelResponse], text: str, calls: list[tuple[str, str, Any]]) -> kt.ModelResponse | None:
    """Return the earlier reply with that text and those calls."""
    wanted = plain(text), [(name, given) for _, name, given in calls]
    for reply in replies:
        made = [(call.name, thaw(call.arguments)) for call in reply.tool_calls]
        if (plain(reply.text), made) == wanted:
            return reply
    return None


def _lost(wire: str, recorded: Body, sent: Body, back: list[int]) -> Iterator[tuple[str, str]]:
    """Yield what a recorded request carries and ours does not."""
    was, now = turns(wire, recorded), turns(wire, sent)
    ours = "\n".join(plain(leaf) for turn in now for leaf in (turn.text, *leaves(turn.reply)))
    for turn in was:
        missing = [leaf for leaf in (turn.text, *leaves(turn.reply)) if plain(leaf) not in ours]
        if missing:
            yield "next request", f"lost {missing[0][:_SHOWN]!r}"
            return
    before = [turn.reply for turn in was if turn.role == "assistant"]
    after = [turn.reply for turn in now if turn.role == "assistant"]
    places = [at for at, turn in enumerate(was) if turn.role == "assistant"]
    for at, theirs, mine in zip(places, before, after, strict=False):
        if at in back and Counter(kinds(wire, theirs)) - Counter(kinds(wire, mine)):
            yield "next request", f"parts {kinds(wire, mine)}, not {kinds(wire, theirs)}"
            return
