"""Recorded conversations of real providers, played through their real client libraries.

Of each exchange: text, calls, finish reason, usage, the pieces of a stream, and the bound of the prompt against the
bill. Of each conversation: the next request carries everything that the recorded one carries, ids aside. What our types
cannot say is left out by the name of its feature; the reply is compared all the same.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import pytest

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.models.providers import ProviderModel
from tests.models.provider_wires import RECORDED, client_of, model_of
from tests.models.recorded_play import Played, Server, Way, our_request, play
from tests.models.recorded_requests import SERVER_STATE

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore:The model '.*' is deprecated:DeprecationWarning"),  # it was not when recorded
]

FILES: Final = ("anthropic-messages", "google-generate", "openai-chat", "openai-compatible", "openai-responses")
WAYS: Final[tuple[Way, ...]] = get_args(Way)
_KINDS: Final = {400: "bad_request", 404: "bad_request", 429: "rate_limited"}


@cache
def conversations(file: str) -> list[Any]:
    """Return the recorded conversations of a file; skips the test where the folder is missing."""
    if not RECORDED.is_dir():
        pytest.skip("the recorded replies of providers are not here: ../shared/recorded-providers of the repository")
    return [json.loads(line) for line in (RECORDED / f"{file}.jsonl").read_text().splitlines()]


def unexplained(one: Played) -> dict[str, str]:
    """Return the problems of an exchange that have no reason."""
    return {} if one.feature == SERVER_STATE else one.problems  # the reply is at the server, for a later request


_played: Final[dict[tuple[str, Way], list[Played]]] = {}


async def played_of(file: str, way: Way) -> list[Played]:
    """Play the conversations of a file once."""
    if (file, way) not in _played:
        _played[file, way] = [one for conversation in conversations(file) for one in await play(conversation, way)]
    return _played[file, way]


@on_asyncio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("file", FILES)
async def test_each_reply_is_what_the_provider_said_and_goes_back_whole(file: str, way: Way) -> None:
    played = await played_of(file, way)
    problems = {one.where: found for one in played if (found := unexplained(one))}
    assert not problems
    said = [one for one in played if one.feature is None]
    assert len(said) > len(played) / 2
    assert sum(one.went_back for one in said) > 0


@on_asyncio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("file", FILES)
async def test_each_failure_has_its_kind_and_its_waiting_time(file: str, way: Way) -> None:
    failed = [
        (conversation["name"], exchange)
        for conversation in conversations(file)
        for exchange in conversation["exchanges"]
        if exchange["status"] != 200
    ]
    assert failed
    for name, exchange in failed:
        for after in (exchange["retry_after"], 7):
            model = ProviderModel("p:m", client_of(exchange, Server([{**exchange, "retry_after": after}])))
            asked, _ = our_request(exchange["api"], exchange["request"], [])
            with pytest.raises(ModelCallError) as caught:
                await (model.complete(asked) if way == "complete" else model.stream(asked, lambda _: None))
            assert caught.value.kind == _KINDS[exchange["status"]], name
            assert caught.value.retry_after == (None if after is None else float(after)), name
            assert caught.value.unspent, name


@on_asyncio
async def test_the_table_in_the_docs_says_what_is_proved() -> None:
    """Of each wire: the exchanges whose reply and whose request are compared, and the replies that went back."""
    read: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    back: Counter[str] = Counter()
    for file in FILES:
        for one in await played_of(file, "complete"):
            compared = "reply" not in one.problems
            read[one.wire] += compared
            asked[one.wire] += compared and one.feature is None
            back[one.wire] += one.went_back if one.feature is None else 0
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    for wire in FILES:
        assert f"| {read[wire]} | {asked[wire]} | {back[wire]} |" in page, (wire, read[wire], asked[wire], back[wire])


@on_asyncio
async def test_a_wrong_key_of_gemini_is_known_by_its_words_because_its_status_is_that_of_a_wrong_request() -> None:
    why = {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}
    with pytest.raises(ModelCallError) as caught:
        await model_of("google-generate", {"error": why}, 400).complete(kt.ModelRequest([kt.Message.user("Hello")]))
    assert (caught.value.kind, caught.value.unspent) == ("auth", True)
