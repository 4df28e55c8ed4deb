"""Another model where one does not answer: by kind of error, each held and priced by itself, nothing replaced twice."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import HaltError, ModelCallError, ModelErrorKind, ModelUnavailable, UnpricedModel
from kairo_team.governance import Governor
from kairo_team.governance.pricing import PriceBook
from kairo_team.models import resolver
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.resolver import ModelResolver, single_models
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel, forbid_real_models
from tests.models.reports import at_end, ignore

pytestmark = pytest.mark.anyio

ASK = kt.ModelRequest([kt.Message.user("one two three four five six seven eight nine ten")], max_tokens=40)
NO_RETRY = CallRules(kt.ModelRetry(retries=0))


def failing(kind: ModelErrorKind = "overloaded", name: str = "a:first", **more: Any) -> ScriptedModel:
    return ScriptedModel([ModelCallError(kind, name, "no", **more)] * 5, name=name)


def answering(text: str = "From the spare.", name: str = "b:spare") -> ScriptedModel:
    return ScriptedModel([text], name=name)


def govern(
    model: ChatModel, budget: kt.Budget | None = None, prices: dict[str, kt.Price] | None = None
) -> tuple[GovernedModel, Governor, list[tuple[str, str, int]]]:
    governor, tries = Governor(budget or kt.Budget()), list[tuple[str, str, int]]()

    def report(name: str, outcome: str, held: int, usage: kt.Usage) -> None:
        tries.append((name, outcome, usage.tokens))

    return GovernedModel(model, governor, at_end(report), PriceBook(prices), NO_RETRY), governor, tries


async def test_the_next_one_answers_and_each_is_charged_under_its_own_name() -> None:
    governed, governor, tries = govern(kt.Fallback(failing(), failing(name="c:second", unspent=True), answering()))
    assert (await governed.complete(ASK)).text == "From the spare."
    assert tries == [("a:first", "error", 50), ("c:second", "error", 0), ("b:spare", "ok", 13)]
    assert (governed.name, governor.usage.tokens) == ("a:first", 63)


async def test_each_is_retried_before_the_next_is_asked() -> None:
    first, spare = failing(), answering()
    governed = GovernedModel(kt.Fallback(first, spare), Governor(), ignore)
    await governed.complete(ASK)
    assert (len(first.calls), len(spare.calls)) == (3, 1)


@pytest.mark.parametrize("kind", get_args(ModelErrorKind))
async def test_which_errors_lead_to_the_next_one(kind: ModelErrorKind) -> None:
    """By default all but those that are in the request; with `on`, those."""
    for model, asked in [
        (kt.Fallback(failing(kind), answering()), kind not in {"bad_request", "content_filter"}),
        (kt.Fallback(failing(kind), answering(), on=["context_length"]), kind == "context_length"),
        (kt.Fallback(failing(kind), answering(), on="timeout"), kind == "timeout"),
    ]:
        governed, *_ = govern(model)
        if asked:
            assert (await governed.complete(ASK)).text == "From the spare."
        else:
            with pytest.raises(ModelCallError):
                await governed.complete(ASK)


async def test_the_last_ones_error_is_the_calls() -> None:
    governed, *_ = govern(kt.Fallback(failing(), failing("auth", "b:spare")))
    with pytest.raises(ModelCallError, match="'b:spare' did not answer"):
        await governed.complete(ASK)


@pytest.mark.parametrize("error", [ConnectionError("lost"), ModelUnavailable("a:first", "no key"), ValueError("bad")])
async def test_errors_that_are_no_model_call_errors_end_the_call(error: Exception) -> None:
    spare = answering()
    governed, *_ = govern(kt.Fallback(ScriptedModel([error], name="a:first"), spare))
    with pytest.raises(type(error)):
        await governed.complete(ASK)
    assert not spare.calls


async def test_a_used_up_budget_ends_the_call() -> None:
    spare = answering()
    governed, governor, _ = govern(kt.Fallback(failing(), spare), kt.Budget(tokens=50))
    with pytest.raises(HaltError):
        await governed.complete(ASK)
    assert (governor.usage.tokens, spare.calls) == (50, [])


class Unpriced:
    name = "mine:model"

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        return kt.ModelResponse("Fine.", usage=kt.Usage(10, 1))


async def test_a_missing_price_ends_the_call_and_each_is_priced_by_itself() -> None:
    spare = answering()
    governed, governor, _ = govern(kt.Fallback(Unpriced(), spare), kt.Budget(dollars=1))
    with pytest.raises(UnpricedModel):
        await governed.complete(ASK)
    assert not spare.calls
    prices = {"a:*": kt.Price(1000, 1000), "mine:*": kt.Price(request="0.25")}
    governed, governor, _ = govern(kt.Fallback(failing(unspent=True), Unpriced()), kt.Budget(dollars=1), prices)
    await governed.complete(ASK)
    assert governor.usage.dollars == kt.Budget(dollars="0.25").dollars


async def test_a_run_does_not_start_while_any_of_them_has_no_price() -> None:
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(kt.Fallback(answering(name="a:first"), Unpriced())))])
    check = kt.check(team, "Write.", budget=kt.Budget(dollars=1))
    assert [problem.partition(" and ")[0] for problem in check.problems] == [
        "member 'writer': the price of model 'mine:model' is unknown"
    ]


async def test_limits_are_each_models_own() -> None:
    first = failing(unspent=True)
    runtime = kt.Runtime(
        models={"a:first": first, "b:spare": answering()}, model_limits={"a:*": kt.ModelLimit(per_minute=1)},
        model_retry=kt.ModelRetry(retries=0),
    )  # fmt: skip
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(kt.Fallback("a:first", "b:spare")))])
    recorder = EventRecorder()
    result = await kt.run(team, "Write.", runtime=runtime)
    assert result.check().output == "From the spare."
    assert (len(first.calls), recorder.events) == (1, [])


async def test_fallbacks_can_stand_in_fallbacks() -> None:
    inner = kt.Fallback(failing("timeout", "b:one"), failing("auth", "b:two"), on=["timeout"])
    governed, _, tries = govern(kt.Fallback(failing(), inner, answering(name="c:spare")))
    assert (await governed.complete(ASK)).text == "From the spare."
    assert [name for name, *_ in tries] == ["a:first", "b:one", "b:two", "c:spare"]
    assert [model.name for model in single_models(inner)] == ["b:one", "b:two"]


# ---------------------------------------------------------------- names


async def test_a_name_may_be_replaced_by_a_fallback_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"openai:m": failing(name="openai:m"), "other:m": answering(name="other:m")}
    monkeypatch.setattr(resolver, "_build", built.__getitem__)
    found = ModelResolver({"openai:*": kt.Fallback("openai:m", "other:m")}).resolve("openai:m")
    assert [model.name for model in single_models(found)] == ["openai:m", "other:m"]
    governed, *_ = govern(found)
    assert (await governed.complete(ASK)).text == "From the spare."


def test_names_in_a_fallback_that_an_agent_has_are_replaced_like_any_other() -> None:
    double = FunctionModel(lambda _: "Fine.")
    with forbid_real_models():
        found = ModelResolver({"openai:*": double, "google:*": double}).resolve(kt.Fallback("openai:m", "google:m"))
        assert list(single_models(found)) == [double, double]
        with pytest.raises(ModelUnavailable, match="forbidden here"):
            ModelResolver({"openai:*": double}).resolve(kt.Fallback("openai:m", "google:m"))
        with pytest.raises(ModelUnavailable, match="forbidden here"):
            ModelResolver({"*": kt.Fallback("openai:m", double)}).resolve("openai:m")


def test_a_team_with_a_fallback_nobody_serves_does_not_start() -> None:
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(kt.Fallback(answering(), "opnai:m")))])
    assert "opnai" in kt.check(team, "Write.").problems[0]


class Counting(ScriptedModel):
    """Counts as it is told, or cannot."""

    def __init__(self, count: int | ModelCallError) -> None:
        super().__init__([])
        self.count = count

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        if isinstance(self.count, ModelCallError):
            raise self.count
        return self.count


@pytest.mark.parametrize(
    ("models", "count"),
    [
        ([Counting(3), Counting(5), Counting(4)], 5),
        ([Counting(3), Unpriced()], None),
        ([Counting(ModelCallError("overloaded", "a:first", "no")), Counting(4)], None),
    ],
    ids=["the largest", "one does not count", "one cannot just now"],
)
async def test_a_prompt_has_as_many_tokens_as_any_of_them_counts(models: list[ChatModel], count: int | None) -> None:
    governed, _, _ = govern(kt.Fallback(*models))
    assert await governed.count_tokens(ASK) == count


async def test_it_is_a_chat_model_by_itself() -> None:
    model = kt.Fallback(failing(), answering())
    assert isinstance(model, ChatModel)
    assert (await model.complete(ASK)).text == "From the spare."
    with pytest.raises(TypeError, match="'a:b' is a name"):
        await kt.Fallback("a:b", answering()).ask(lambda chosen: chosen.complete(ASK))


@pytest.mark.parametrize(
    ("models", "on", "message"),
    [
        (("a:b",), ["timeout"], "at least two models, not only 'a:b'"),
        (("a:b", 3), ["timeout"], "made of models and their names, not of 3"),
        ((None, "a:b"), ["timeout"], "made of models and their names, not of None"),
        (("a:b", "c:d"), ["slow"], "no such kind of error as 'slow'; there are 'auth'"),
    ],
)
def test_what_is_no_fallback_is_refused(models: tuple[Any, ...], on: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kt.Fallback(*models, on=on)
