"""Which limit holds for which model: by its own name, and by the name it is registered under."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.contracts import ChatModel
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.anyio

ONE = kt.ModelLimit(concurrency=1)
PLAN = kt.TaskGraph([kt.Task(f"t{n}", "Say it.", member=f"w{n}") for n in range(4)])


class House:
    """A model that counts how many of its calls are in flight at once."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0
        self.model = FunctionModel(self._answer, name="openai-compatible:m")

    async def _answer(self, request: kt.ModelRequest) -> str:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await anyio.sleep(1)
        self.in_flight -= 1
        return "Fine."


def team_of(model: str | ChatModel) -> kt.Team:
    return kt.Team("desk", [kt.Member(f"w{n}", kt.MiniAgent(model, max_turns=1)) for n in range(4)])


async def run(model: str | ChatModel, runtime: kt.Runtime) -> kt.TeamResult:
    result = await kt.run(team_of(model), "Say it.", plan=PLAN, budget=kt.Budget(tokens=200_000), runtime=runtime)
    assert result.error is None
    return result


@pytest.mark.parametrize("pattern", ["house:*", "house:fast", "openai-compatible:*", "openai-compatible:m", "*"])
@pytest.mark.parametrize("key", ["house:*", "house:fast"])
async def test_third_o57_a_model_is_limited_by_its_name_and_by_the_one_it_is_registered_under(
    pattern: str, key: str
) -> None:
    house = House()
    runtime = kt.Runtime(models={key: house.model}, model_limits={pattern: ONE})
    result = await run("house:fast", runtime)
    assert (house.most, result.warnings) == (1, ())
    (note,) = kt.check(team_of("house:fast"), "Say it.", plan=PLAN, runtime=runtime).notes
    names = ", ".join(sorted({f"{key!r}", "'house:fast'"}))
    assert note == f"model 'openai-compatible:m' ({names}) is limited by {pattern!r} of Runtime.model_limits"


async def test_third_o57_the_object_itself_is_limited_by_the_name_it_is_registered_under() -> None:
    house = House()
    await run(house.model, kt.Runtime(models={"house:*": house.model}, model_limits={"house:*": ONE}))
    assert house.most == 1


async def test_third_o57_each_model_of_a_fallback_is_limited_by_the_name_it_was_asked_for_by() -> None:
    house = House()
    models: dict[str, Any] = {"house:*": kt.Fallback(house.model, FunctionModel(lambda _: "other", name="other:m"))}
    await run("house:fast", kt.Runtime(models=models, model_limits={"house:*": ONE}))
    assert house.most == 1
    await run(kt.Fallback("home:a", "home:b"), kt.Runtime(models={"home:*": house.model}, model_limits={"home:a": ONE}))
    assert house.most == 1


async def test_third_o57_a_pattern_that_matches_no_model_of_the_run_is_a_warning() -> None:
    house = House()
    runtime = kt.Runtime(models={"house:*": house.model}, model_limits={"hause:*": ONE})
    result = await run("house:fast", runtime)
    assert house.most == 4
    (warning,) = result.warnings
    assert warning.startswith("Runtime.model_limits has 'hause:*', which matches no model of the run; ")
    who = "'openai-compatible:m' ('house:*', 'house:fast')"
    assert f"{who} runs without a limit: set it for that name" in warning
    first, second = kt.check(team_of("house:fast"), "Say it.", plan=PLAN, runtime=runtime).notes
    assert first == f"model {who} has no limit of Runtime.model_limits"
    assert second == warning


async def test_third_o57_a_limit_of_another_teams_model_is_not_a_warning() -> None:
    """A runtime has limits for all its teams: what concerns nobody here is said only where a call has no limit."""
    house = House()
    limits = {"openai:*": ONE, "house:*": ONE}
    runtime = kt.Runtime(models={"house:*": house.model}, model_limits=limits)
    assert (await run("house:fast", runtime)).warnings == ()
    functions = kt.Team("desk", [kt.Member("w", lambda _: "done")])
    assert (await kt.run(functions, "Say it.", runtime=kt.Runtime(model_limits=limits))).warnings == ()


async def test_third_o57_the_check_knows_the_models_of_judges_and_of_teams_inside() -> None:
    runtime = kt.Runtime(
        models={f"{name}:*": FunctionModel(lambda _: "x", name=f"{name}:m") for name in ("inner", "judge")},
        model_limits={"inner:*": ONE, "jugde:*": ONE},
    )
    inner = kt.Team("inner", [kt.Member("w", kt.MiniAgent("inner:m"))])
    outer = kt.Team("outer", [kt.Member("crew", TeamAgent(inner))])
    rubric = kt.Rubric([kt.Criterion("plain", "a child understands it", by="judge")])
    coordinator = kt.ExpertTeamCoordinator(evaluator=rubric, judge="judge:m")
    plan = kt.TaskGraph([kt.Task("one", "Say it.")])
    notes = kt.check(outer, "Say it.", plan=plan, runtime=runtime, coordinator=coordinator).notes
    assert notes[:2] == (
        "model 'inner:m' ('inner:*') is limited by 'inner:*' of Runtime.model_limits",
        "model 'judge:m' ('judge:*') has no limit of Runtime.model_limits",
    )
    assert notes[2].startswith("Runtime.model_limits has 'jugde:*', which matches no model of the run")


async def test_third_o57_without_limits_nothing_is_said() -> None:
    runtime = kt.Runtime(models={"house:*": House().model})
    assert kt.check(team_of("house:fast"), "Say it.", plan=PLAN, runtime=runtime).notes == ()
    assert (await run("house:fast", runtime)).warnings == ()
