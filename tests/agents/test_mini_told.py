"""What `MiniAgent` is told of its limits: only where it can act on it, in round figures, beside the conversation."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.testing import FunctionModel, RecordReplayModel, ScriptedModel
from kairo_team.testing.clocks import Backend

pytestmark = pytest.mark.anyio

QUESTIONS = [
    ("What is the capital of France?", ["paris", "france"]),
    ("What colour is the sky on a clear day?", ["blue"]),
    ("Name an animal that barks.", ["dog", "animal"]),
    ("What is frozen water called?", ["ice", "snow", "frozen"]),
    ("Which planet do people live on?", ["earth"]),
    ("What do bees make?", ["honey", "nectar", "pollen", "flower"]),
    ("Explain rain.", ["water", "rain", "cloud"]),
    ("Explain tides.", ["tide", "moon", "water", "sea", "ocean"]),
    ("What is a bicycle?", ["wheel", "ride", "pedal", "bicycle", "vehicle"]),
    ("What is bread made of?", ["flour", "wheat", "dough", "bread", "grain"]),
    ("What is a forest?", ["tree", "forest", "plant"]),
    ("What is a library?", ["book", "library", "read"]),
    ("What does a doctor do?", ["patient", "medic", "health", "doctor", "diagnos"]),
    ("Describe a cat.", ["cat", "fur", "animal"]),
    ("What is snow?", ["snow", "ice", "water", "crystal"]),
    ("What is music?", ["sound", "music", "art"]),
    ("What is the sun?", ["sun", "star", "light", "planet"]),
    ("Explain what a map is for.", ["map", "place", "location", "navigat"]),
    ("What is a river?", ["river", "water", "flow"]),
    ("Write a sentence about trees.", ["tree", "leaves", "forest"]),
]
BUDGET_WORDS = ("token", "budget", "turns left", "left for this", "4000", "4,000", "seconds")


@kt.tool(side_effect="read")
async def look(text: str) -> str:
    """Look for a text."""
    return f"found {text}"


def looking() -> kt.ModelResponse:
    return kt.ModelResponse("", [kt.ToolCall("1", "look", {"text": "it"})], kt.Usage(100, 20))


def told(request: kt.ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.aside]


@pytest.mark.local_model
@pytest.mark.exhaustive
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
async def test_the_embedded_model_answers_the_question_and_not_its_budget(anyio_backend: Backend) -> None:
    """An answer is one that speaks of the subject: a model of this size may still be wrong about it."""
    answers: dict[str, str] = {}
    for question, _ in QUESTIONS:
        agent = kt.MiniAgent("local:smollm2", settings={"temperature": 0, "max_tokens": 40}, max_turns=2)
        output = await agent.run(question, budget=kt.Budget(tokens=4_000, seconds=600))
        answers[question] = output.text
    astray = {q: answers[q] for q, words in QUESTIONS if not any(word in answers[q].lower() for word in words)}
    assert astray == {}
    assert {q: text for q, text in answers.items() if any(word in text.lower() for word in BUDGET_WORDS)} == {}


@pytest.mark.parametrize(
    ("tokens", "said"),
    [(4_872, "about 4,800 tokens"), (123_456, "about 120,000 tokens"), (1_050, "about 1,000 tokens")],
)
async def test_tokens_are_told_in_round_figures_and_seconds_never(tokens: int, said: str) -> None:
    model = ScriptedModel([looking(), "Done."])
    agent = kt.MiniAgent(model, tools=[look], settings={"max_tokens": 20})
    await agent.run("Look.", budget=kt.Budget(tokens=tokens, seconds=30, dollars=Decimal(3)))
    (first,) = told(model.calls[0])
    assert first == f"Left for this task: 10 turns, {said}."


async def test_it_is_told_nothing_where_that_is_off_and_its_tools_are_withheld_on_the_last_turn_all_the_same() -> None:
    model = FunctionModel(lambda request: looking() if request.tools else "Done.")
    agent = kt.MiniAgent(model, tools=[look], max_turns=3, tell_limits=False)
    output = await agent.run("Look.", budget=kt.Budget(tokens=100_000))
    assert output.text == "Done."
    assert [told(request) for request in model.calls] == [[], [], []]
    assert not model.calls[-1].tools


async def test_it_is_not_kept_in_the_conversation() -> None:
    model = ScriptedModel([looking(), looking(), "Done."])
    output = await kt.MiniAgent(model, tools=[look]).run("Look.", budget=kt.Budget(tokens=100_000))
    assert [len(told(request)) for request in model.calls] == [1, 1, 1]
    assert "Left for this task" not in " ".join(message.text for message in output.transcript)


async def test_its_words_are_a_template_of_their_own() -> None:
    model = ScriptedModel([looking(), "Done."])
    words = {"limits": "{{ turns }}|{{ tokens }}|{{ last }}"}
    await kt.MiniAgent(model, tools=[look], max_turns=2, templates=words).run("Look.", budget=kt.Budget(tokens=9_999))
    assert [told(request) for request in model.calls] == [["2|9900|False"], ["1|9800|True"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_recorded_reply_is_found_with_another_budget(tmp_path: Path, stream: bool) -> None:
    file = tmp_path / "calls.jsonl"

    async def run(model: Any, tokens: int) -> str:
        agent = kt.MiniAgent(model, tools=[look], stream=stream, settings={"max_tokens": 20})
        return (await agent.run("Look.", budget=kt.Budget(tokens=tokens))).text

    live = ScriptedModel([looking(), "Done."])
    assert await run(RecordReplayModel(file, live), 50_000) == "Done."
    assert await run(RecordReplayModel(file, mode="replay"), 80_000) == "Done."
    assert told(live.calls[0]) == ["Left for this task: 10 turns, about 50,000 tokens."]
