"""`run_eval`: a team over a dataset, under one budget, recorded and resumed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evals import Case, Dataset, EvalResult, run_eval
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging

pytestmark = pytest.mark.anyio

SHORT = Rubric([Criterion("short", "at most four words", checks.max_words(4))])


def cases(*inputs: str) -> Dataset:
    return Dataset([Case(f"c{number}", one) for number, one in enumerate(inputs, 1)], "inputs")


async def echo(assignment: kt.Assignment) -> str:
    return assignment.goal


ECHO = kt.Team("desk", [kt.Member("writer", echo)])


async def test_a_team_is_run_on_every_case_and_each_result_is_reviewed_once() -> None:
    result = await run_eval(ECHO, cases("Few words.", "These are far too many words."), SHORT, repeat=2)
    assert [(one.case, one.number, one.outcome, one.output) for one in result.trials] == [
        ("c1", 1, "pass", "Few words."),
        ("c1", 2, "pass", "Few words."),
        ("c2", 1, "fail", "These are far too many words."),
        ("c2", 2, "fail", "These are far too many words."),
    ]
    assert (result.metrics["pass_rate"], result.metrics["flip_rate"]) == (0.5, 0.0)
    assert result.criteria["short"].k == 2
    assert result.error is None


async def test_the_team_is_given_the_case_and_nothing_of_the_eval_around_it() -> None:
    seen: list[tuple[str, Any, Any]] = []

    async def look(assignment: kt.Assignment) -> str:
        seen.append((assignment.goal, dict(assignment.context), assignment.upstream))
        return "Done."

    case = Case("c", "Explain tides.", {"length": 3}, reference="The moon.", metadata={"by": "hand"})
    await run_eval(kt.Team("desk", [kt.Member("writer", look)]), Dataset([case]), SHORT)
    assert seen == [("Explain tides.", {"length": 3}, {})]


async def test_a_team_that_fails_or_is_undecided_did_not_pass() -> None:
    async def work(assignment: kt.Assignment) -> str:
        if "fail" in assignment.goal:
            raise ValueError("no ink")
        return assignment.goal

    async def check(artifact: kt.Artifact) -> bool:
        if "undecided" in artifact.text:
            raise ValueError("no glasses")
        return True

    team = kt.Team("desk", [kt.Member("writer", work)])
    rubric = Rubric([Criterion("seen", "somebody can read it", check)])
    result = await run_eval(team, cases("fail", "undecided", "fine"), rubric)
    assert [one.outcome for one in result.trials] == ["error", "undecided", "pass"]
    assert "no ink" in result.trials[0].why
    assert result.trials[1].cause is kt.Cause.UNDECIDED
    assert result.metrics["pass_rate"] == pytest.approx(1 / 3)


class Paid:
    """A model that counts its calls; they wait for `begins`, if there is one."""

    def __init__(self, begins: anyio.Event | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self.begins = begins

    def model(self) -> FunctionModel:
        async def say(request: kt.ModelRequest) -> kt.ModelResponse:
            await anyio.sleep(0.01)
            if self.begins is not None:
                await self.begins.wait()
            self.calls[request.messages[-1].text] += 1
            return kt.ModelResponse("Five words are here now.", usage=kt.Usage(prompt_tokens=50, completion_tokens=50))

        return FunctionModel(say, name="test:x")


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    message = kt.Message.user(assignment.goal)
    return (await context.model("test:x").complete(kt.ModelRequest([message], max_tokens=100))).text


ASKER = kt.Team("desk", [kt.Member("asker", ask)])


async def test_one_budget_is_for_all_trials_and_what_it_does_not_cover_is_not_run() -> None:
    paid = Paid()
    runtime = kt.Runtime(models={"test:x": paid.model()})
    dataset = cases(*(f"Say {number}." for number in range(20)))
    result = await run_eval(ASKER, dataset, SHORT, budget=kt.Budget(tokens=1_000), parallel=8, runtime=runtime)
    assert sum(one.usage.tokens for one in result.trials) <= 1_000
    assert 0 < sum(one.outcome == "fail" for one in result.trials) <= 10
    assert sum(paid.calls.values()) <= 10
    assert result.metrics["pass_rate"] == 0.0
    assert result.error is None or "were not run" in result.error


async def test_trials_that_the_budget_leaves_without_a_review_are_named() -> None:
    """Otherwise an eval whose judge was never asked ends like one whose judge could not decide."""
    judge = Judging({"plain": "met"})
    rubric = Rubric([Criterion("plain", "a child understands it", by="judge")])
    result = await run_eval(ECHO, cases("Moon.", "Sea."), rubric, judge=judge.model, budget=kt.Budget(tokens=1_000))
    assert [(one.outcome, one.cause) for one in result.trials] == [("undecided", kt.Cause.JUDGE_BUDGET)] * 2
    assert result.error is not None
    assert result.error.startswith("2 of 2 trials were not judged: ")
    assert "reviews may use 20 % of the budget" in result.error


@pytest.mark.parametrize("tokens", [20, 50, 60])
async def test_trials_that_the_budget_cannot_pay_are_not_errors_of_the_team(tokens: int) -> None:
    def rises(request: kt.ModelRequest) -> str:
        return "It rises."

    agent = kt.MiniAgent(FunctionModel(rises, name="test:m"))
    team = kt.Team("desk", [kt.Member("asker", agent)])
    result = await run_eval(team, cases(*("Say it.",) * 4), SHORT, parallel=1, budget=kt.Budget(tokens=tokens))
    assert {one.outcome for one in result.trials} <= {"pass", "not run"}
    assert result.error is not None
    assert "trials were not run: " in result.error
    assert f"{tokens}" in result.error or "tokens" in result.error


async def test_a_team_that_its_own_budget_ends_made_no_result() -> None:
    def rises(request: kt.ModelRequest) -> str:
        return "It rises."

    agent = kt.MiniAgent(FunctionModel(rises, name="test:m"))
    team = kt.Team("desk", [kt.Member("asker", agent, budget=kt.Budget(tokens=3))])
    result = await run_eval(team, cases("Say it."), SHORT, budget=kt.Budget(tokens=10_000))
    assert [one.outcome for one in result.trials] == ["error"]
    assert result.error is None


async def test_a_judge_is_paid_from_the_same_budget_and_named() -> None:
    judge = Judging({"plain": "met"})
    rubric = Rubric([Criterion("plain", "a child understands it", by="judge")])
    result = await run_eval(ECHO, cases("The moon pulls the sea."), rubric, judge=judge.model)
    assert result.trials[0].outcome == "pass"
    assert result.trials[0].review.tokens > 0
    assert result.metrics["tokens"] == result.trials[0].review.tokens
    assert result.judge


async def test_a_case_may_have_criteria_of_its_own() -> None:
    own = Rubric([Criterion("moon", "it names the moon", checks.contains("moon"))])
    dataset = Dataset([Case("a", "The moon.", rubric=own), Case("b", "The sea.", rubric=own), Case("c", "The sun.")])
    result = await run_eval(ECHO, dataset, SHORT)
    assert [(one.outcome, [c.id for c in one.criteria]) for one in result.trials] == [
        ("pass", ["short", "moon"]),
        ("fail", ["short", "moon"]),
        ("pass", ["short"]),
    ]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rubric": None}, "nothing decides about the cases 'c1'"),
        ({"rubric": "short"}, "async evaluate"),
        ({"repeat": 0}, "repeat"),
        ({"parallel": True}, "parallel"),
        ({"judge": "test:none"}, "no criterion asks for one"),
        ({"rubric": Rubric([Criterion("plain", "plain", by="judge")])}, "none is wired"),
        ({"budget": kt.Budget(loops=0)}, "loop"),
        ({"budget": 5}, "run_eval: budget must be a Budget or None, not 5"),
        ({"config": {}}, "run_eval: config must be a TeamConfig or None"),
        ({"plan": [1]}, "run_eval: plan must be a TaskGraph or None"),
        ({"coordinator": 3}, "run_eval: coordinator must have an async execute"),
        ({"rubric": Rubric([Criterion("plain", "plain", by="judge")]), "judge": 3}, "the judge must be a model's name"),
        (
            {"rubric": Rubric([Criterion("looks", "it looks", checks.calls_tool("look"), on="transcript")])},
            "transcript",
        ),
    ],
)
async def test_what_cannot_be_evaluated_is_refused_before_anything_is_run(fields: Any, complaint: str) -> None:
    ran: list[str] = []

    async def work(assignment: kt.Assignment) -> str:
        ran.append(assignment.goal)
        return "Fine."

    team = kt.Team("desk", [kt.Member("writer", work)])
    with pytest.raises((ValueError, kt.KairoError), match=complaint):
        given: Any = {"rubric": SHORT, **fields}
        await run_eval(team, cases("One."), **given)
    assert not ran


async def test_a_refusal_of_many_cases_is_short() -> None:
    same = Rubric([Criterion("same", "it is the reference", checks.equals_reference, reference=True)])
    with pytest.raises(kt.KairoError, match="and 970 more problems") as refused:
        await run_eval(ECHO, cases(*["One."] * 1_000), same)
    assert len(str(refused.value)) < 5_000


async def test_a_trial_that_was_not_decided_or_not_run_never_counts_as_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor one whose review was cut short by the budget."""

    async def say(request: kt.ModelRequest) -> kt.ModelResponse:
        await anyio.sleep(0.01)
        return kt.ModelResponse("The moon.", usage=kt.Usage(3, min(40, request.max_tokens or 40)))

    model = FunctionModel(say, name="test:x")
    plain = Rubric([Criterion("plain", "a child understands it", by="judge")])
    runtime = kt.Runtime(models={"test:x": model})
    judge, passed = Judging({"plain": "met"}).model, list[int]()
    for tokens in (150, 400, 3_000, 20_000):
        budget = kt.Budget(tokens=tokens)
        result = await run_eval(
            ASKER, cases(*["One."] * 8), plain, judge=judge, budget=budget, parallel=3, runtime=runtime
        )
        met = [one for one in result.trials if [c.passed for c in one.criteria] == [True]]
        assert [one for one in result.trials if one.outcome == "pass"] == met
        assert result.passed.k == len(met)
        passed.append(result.passed.k)
        assert result.metrics["tokens"] <= tokens
        assert len(result.trials) == 8
    assert passed[-1] == 8
    assert "Traceback" not in caplog.text


@pytest.mark.real_time
async def test_evals_on_one_journal_at_once_do_not_meet(tmp_path: Path) -> None:
    refused = anyio.Event()
    paid, dataset = Paid(begins=refused), cases(*(f"Say {number}." for number in range(6)))
    found: dict[str, EvalResult | kt.KairoError] = {}
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    async with kt.Runtime(models={"test:x": paid.model()}, journal=journal) as runtime:

        async def evaluate(name: str, run_id: str) -> None:
            try:
                found[name] = await run_eval(ASKER, dataset, SHORT, runtime=runtime, run_id=run_id)
            except kt.KairoError as error:
                found[name] = error
                refused.set()

        async with anyio.create_task_group() as group:
            for name, run_id in (("a", "one"), ("b", "other"), ("c", "one")):
                group.start_soon(evaluate, name, run_id)
    journal.close()
    assert set(paid.calls.values()) == {2}
    ended = [one for one in found.values() if isinstance(one, EvalResult)]
    assert sorted(one.run_id for one in ended) == ["one", "other"]
    assert [[one.outcome for one in result.trials] for result in ended] == [["fail"] * 6] * 2
    assert ["is running" in str(one) for one in found.values() if not isinstance(one, EvalResult)] == [True]


@pytest.mark.real_time
async def test_an_eval_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    paid, dataset = Paid(), cases(*(f"Say {number}." for number in range(12)))

    async def run(stop_after: int | None) -> EvalResult | None:
        journal = kt.SqliteJournal(tmp_path / "runs.db")
        try:
            async with kt.Runtime(models={"test:x": paid.model()}, journal=journal) as runtime:
                async with anyio.create_task_group() as group:

                    async def watch() -> None:
                        while stop_after is not None and sum(paid.calls.values()) < stop_after:
                            await anyio.sleep(0.001)
                        if stop_after is not None:
                            group.cancel_scope.cancel()

                    group.start_soon(watch)
                    return await run_eval(ASKER, dataset, SHORT, parallel=3, runtime=runtime, run_id="nightly")
                return None
        finally:
            journal.close()

    assert await run(5) is None
    assert sum(paid.calls.values()) < 12
    done = await run(None)
    assert done is not None
    assert [one.outcome for one in done.trials] == ["fail"] * 12
    assert set(paid.calls.values()) <= {1, 2}  # a call in doubt is made again
    again = await run(None)
    assert again == done
    other = Dataset([Case("c1", "Another.")], "inputs")
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    async with kt.Runtime(models={"test:x": paid.model()}, journal=journal) as runtime:
        with pytest.raises(kt.KairoError, match="is another eval"):
            await run_eval(ASKER, other, SHORT, runtime=runtime, run_id="nightly")
    journal.close()


async def test_an_expert_team_is_evaluated_as_it_runs() -> None:
    tries: list[int] = []

    async def write(assignment: kt.Assignment) -> str:
        tries.append(assignment.attempt)
        return "Far too many words are here." if assignment.attempt == 1 else "Few words."

    team = kt.Team("desk", [kt.Member("writer", write)], coordinator=ExpertTeamCoordinator(evaluator=SHORT))
    result = await run_eval(team, cases("Explain."), SHORT)
    assert (tries, result.trials[0].outcome) == ([1, 2], "pass")
