"""One reader of structured replies, for planner, moderator, members of all kinds and judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team._util.reply_json import read_reply, values_in
from kairo_team.conditions import data_of
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator
from kairo_team.coordinators.moderators import END
from kairo_team.testing import FunctionModel, ScriptedAgent, ScriptedJudge, ScriptedModel

DRESSES: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "a fence": lambda text: f"```json\n{text}\n```",
    "a fence without a name": lambda text: f"```\n{text}\n```",
    "tildes": lambda text: f"~~~json\n{text}\n~~~",
    "a fence on one line": lambda text: f"```json {text} ```",
    "a fence that is close": lambda text: f"```json{text}```",
    "prose": lambda text: f"Of course (see the note [above])! Here it is:\n\n{text}\n\nTell me if {{you}} need more.",
    "prose and a fence": lambda text: f"Here it is:\n```json\n{text}\n```\nThat is all.",
    "a byte order mark": lambda text: f"\ufeff{text}",
}
DRESSED = pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)


async def fine(assignment: kt.Assignment) -> str:
    return "fine"


def objects(text: str) -> dict[str, Any]:
    found: Any = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found  # pyright: ignore[reportUnknownVariableType]  # narrowed to a dict of anything


@DRESSED
@pytest.mark.anyio
async def test_third_o38_a_members_reply_is_read_whatever_is_around_its_json(dress: Callable[[str], str]) -> None:
    said = dress('{"name": "Oslo", "people": 7}')

    async def function(assignment: kt.Assignment) -> str:
        return said

    for agent in (function, kt.MiniAgent(ScriptedModel([said]))):
        members, types = [kt.Member("m", agent)], {"city": dict[str, str | int]}
        plan = kt.TaskGraph([kt.Task("t", "Which?", output_type="city")])
        team = kt.Team("team", members, output_types=types)
        result = await kt.run(team, kt.TeamExecutionRequest("Which?", plan=plan))
        assert result["t"].error is None
        assert result["t"].artifact is not None
        assert dict(result["t"].artifact.data) == {"name": "Oslo", "people": 7}


@DRESSED
@pytest.mark.anyio
async def test_third_o38_a_plan_is_read_whatever_is_around_it(dress: Callable[[str], str]) -> None:
    model = ScriptedModel([dress('{"tasks": [{"id": "one", "description": "do it", "member": "a"}]}')])
    coordinator = ExpertTeamCoordinator(planner=AgentPlanner(model))
    team = kt.Team("team", [kt.Member("a", ScriptedAgent(["done"]))], coordinator=coordinator)
    result = await kt.run(team, "Do it.")
    assert [one.task_id for one in result.outcomes] == ["one"]
    assert len(model.calls) == 1


@DRESSED
@pytest.mark.anyio
async def test_third_o38_a_moderator_is_read_whatever_is_around_its_answer(dress: Callable[[str], str]) -> None:
    model = ScriptedModel([dress('{"next": "b"}'), dress(json.dumps({"next": END}))])
    chat = kt.GroupChatCoordinator(moderator=model)
    team = kt.Team("team", [kt.Member(name, fine) for name in "ab"], coordinator=chat)
    result = await kt.run(team, "Talk.")
    assert [one.member for one in result.outcomes] == ["b"]
    assert result.warnings == ()


@DRESSED
@pytest.mark.anyio
async def test_third_o38_a_judge_is_read_whatever_is_around_its_answers(dress: Callable[[str], str]) -> None:
    judge = ScriptedJudge()
    model = FunctionModel(lambda request: dress(judge.write(request)), name="test:judge")
    team = kt.Team("team", [kt.Member("a", ScriptedAgent(["The moon pulls the sea."]))])
    result = await kt.run(team, "Explain tides.", coordinator=ExpertTeamCoordinator(judge=model))
    assert result.status is kt.TeamStatus.COMPLETED
    assert len(model.calls) == 1


@DRESSED
def test_third_o38_a_condition_reads_a_text_whatever_is_around_its_json(dress: Callable[[str], str]) -> None:
    assert data_of(kt.Artifact(dress('{"kind": "bug"}'))) == {"kind": "bug"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
PLAIN = st.text(st.characters(exclude_characters="{}[]`~\ufeff"))


@given(st.dictionaries(st.text(), JSON), PLAIN, PLAIN, st.booleans())
def test_third_o38_the_one_object_in_a_text_is_found(
    value: dict[str, Any], before: str, after: str, ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    assert read_reply(f"{before}{text}{after}", objects) == value
    assert read_reply(f"{before}\n```json\n{text}\n```\n{after}", objects) == value


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers()), min_size=1), st.data())
def test_third_o38_no_part_of_an_object_that_was_cut_off_is_taken_for_the_whole(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(ValueError, match=r"."):
        read_reply(f"Here: {cut}", objects)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1} or rather {"a": 2}', "2 different JSON values"),
        ("no JSON at all", "Expecting value"),
        ('so: {"a": 1, "a": 2}', "Expecting value"),
        ("so: [1]", "it is not an object"),
    ],
)
def test_third_o38_what_is_not_one_value_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_reply(text, objects)


def test_third_o38_a_long_text_is_read_in_little_time() -> None:
    for text in ("```" + " " * 200_000, "{" * 100_000, "[" * 100_000, "{x" * 100_000, "`" * 100_000):
        assert values_in(text) == []
        with pytest.raises(ValueError, match=r"."):
            read_reply(text, lambda _: objects("no"))


@pytest.mark.anyio
async def test_third_o34_a_plan_that_was_cut_off_is_not_asked_for_again_under_the_same_limit() -> None:
    model = ScriptedModel([kt.ModelResponse('{"tasks": [{"id": "o', usage=kt.Usage(9, 4), finish_reason="length")])
    coordinator = ExpertTeamCoordinator(planner=AgentPlanner(model))
    result = await kt.run(kt.Team("team", [kt.Member("a", ScriptedAgent([]))], coordinator=coordinator), "Do it.")
    assert len(model.calls) == 1
    assert "the reply was cut off at its limit of 4 tokens: allow it more, AgentPlanner(" in str(result.error)


@pytest.mark.anyio
async def test_third_o34_a_moderator_whose_answer_was_cut_off_is_not_asked_again_about_the_same_turn() -> None:
    model = ScriptedModel([kt.ModelResponse('{"ne', usage=kt.Usage(9, 4), finish_reason="length")])
    chat = kt.GroupChatCoordinator(moderator=model, max_turns=1)
    team = kt.Team("team", [kt.Member(name, fine) for name in "ab"], coordinator=chat)
    result = await kt.run(team, "Talk.")
    assert len(model.calls) == 1
    assert any("cut off at its limit of 4 tokens" in one for one in result.warnings)


@pytest.mark.anyio
@pytest.mark.parametrize("named", [" Coder ", "coder", "**coder**", "`CODER`", '"Coder"'])
async def test_third_o42_a_moderator_means_the_speaker_however_it_writes_the_name(named: str) -> None:
    model = ScriptedModel([json.dumps({"next": named}), json.dumps({"next": END.title()})])
    chat = kt.GroupChatCoordinator(moderator=model)
    team = kt.Team("team", [kt.Member(name, fine) for name in ("tester", "Coder")], coordinator=chat)
    result = await kt.run(team, "Talk.")
    assert [one.member for one in result.outcomes] == ["Coder"]
    assert result.warnings == ()


@pytest.mark.anyio
async def test_third_o42_a_name_that_two_members_could_mean_names_nobody() -> None:
    chat = kt.GroupChatCoordinator(moderator=lambda _: "CODER", max_turns=1)
    team = kt.Team("team", [kt.Member(name, fine) for name in ("coder", "Coder")], coordinator=chat)
    result = await kt.run(team, "Talk.")
    assert any("named 'CODER'" in one for one in result.warnings)
