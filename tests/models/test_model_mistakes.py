"""What somebody gives as a model that is none, and the sentence that says what is missing."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team.errors import ModelCallError, ModelUnavailable
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.anyio


class TakesNothing:
    name = "mine:small"

    async def complete(self) -> kt.ModelResponse:
        return kt.ModelResponse("It rises.")


class Numbered:
    name = 5

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return kt.ModelResponse("It rises.")


def write(request: kt.ModelRequest) -> str:
    return "It rises."


MISTAKES: dict[str, tuple[Any, str]] = {
    "a class": (FunctionModel, "FunctionModel is a class, not a chat model: make one, FunctionModel(...)"),
    "a function": (write, "it needs `name` and `async complete`; kairo_team.testing.FunctionModel(function) makes one"),
    "nothing": (None, "None is not a chat model: it needs `name` and `async complete`"),
    "no request": (TakesNothing(), "TakesNothing: complete takes (), and is called as complete(request)"),
    "a number": (Numbered(), "must be a text such as 'mine:small', not 5"),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_an_object_that_is_not_a_model_is_refused_before_work_starts(name: str) -> None:
    given, sentence = MISTAKES[name]
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent("openai:gpt-5-mini"))])
    result = await kt.run(team, "Explain.", runtime=kt.Runtime(models={"openai:gpt-5-mini": given}))
    assert result.refused
    assert result.error is not None
    assert result.error.startswith("member 'writer': model 'openai:gpt-5-mini' cannot be used: ")
    assert sentence in result.error


async def test_a_model_is_refused_for_the_same_reasons_under_its_own_name() -> None:
    given: Any = TakesNothing()
    with pytest.raises(ModelUnavailable, match=r"TakesNothing: complete takes \(\)"):
        kt.Runtime().models.resolve(given)


@pytest.mark.parametrize("returned", [None, 5, {"text": "It rises."}])
async def test_a_function_that_returns_no_reply_is_named(returned: Any) -> None:
    model = FunctionModel(lambda _request: returned, name="test:small")
    with pytest.raises(
        TypeError, match="the function of model 'test:small' must return a text or a ModelResponse, not"
    ):
        await model.complete(kt.ModelRequest([kt.Message.user("Explain.")]))


def test_a_model_of_a_function_takes_a_function_of_a_request() -> None:
    made: Any = FunctionModel
    with pytest.raises(ValueError, match=r"FunctionModel takes a function of a request, not 'It rises.'"):
        made("It rises.")
    with pytest.raises(ValueError, match=r"FunctionModel: <lambda> takes \(\), and is called as function\(request\)"):
        made(lambda: "It rises.")


LISTS: dict[str, tuple[dict[str, Any], str]] = {
    "models": (
        {"models": [FunctionModel(lambda _request: "It rises.")]},
        "models are given by name, such as {'openai:gpt-5-mini': model}, not [FunctionModel(",
    ),
    "model_limits": (
        {"model_limits": kt.ModelLimit(8)},
        "limits are given by model, such as {'openai:*': kt.ModelLimit(8)}, not ModelLimit(",
    ),
    "prices": ({"prices": 0.5}, "prices are given by model, such as {'openai:gpt-5-mini': kt.Price(0.25, 2)}, not 0.5"),
}


@pytest.mark.parametrize("name", LISTS)
def test_what_a_runtime_takes_by_name_is_a_mapping(name: str) -> None:
    given, sentence = LISTS[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared
        kt.Runtime(**given)
    assert str(caught.value).startswith(sentence)


def test_an_error_of_a_kind_that_nothing_retries_is_refused() -> None:
    kind: Any = "rate_limit"
    sentence = (
        "ModelCallError: the kind 'rate_limit' is unknown; did you mean 'rate_limited'? "
        "there are 'auth', 'bad_request', 'connection', 'content_filter', 'context_length', 'overloaded', "
        "'rate_limited', 'timeout', 'unknown'"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared
        ModelCallError(kind, "mine:small", "later")
    assert str(caught.value) == sentence
