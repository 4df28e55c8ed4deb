"""How a model call is admitted: at any fan-out nothing is overspent, and what there is gets used."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.errors import HaltError, InsufficientBudget, ModelUnavailable
from kairo_team.governance import Governor
from kairo_team.models.governed_model import GovernedModel
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from tests.models.reports import at_end, ignore

pytestmark = pytest.mark.anyio

LIMIT = 250
CALL = 100
WIDTHS = (1, 4, 16, 32, 128)
NAME = "test:provider"

Fate = Literal["full", "short", "silent", "error"]
Complete = Callable[[kt.ModelRequest], Awaitable[kt.ModelResponse]]
FATES: tuple[Fate, ...] = ("full", "short", "silent", "error")


def words(count: int) -> str:
    return " ".join(["word"] * count)


def ask(prompt: int, reply: int | None) -> kt.ModelRequest:
    """Make a request of so many words, for a reply of at most so many."""
    return kt.ModelRequest([kt.Message.user(words(prompt))], max_tokens=reply)


@dataclass
class Provider:
    """Takes its time and keeps its own bill, also of the calls that fail and of those it says nothing about."""

    fates: random.Random
    billed: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    made: Counter[Fate] = field(default_factory=Counter[Fate])

    async def __call__(self, request: kt.ModelRequest) -> kt.ModelResponse:
        assert request.max_tokens is not None
        fate = self.fates.choices(FATES, [5, 3, 1, 1])[0]
        prompt = sum(len(message.text.split()) for message in request.messages)
        reply = request.max_tokens if fate == "full" else self.fates.randint(1, request.max_tokens)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await anyio.sleep(self.fates.uniform(0.1, 3.0))
        self.in_flight -= 1
        self.billed += prompt + reply
        self.made[fate] += 1
        if fate == "error":
            raise ConnectionError("the reply was lost on its way")
        return kt.ModelResponse(words(reply), usage=None if fate == "silent" else kt.Usage(prompt, reply))


class NoTokenizer:
    """A model that cannot count tokens: its prompts are bounded by their bytes."""

    def __init__(self, model: FunctionModel) -> None:
        self.name = model.name
        self.complete = model.complete
        self.price = model.price


def chance(seed: object) -> random.Random:
    """Return what draws the same in every run."""
    return random.Random(str(seed))  # noqa: S311 - repeatable, no secret


def provider(seed: int, *, tokenizer: bool = True) -> tuple[Provider, Any]:
    """Make a provider and the model that reaches it."""
    it = Provider(chance(seed))
    model = FunctionModel(it, name=NAME)
    return it, model if tokenizer else NoTokenizer(model)


async def use_up(complete: Complete, sizes: random.Random, *, tokenizer: bool = True) -> None:
    """Call, whatever comes back, until the budget refuses; the most a call may cost is a hundred tokens."""
    for _ in range(40):
        prompt = sizes.randint(1, 30) if tokenizer else sizes.randint(1, 4)
        bound = prompt if tokenizer else prompt_bound(ask(prompt, None))
        try:
            await complete(ask(prompt, CALL - bound))
        except (HaltError, InsufficientBudget):
            return
        except ConnectionError:
            continue


# ---------------------------------------------------------------- any fan-out


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tokenizer", [True, False], ids=["tokenizer", "bytes"])
async def test_kf_b01_callers_of_governed_models_never_overspend_and_use_what_there_is(
    width: int, *, tokenizer: bool
) -> None:
    """B01: check, call, record, nothing held in between: 16 parallel callers under 250 tokens spent 1600."""
    for seed in range(5):
        team = Governor(kt.Budget(tokens=LIMIT), name="team")
        bill, model = provider(seed, tokenizer=tokenizer)
        async with anyio.create_task_group() as group:
            for number in range(width):
                governed = GovernedModel(model, team.carve(f"caller-{number}"), ignore)
                sizes = chance((seed, number))
                group.start_soon(partial(use_up, governed.complete, sizes, tokenizer=tokenizer))
        spent = team.usage.tokens
        assert bill.billed <= spent <= LIMIT, (seed, bill)
        assert spent >= 0.6 * LIMIT, (seed, bill)
        assert width == 1 or bill.most_in_flight > 1
        assert team.tree().overshoot == kt.Usage()


async def run_governed(agent: Any, model: Any, plan: kt.TaskGraph, **more: Any) -> tuple[kt.TeamResult, EventRecorder]:
    """Run a plan under the limit with one member whose only model is `model`."""
    recorder = EventRecorder()
    runtime = kt.Runtime(models={NAME: model}, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("member", agent)])
    request = kt.TeamExecutionRequest("Ask.", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=LIMIT)))
    result = await kt.run(team, request, runtime=runtime, **more)
    recorder.assert_lawful()
    return result, recorder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tokenizer", [True, False], ids=["tokenizer", "bytes"])
async def test_kf_b01_a_member_that_fans_out_never_overspends_and_uses_what_there_is(
    width: int, *, tokenizer: bool
) -> None:
    bill, model = provider(width, tokenizer=tokenizer)

    async def fan_out(_: kt.Assignment, context: kt.MemberContext) -> str:
        async with anyio.create_task_group() as group:
            for number in range(width):
                complete, sizes = context.model(NAME).complete, chance(number)
                group.start_soon(partial(use_up, complete, sizes, tokenizer=tokenizer))
        return "done"

    result, recorder = await run_governed(fan_out, model, kt.TaskGraph([kt.Task("all", "Ask.")]))
    assert result.status is kt.TeamStatus.COMPLETED
    assert bill.billed <= result.usage.tokens <= LIMIT
    assert result.usage.tokens >= 0.6 * LIMIT
    calls = [event for event in recorder.events if isinstance(event, kt.events.ModelCalled)]
    assert sum(call.usage.tokens for call in calls) == result.usage.tokens
    assert Counter(call.outcome for call in calls) == Counter(
        {"ok": bill.made["full"] + bill.made["short"], "unknown": bill.made["silent"], "error": bill.made["error"]}
    )


@pytest.mark.parametrize("width", WIDTHS)
async def test_kf_b01_tasks_side_by_side_never_overspend_and_use_what_there_is(width: int) -> None:
    bill, model = provider(width)

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        await use_up(context.model(NAME).complete, chance(assignment.task.id))
        return "done"

    plan = kt.TaskGraph([kt.Task(f"t{number}", "Ask.") for number in range(width)])
    result, _ = await run_governed(work, model, plan)
    assert bill.billed <= result.usage.tokens <= LIMIT
    assert result.usage.tokens >= 0.6 * LIMIT


async def test_128_tasks_of_one_call_each_use_what_there_is() -> None:
    """A refusal for want of a share is no reason to fail a task while others still hold shares they will return."""

    async def answer(_: kt.ModelRequest) -> str:
        await anyio.sleep(1)
        return words(CALL)

    model = FunctionModel(answer, name=NAME)

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(NAME).complete(ask(20, 80))).text

    plan = kt.TaskGraph([kt.Task(f"t{number}", "Ask.") for number in range(128)])
    result, _ = await run_governed(work, model, plan)
    assert 0.6 * LIMIT <= result.usage.tokens <= LIMIT


@pytest.mark.parametrize("width", WIDTHS)
async def test_kf_b01_callers_never_pass_a_limit_in_dollars(width: int) -> None:
    team = Governor(kt.Budget(dollars="0.25"), name="team")
    model = FunctionModel(lambda _: words(CALL), name=NAME, dollars_per_token="0.001")
    refused = 0

    async def caller(governed: GovernedModel, prompt: int) -> None:
        nonlocal refused
        for _ in range(4):
            try:
                await governed.complete(ask(prompt, CALL - prompt))
            except (HaltError, InsufficientBudget):
                refused += 1
                return

    async with anyio.create_task_group() as group:
        for number in range(width):
            governed = GovernedModel(model, team.carve(f"caller-{number}"), ignore)
            group.start_soon(caller, governed, 5 + number % 20)
    assert Decimal("0.15") <= team.usage.dollars <= Decimal("0.25")
    assert refused


async def test_kf_b03_members_with_shares_of_their_own_never_spend_more_than_the_team_has() -> None:
    """B03: four children of $0.60 under a $1 parent, all spent: $2.40."""
    team = Governor(kt.Budget(tokens=LIMIT), name="team")
    bill, model = provider(3)
    members = [team.carve(f"member-{number}", kt.Budget(tokens=150), guarantee=kt.Budget(40)) for number in range(4)]
    async with anyio.create_task_group() as group:
        for number in range(32):
            governed, sizes = GovernedModel(model, members[number % 4], ignore), chance(number)
            group.start_soon(use_up, governed.complete, sizes)
    assert bill.billed <= team.usage.tokens <= LIMIT
    assert team.usage.tokens >= 0.6 * LIMIT
    assert all(member.usage.tokens <= 150 for member in members)


# ---------------------------------------------------------------- any crowd


@dataclass(frozen=True)
class Errand:
    """One call: when it begins, how long it takes, how large it may be, and what becomes of it."""

    begins: float
    lasts: float
    prompt: int
    reply: int
    used: float
    fate: Fate
    patience: float


errands = st.builds(
    Errand,
    begins=st.floats(0, 5),
    lasts=st.floats(0, 5),
    prompt=st.integers(1, 60),
    reply=st.integers(1, 90),
    used=st.floats(0, 1),
    fate=st.sampled_from(FATES),
    patience=st.floats(0.5, 40),
)


@given(st.lists(errands, max_size=30), st.integers(0, 400))
@settings(max_examples=settings().max_examples * 3 // 5)
async def test_any_crowd_of_callers_spends_no_more_than_the_limit_and_is_refused_only_for_want_of_tokens(
    crowd: list[Errand], limit: int
) -> None:
    """Whatever replies, fails, keeps silent or is given up on its way; `billed` is what a provider may demand."""
    team = Governor(kt.Budget(tokens=limit), name="team")
    billed = 0

    async def run(errand: Errand, governor: Governor) -> None:
        async def answer(request: kt.ModelRequest) -> kt.ModelResponse:
            nonlocal billed
            assert request.max_tokens is not None
            assert 1 <= request.max_tokens <= errand.reply
            reply = request.max_tokens if errand.fate == "full" else int(errand.used * request.max_tokens)
            billed += errand.prompt + reply
            await anyio.sleep(errand.lasts)
            if errand.fate == "error":
                raise ConnectionError
            return kt.ModelResponse("", usage=None if errand.fate == "silent" else kt.Usage(errand.prompt, reply))

        await anyio.sleep(errand.begins)
        model = GovernedModel(FunctionModel(answer), governor, ignore)
        with suppress(ConnectionError), anyio.move_on_after(errand.patience):
            try:
                await model.complete(ask(errand.prompt, errand.reply))
            except HaltError as halt:
                left_at_halt.append(limit - halt.usage.tokens)
        assert team.usage.tokens + team.held.tokens <= limit

    left_at_halt: list[int] = []
    async with anyio.create_task_group() as group:
        for number, errand in enumerate(crowd):
            group.start_soon(run, errand, team if number % 3 else team.carve(f"task-{number}"))
    assert billed <= team.usage.tokens <= limit
    assert team.held.tokens == 0
    assert all(left <= max(errand.prompt for errand in crowd) for left in left_at_halt)


# ---------------------------------------------------------------- what is charged


def reports() -> tuple[list[tuple[str, int, int]], Callable[..., None]]:
    """Collect reports: outcome, tokens held, tokens charged."""
    seen: list[tuple[str, int, int]] = []

    def report(_: str, outcome: str, held: int, usage: kt.Usage) -> None:
        seen.append((outcome, held, usage.tokens))

    return seen, report


async def test_a_reply_that_used_less_than_its_hold_gives_the_rest_back() -> None:
    team = Governor(kt.Budget(tokens=LIMIT))
    seen, report = reports()
    model = GovernedModel(FunctionModel(lambda _: words(5)), team, at_end(report))
    await model.complete(ask(20, 80))
    assert (team.usage.prompt_tokens, team.usage.completion_tokens, team.held.tokens) == (20, 5, 0)
    assert seen == [("ok", 100, 25)]


async def test_kf_b17_a_reply_without_usage_is_charged_its_hold() -> None:
    """B17: usage missing in a reply: the cap silently inactive."""
    team = Governor(kt.Budget(tokens=LIMIT), name="team")
    seen, report = reports()
    silent = FunctionModel(lambda _: kt.ModelResponse("Fine."))
    model = GovernedModel(silent, team, at_end(report))
    for _ in range(2):
        await model.complete(ask(20, 80))
    await model.complete(ask(20, 80))  # what is left pays a shorter reply
    with pytest.raises(HaltError, match="team"):
        await model.complete(ask(20, 80))
    assert seen == [("unknown", 100, 100), ("unknown", 100, 100), ("unknown", 50, 50)]
    assert (team.usage.tokens, len(silent.calls)) == (LIMIT, 3)


async def test_kf_b17_a_member_whose_model_never_reports_usage_is_stopped_by_its_budget() -> None:
    silent = FunctionModel(lambda _: kt.ModelResponse("Fine."), name=NAME)

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        while True:
            await context.model(NAME).complete(ask(20, 80))

    result, recorder = await run_governed(work, silent, kt.TaskGraph([kt.Task("all", "Ask.")]))
    assert (result.status, result.halt) == (kt.TeamStatus.FAILED, kt.HaltReason.TOKEN_BUDGET_EXCEEDED)
    assert (result.usage.tokens, len(silent.calls)) == (LIMIT, 3)
    outcomes = [event.outcome for event in recorder.events if isinstance(event, kt.events.ModelCalled)]
    assert outcomes == ["unknown"] * 3


async def test_kf_b13_every_try_of_a_member_is_charged() -> None:
    """B13: retries, planner, selector or judge calls not counted."""

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(NAME).complete(ask(10, 40))).text

    model = ScriptedModel([ConnectionError("lost"), TimeoutError("slow"), "A fine reply."], name=NAME)
    result, recorder = await run_governed(work, model, kt.TaskGraph([kt.Task("one", "Ask.")]))
    model.assert_complete()
    assert (result.status, result["one"].attempts) == (kt.TeamStatus.COMPLETED, 3)
    calls = [event for event in recorder.events if isinstance(event, kt.events.ModelCalled)]
    assert [(call.outcome, call.held, call.usage.tokens) for call in calls] == [
        ("error", 50, 50),
        ("error", 50, 50),
        ("ok", 50, 13),
    ]
    assert result.usage.tokens == result["one"].usage.tokens == 113


async def test_kf_b13_tries_that_fail_use_the_budget_up_and_no_try_follows() -> None:
    def lose(_: kt.ModelRequest) -> str:
        raise ConnectionError("lost")

    async def work(_: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.model(NAME).complete(ask(10, 90))).text

    model = FunctionModel(lose, name=NAME)
    policy = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=50))
    result, _ = await run_governed(work, model, kt.TaskGraph([kt.Task("one", "Ask.")]), coordinator=policy)
    assert result.halt is kt.HaltReason.TOKEN_BUDGET_EXCEEDED
    assert (result.usage.tokens, len(model.calls), result["one"].attempts) == (LIMIT, 3, 4)


async def test_kf_b13_a_member_that_calls_again_by_itself_is_charged_for_each_call() -> None:
    team = Governor(kt.Budget(tokens=LIMIT))
    seen, report = reports()
    model = GovernedModel(
        ScriptedModel([ConnectionError("lost"), ConnectionError("lost"), words(7)]), team, at_end(report)
    )
    for _ in range(3):
        with suppress(ConnectionError):
            await model.complete(ask(10, 40))
    assert seen == [("error", 50, 50), ("error", 50, 50), ("ok", 50, 17)]
    assert team.usage.tokens == 117


async def test_a_call_that_is_given_up_on_its_way_is_charged_its_hold() -> None:
    team = Governor(kt.Budget(tokens=LIMIT))

    async def hang(_: kt.ModelRequest) -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.move_on_after(1) as scope:
        await GovernedModel(FunctionModel(hang), team, ignore).complete(ask(20, 80))
    assert scope.cancelled_caught
    assert (team.usage.tokens, team.held.tokens) == (100, 0)


@pytest.mark.parametrize("outcome", ["silent", "error", "cancelled"])
async def test_audit_g29_a_call_capped_by_dollars_is_charged_no_more_than_it_could_spend(outcome: str) -> None:
    team = Governor(kt.Budget(dollars="0.00003"), name="team")
    seen, report = reports()

    async def answer(_: kt.ModelRequest) -> kt.ModelResponse:
        if outcome == "error":
            raise ConnectionError("the reply was lost on its way")
        if outcome == "cancelled":
            await anyio.sleep_forever()
        return kt.ModelResponse("Fine.")

    model = FunctionModel(answer, dollars_per_token="0.000001")
    with anyio.move_on_after(1), suppress(ConnectionError):
        await GovernedModel(model, team, at_end(report)).complete(ask(2, None))
    assert model.calls[0].max_tokens == 28
    assert (team.usage.tokens, team.usage.dollars) == (30, Decimal("0.00003"))
    assert team.held == kt.Usage()
    assert seen == [("error" if outcome == "error" else "unknown", 30, 30)]


async def test_a_call_capped_by_dollars_leaves_the_tokens_it_cannot_use_to_others() -> None:
    team = Governor(kt.Budget(tokens=100, dollars=1), name="team")
    poor = team.carve("poor", kt.Budget(dollars="0.00003"))

    async def look(_: kt.ModelRequest) -> str:
        assert team.remaining.tokens == 70
        return "Fine."

    await GovernedModel(FunctionModel(look, dollars_per_token="0.000001"), poor, ignore).complete(ask(2, 98))
    assert team.usage.tokens == 3


async def test_a_call_capped_by_tokens_holds_no_more_dollars_than_it_could_spend() -> None:
    team = Governor(kt.Budget(tokens=30, dollars=1), name="team")
    silent = FunctionModel(lambda _: kt.ModelResponse("Fine."), dollars_per_token="0.001")
    await GovernedModel(silent, team, ignore).complete(ask(2, 500))
    assert (team.usage.tokens, team.usage.dollars) == (30, Decimal("0.03"))


async def test_a_call_that_is_given_up_while_it_waits_for_its_hold_costs_nothing() -> None:
    team = Governor(kt.Budget(tokens=150))

    async def slow(_: kt.ModelRequest) -> str:
        await anyio.sleep(10)
        return words(80)

    model = FunctionModel(slow)
    async with anyio.create_task_group() as group:
        group.start_soon(GovernedModel(model, team, ignore).complete, ask(20, 80))
        await anyio.sleep(1)
        with anyio.move_on_after(1) as scope:
            await GovernedModel(model, team, ignore).complete(ask(20, 80))
        assert scope.cancelled_caught
    assert (team.usage.tokens, team.held.tokens, len(model.calls)) == (100, 0, 1)


async def test_a_call_that_provably_never_left_costs_nothing() -> None:
    team = Governor(kt.Budget(tokens=LIMIT))

    def missing(_: kt.ModelRequest) -> str:
        raise ModelUnavailable("openai:gpt-5-mini", "OPENAI_API_KEY is not set")

    with pytest.raises(ModelUnavailable):
        await GovernedModel(FunctionModel(missing), team, ignore).complete(ask(20, 80))
    assert (team.usage.tokens, team.held.tokens) == (0, 0)


async def test_tokens_a_provider_hid_are_booked_as_overshoot_and_end_the_spending() -> None:
    team = Governor(kt.Budget(tokens=LIMIT), name="team")
    thinks = FunctionModel(lambda _: kt.ModelResponse("Hm.", usage=kt.Usage(20, 300)))
    model = GovernedModel(thinks, team, ignore)
    assert (await model.complete(ask(20, 80))).text == "Hm.", "a paid reply is never lost"
    assert (team.usage.tokens, team.tree().overshoot.tokens) == (320, 70)
    with pytest.raises(HaltError):
        await model.complete(ask(1, 1))


# ---------------------------------------------------------------- what is held


async def test_the_cap_sent_to_the_model_is_what_the_tightest_governor_has_left() -> None:
    team = Governor(kt.Budget(tokens=LIMIT))
    member = team.carve("member", kt.Budget(tokens=90))
    model = FunctionModel(lambda _: words(CALL))
    response = await GovernedModel(model, member.carve("task"), ignore).complete(ask(20, 80))
    assert (model.calls[0].max_tokens, response.finish_reason, member.usage.tokens) == (70, "length", 90)


async def test_a_call_that_could_not_even_get_one_token_back_is_not_made() -> None:
    team = Governor(kt.Budget(tokens=20), name="team")
    model = FunctionModel(lambda _: words(CALL))
    with pytest.raises(HaltError) as halt:
        await GovernedModel(model, team, ignore).complete(ask(20, 80))
    assert (halt.value.reason, halt.value.origin) == (kt.HaltReason.TOKEN_BUDGET_EXCEEDED, "team")
    assert (model.calls, team.usage.tokens) == ([], 0)


async def test_kf_b18_callers_wait_for_returns_before_they_are_refused() -> None:
    """B18: worst-case holds starved a budget with nothing spent."""
    team = Governor(kt.Budget(tokens=LIMIT), name="team")
    model = GovernedModel(FunctionModel(lambda _: words(3)), team, ignore)
    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(model.complete, ask(2, 98))
    assert (team.usage.tokens, team.halted) == (200, None)


@given(st.lists(st.text(max_size=80), max_size=5), st.booleans())
def test_no_tokenizer_makes_more_tokens_than_the_bound(texts: list[str], schema: bool) -> None:
    schemas = {"type": "object", "properties": {"name": {"type": "string"}}} if schema else None
    request = kt.ModelRequest([kt.Message.user(text) for text in texts], output_schema=schemas)
    at_least = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + (
        len(repr(schemas)) if schemas else 0
    )
    assert prompt_bound(request) >= at_least + 16 * len(texts) + 32


def test_the_bound_of_a_message_is_kept_with_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn counts the conversation again: the arguments of an old call are not written as JSON once more."""
    call = kt.ToolCall("c1", "look", {"where": "here"})
    request = kt.ModelRequest([kt.Message.user("Look."), kt.Message.assistant("", [call])])
    first = prompt_bound(request)
    with monkeypatch.context() as without:
        without.delattr("kairo_team.models.prompt_bounds._json_bytes")
        assert prompt_bound(replace(request, max_tokens=5)) == first
    longer = replace(request.messages[0], text="Look, ü.")
    assert prompt_bound(replace(request, messages=[longer, request.messages[1]])) == first + 4
    assert request.messages[0] == kt.Message.user("Look.")
    assert "bound" not in repr(request)
    adapter = TypeAdapter(kt.ModelRequest)
    assert b"bound" not in adapter.dump_json(request)
    assert adapter.validate_json(adapter.dump_json(request)) == request


async def test_a_model_that_counts_its_tokens_is_held_to_its_count_and_any_other_to_the_bytes() -> None:
    for tokenizer, held in ((True, 100), (False, prompt_bound(ask(20, 80)) + 80)):
        seen, report = reports()
        model = FunctionModel(lambda _: "Fine.")
        governed = GovernedModel(model if tokenizer else NoTokenizer(model), Governor(), at_end(report))
        await governed.complete(ask(20, 80))
        assert seen == [("ok", held, 21)]
