"""What a proxy, or a server of one's own, says about an error: read for its kind, shown as a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team.errors import ModelCallError
from kairo_team.governance import Governor
from kairo_team.models import OpenAICompatible
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.provider_errors import client_error
from tests.models.reports import ignore
from tests.models.test_openai_compatible import Server

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

ASK = kt.ModelRequest([kt.Message.user("Hello")], max_tokens=40)
SCHEMA = kt.ModelRequest(ASK.messages, output_schema={"type": "object", "properties": {}}, max_tokens=40)
GROUP = "\nReceived Model Group=small\nAvailable Model Group Fallbacks=None"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def of_proxy(message: str, code: str | None = None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


INSIDE = (
    "{'error': {'message': 'the request (9000 tokens) exceeds the available context size (4096 tokens)', 'code': 400}}"
)
ANSWERS = [
    (
        400,
        of_proxy(
            "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - "
            "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens." + GROUP,
            "400",
        ),
        "context_length",
        "you requested 9000 tokens.",
    ),
    (
        400,
        of_proxy(f"litellm.BadRequestError: OpenAIException - Error code: 400 - {INSIDE}" + GROUP, "400"),
        "context_length",
        "HTTP 400: the request (9000 tokens) exceeds the available context size (4096 tokens)",
    ),
    (
        429,
        of_proxy(
            "No deployments available - crossed budget: Exceeded budget for deployment model_name: small, "
            "litellm_params.model: openai/small, model_id: 1: 0.00015 >= 1e-12",
            "429",
            "None",
        ),
        "auth",
        "HTTP 429: No deployments available - crossed budget: Exceeded budget for deployment model_name: small",
    ),
    (
        400,
        of_proxy("Budget has been exceeded! Current cost: 26.075, Max budget: 0.25", "400", "budget_exceeded"),
        "auth",
        "HTTP 400: Budget has been exceeded! Current cost: 26.075, Max budget: 0.25",
    ),
    (
        429,
        of_proxy("User engineer-1 is over its share for model=small", "429", "budget_exceeded"),
        "auth",
        "HTTP 429: User engineer-1 is over its share",
    ),
    (
        500,
        of_proxy("litellm.AuthenticationError: OpenAIException - Incorrect API key provided: sk-1" + GROUP, "500"),
        "auth",
        "HTTP 500: litellm.AuthenticationError: OpenAIException - Incorrect API key provided: sk-1",
    ),
    (
        429,
        of_proxy("No deployments available for selected model, Try again in 5 seconds. Passed model=small", "429"),
        "rate_limited",
        "HTTP 429: No deployments available for selected model",
    ),
    (503, {"detail": "warming up"}, "overloaded", "HTTP 503: warming up"),
    (400, [of_proxy("no such field", "400")], "bad_request", "HTTP 400: no such field"),
]


@pytest.mark.parametrize(("status", "body", "kind", "said"), ANSWERS)
async def test_third_o58_a_proxys_errors_have_the_kind_their_words_tell(
    server: Server, status: int, body: Any, kind: str, said: str
) -> None:
    """Nothing is charged for what the server behind the proxy refused, and what it refuses again is not tried again."""
    for _ in range(3):
        server.will(body, status, Retry_After="0")
    governor = Governor(kt.Budget(tokens=10_000))
    rules = CallRules(kt.ModelRetry(retries=2, backoff=0.01))
    with pytest.raises(ModelCallError) as caught:
        await GovernedModel(server.model, governor, ignore, rules=rules).complete(ASK)
    assert caught.value.kind == kind
    assert said in str(caught.value)
    assert not set("{}[]") & set(str(caught.value)), "a sentence, not a dict"
    assert "Received Model Group" not in str(caught.value)
    final = kind in {"auth", "context_length", "bad_request"}
    assert len(server.asked) == (1 if final else 3)
    assert bool(governor.usage.tokens) == (kind == "overloaded")


@pytest.mark.parametrize(("status", "body", "kind", "said"), ANSWERS)
def test_third_o58_errors_of_other_libraries_clients_are_read_the_same_way(
    status: int, body: Any, kind: str, said: str
) -> None:
    """OpenAI's own error, as LangChain and the Agents SDK raise it."""
    httpx2, openai = pytest.importorskip("httpx2"), pytest.importorskip("openai")
    answer = httpx2.Response(status, json=body, request=httpx2.Request("POST", "http://proxy/v1"))
    fields: dict[str, Any] = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner: Any = fields.get("error", body)
    error = client_error(
        "openai:m", openai.APIStatusError(f"Error code: {status} - {body}", response=answer, body=inner)
    )
    assert error is not None
    assert error.kind == kind
    assert said in error.why
    assert not set("{}[]") & set(error.why)


LONGER = "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
TO_KEEP = "The number of tokens to keep from the initial prompt is greater than the context length."
POLICY = "litellm.ContentPolicyViolationError: litellm.BadRequestError: AzureException - filtered"
QUOTA = "litellm.RateLimitError: You exceeded your current quota, please check your plan and billing details."
OTHERS: list[tuple[int, Any, str, str]] = [
    (400, of_proxy(LONGER, "400"), "context_length", LONGER),
    (400, {"error": TO_KEEP}, "context_length", TO_KEEP),
    (400, {"message": "Input is too long for requested model."}, "context_length", "Input is too long"),
    (
        400,
        {"object": "error", "message": "The input (5000 tokens) is longer than the model's context length (4096)."},
        "context_length",
        "HTTP 400: The input (5000 tokens)",
    ),
    (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096."}, "context_length", "must be <= 4096"),
    (
        400,
        of_proxy("too many tokens: total number of tokens in the prompt cannot exceed 4."),
        "context_length",
        "too many",
    ),
    (413, of_proxy("Request too large for model `m` on TPM: Limit 6, Requested 9"), "context_length", "too large"),
    (400, of_proxy(POLICY + GROUP, "400"), "content_filter", POLICY),
    (429, of_proxy(QUOTA + GROUP, "429"), "auth", QUOTA),
    (429, of_proxy(QUOTA + " Please retry in 36.5s.", "429"), "rate_limited", "Please retry in 36.5s."),
    (500, of_proxy("litellm.PermissionDeniedError: no access", "500"), "auth", "no access"),
    (400, of_proxy("Your credit balance is too low to access the API."), "auth", "Your credit balance is too low"),
    (
        429,
        {"error": {"message": "Upstream", "code": 429, "metadata": {"raw": "slow down"}}},
        "rate_limited",
        "Upstream: slow down",
    ),
    (
        422,
        {"detail": [{"loc": ["body", "messages"], "msg": "field required", "type": "missing"}]},
        "bad_request",
        "HTTP 422: body.messages: field required",
    ),
    (400, {"success": False, "errors": [{"message": "bad input", "code": 5006}]}, "bad_request", "HTTP 400: bad input"),
    (400, {"error": {"type": "invalid_request_error"}}, "bad_request", "HTTP 400: invalid_request_error"),
    (400, {"error": {"message": {"text": "deep", "code": 1}}}, "bad_request", "HTTP 400: deep"),
    (400, of_proxy('{"error": {"message": "inner words", "code": 400}}'), "bad_request", "HTTP 400: inner words"),
    (400, {"status": "refused", "hint": "no"}, "bad_request", "HTTP 400: status: refused, hint: no"),
    (
        502,
        b"<html><head><title>502 Bad Gateway</title></head></html>",
        "overloaded",
        "502 Bad Gateway",
    ),
    (524, b"<html><title>a.b | 524: A timeout occurred</title></html>", "timeout", "HTTP 524: a.b | 524: A timeout"),
    (521, b"error code: 521", "overloaded", "HTTP 521: error code: 521"),
]


async def test_third_o58_errors_of_other_servers_and_proxies_have_their_kind_and_are_sentences(server: Server) -> None:
    """vLLM, LM Studio, Bedrock, SGLang, TGI, Cohere, Groq, LiteLLM, FastAPI, Cloudflare, nginx, as they answer."""
    model = server.model
    for status, body, kind, said in OTHERS:
        server.will(body, status)
        with pytest.raises(ModelCallError) as caught:
            await model.complete(ASK)
        assert (caught.value.kind, said in caught.value.why) == (kind, True), str(caught.value)
        assert not set("{}[]") & set(caught.value.why), "a sentence, not a dict"
        assert "Received Model Group" not in caught.value.why


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"", json.dumps("no").encode()])
async def test_third_o58_a_body_that_is_no_error_is_shown_as_it_is(server: Server, body: bytes) -> None:
    server.will(body, 502)
    with pytest.raises(ModelCallError) as caught:
        await server.model.complete(ASK)
    assert caught.value.kind == "overloaded"
    assert "502" in str(caught.value)


@pytest.mark.parametrize("status", [500, 400])
async def test_third_o58_where_a_server_stumbles_over_a_schema_json_schema_is_named(
    server: Server, status: int
) -> None:
    server.will_refuse(status).will_refuse(status).will_refuse(status)
    model = server.model
    with pytest.raises(
        ModelCallError, match=r"HTTP \d+: no; .*OpenAICompatible\(\.\.\., json_schema=False\)"
    ) as caught:
        await model.complete(SCHEMA)
    assert caught.value.unspent == (status == 400)
    with pytest.raises(ModelCallError) as plain:
        await model.complete(ASK)
    with pytest.raises(ModelCallError) as prompted:
        await OpenAICompatible("m", server.url, json_schema=False).complete(SCHEMA)
    assert "json_schema" not in f"{plain.value} {prompted.value}"
