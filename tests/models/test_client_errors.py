"""Errors of providers' own clients, told by what they carry and are called: no client is imported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from kairo_team.models.provider_errors import call_error, client_error
from kairo_team.models.readings import call_error_of


class APIError(Exception):
    """What clients call their errors."""


class APIConnectionError(APIError):
    pass


class APITimeoutError(APIConnectionError):
    pass


class ConnectError(Exception):
    """What a transport raises before a request leaves."""


class StatusError(APIError):
    def __init__(self, status: Any, code: Any = None, **headers: str) -> None:
        super().__init__("no")
        self.status_code, self.code = status, code
        self.body: Any = None
        self.response = SimpleNamespace(headers={name.replace("_", "-"): told for name, told in headers.items()})


def saying(words: str, **headers: str) -> StatusError:
    error = StatusError(429, **headers)
    error.body = {"error": {"message": words}}
    return error


def never_sent() -> APIConnectionError:
    error = APIConnectionError("no route")
    error.__cause__ = ConnectError()
    return error


@pytest.mark.parametrize(
    ("error", "kind", "unspent"),
    [
        (StatusError(400), "bad_request", True),
        (StatusError(400, "context_length_exceeded"), "context_length", True),
        (StatusError(400, ["no", "word"]), "bad_request", True),
        (StatusError(401), "auth", True),
        (StatusError(408), "timeout", False),
        (StatusError(409), "bad_request", False),
        (StatusError(429), "rate_limited", True),
        (StatusError(429, "insufficient_quota"), "auth", True),
        (StatusError(500), "overloaded", False),
        (StatusError(529), "overloaded", False),
        (StatusError(599), "unknown", False),
        (APIConnectionError(), "connection", False),
        (never_sent(), "connection", True),
        (ConnectionRefusedError(), "connection", True),
        (ConnectionResetError(), "connection", False),
        (APITimeoutError(), "timeout", False),
        (TimeoutError(), "timeout", False),
        (APIError("odd"), "unknown", False),
        (StatusError("no number"), "unknown", False),
    ],
    ids=repr,
)
def test_what_an_error_means_and_whether_it_is_charged(error: Exception, kind: str, unspent: bool) -> None:
    meant = client_error("house:m", error)
    assert meant is not None
    assert (meant.kind, meant.unspent, meant.model) == (kind, unspent, "house:m")


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("x")], ids=repr)
def test_what_is_not_the_providers_is_left_alone(error: Exception) -> None:
    assert client_error("house:m", error) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "3"}, 3.0),
        ({"retry_after_ms": "20"}, 0.02),
        ({"retry_after": "-1"}, 0.0),
        ({"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
        ({}, None),
    ],
)
def test_how_long_the_provider_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    meant = client_error("house:m", StatusError(429, **headers))
    assert meant is not None
    assert meant.retry_after == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached on tokens per min (TPM): Limit 30000. Please try again in 6.2s. Visit the page.", 6.2),
        ("Please try again in 1m30.5s.", 90.5),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 512ms.", 0.512),
        ("Please retry after 24 seconds.", 24.0),
        ("Please try again in 1h 2m.", 3720.0),
        ("Please try again in 2 minutes.", 120.0),
        ("Please try again later.", None),
        ("Try again in 5 stages.", None),
    ],
)
def test_the_wait_is_read_from_the_providers_words_where_no_header_says_it(words: str, seconds: float | None) -> None:
    by_client = client_error("house:m", saying(words))
    by_library = call_error("house:m", ModelHTTPError(429, "m", {"message": words}))
    in_a_reply = call_error_of("house:m", {"error": {"code": 429, "message": words}}, "it failed")
    for meant in (by_client, by_library, in_a_reply):
        assert meant is not None
        assert meant.retry_after == (None if seconds is None else pytest.approx(seconds))
    told = client_error("house:m", saying(words, retry_after="3"))
    assert told is not None
    assert told.retry_after == 3.0


def test_a_long_complaint_is_cut() -> None:
    meant = client_error("house:m", APIError("y" * 9999))
    assert meant is not None
    assert len(meant.why) < 600
