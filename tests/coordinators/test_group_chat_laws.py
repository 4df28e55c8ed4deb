"""Whatever members and moderators do: turns, budget and transcript keep their limits, and a replay is the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, Said
from kairo_team.coordinators.moderators import END
from kairo_team.coordinators.turns import written
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, FunctionModel, run_in_virtual_time, virtual_time_backends
from tests.test_recorded_steps import Broken, Replay, comparable

GOAL = "Settle where we eat, and when; then say who pays."
MEMBERS = "abcd"


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep still: many attempts fail here, and say so."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


class Case(NamedTuple):
    max_turns: int
    chars: int
    closing: bool
    reviewed: bool
    moderator: str
    """What kind there is."""
    replies: list[str]
    """Of a model that moderates, in turn, again and again."""
    lengths: list[int]
    """Of what is said, in turn."""
    fails: list[bool]
    """Which attempts fail, in turn."""
    tokens: int | None
    kill: float | None


CASES = st.builds(
    Case,
    max_turns=st.integers(1, 7),
    chars=st.integers(200, 600),
    closing=st.booleans(),
    reviewed=st.booleans(),
    moderator=st.sampled_from(["round_robin", "function", "model"]),
    replies=st.lists(
        st.sampled_from(["a", "b", "c", "d", "zed", END, "[", "raise", '{"next": 3}']), min_size=1, max_size=8
    ),
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    fails=st.lists(st.booleans(), min_size=1, max_size=6),
    tokens=st.none() | st.integers(20, 2_000),
    kill=st.none() | st.floats(0.1, 9),
)


class Talk:
    """One case, played."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.asked: list[kt.Assignment] = []
        self.moderated = 0

    async def speak(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        number = len(self.asked)
        self.asked.append(assignment)
        context.governor.record_usage(prompt_tokens=7)
        await anyio.sleep(1)
        if self.case.fails[number % len(self.case.fails)]:
            raise LookupError("no words")
        return "w" * self.case.lengths[number % len(self.case.lengths)]

    async def reply(self, request: kt.ModelRequest) -> str:
        await anyio.sleep(0.3)
        return self.answer()

    def answer(self) -> str:
        said = self.case.replies[self.moderated % len(self.case.replies)]
        self.moderated += 1
        if said == "raise":
            raise OSError("no line")
        return json.dumps({"next": said}) if said in {*MEMBERS, "zed", END} else said

    async def pick(self, said: Sequence[Said]) -> str | None:
        await anyio.sleep(0.3)
        named: Any = json.loads(self.answer())["next"]
        return None if named == END else named

    def chat(self, *, silent: bool = False) -> kt.GroupChatCoordinator:
        case = self.case
        model = FunctionModel(_never if silent else self.reply, name="test:m")
        kinds: dict[str, Any] = {"function": _never if silent else self.pick, "model": model}
        return kt.GroupChatCoordinator(
            moderator=kinds.get(case.moderator, "round_robin"),
            max_turns=case.max_turns,
            transcript_chars=case.chars,
            closing="d" if case.closing else None,
            evaluator=_Passes() if case.reviewed else None,
            failure_policy=FailurePolicy(retries=1, backoff=0.5),
        )


def _never(*_: Any) -> Any:
    raise AssertionError("it was asked in a replay")


class _Passes:
    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        return kt.EvaluationVerdict.passed()


async def play(case: Case) -> None:
    talk, seen, journal = Talk(case), EventRecorder(), MemoryRecords()
    config = kt.TeamConfig(budget=kt.Budget(tokens=case.tokens), risk_profile=kt.RiskProfile.LOW, cancel_grace=0.5)
    request = kt.TeamExecutionRequest(GOAL, config=config, run_id="r")
    runtime = Replay(journal, subscribers=[seen])
    team = kt.Team("t", [kt.Member(name, talk.speak) for name in MEMBERS], runtime=runtime)
    with anyio.fail_after(1_000):
        async with runtime, runtime.stream(team, request, coordinator=talk.chat()) as run:
            if case.kill is not None:
                await anyio.sleep(case.kill)
                with suppress(kt.RunFinished):
                    run.cancel("enough")
            result = await run.result()
    event(f"{result.status}, {case.moderator}")
    seen.assert_lawful()
    turns = [one for one in result.outcomes if one.task_id.startswith("turn.")]
    assert len(turns) <= case.max_turns
    if case.tokens is not None and case.moderator != "model":
        assert result.usage.tokens <= case.tokens + 7, "the attempt that spent the last tokens booked 7 at once"
    for one in talk.asked:
        last = [given.text for given in one.upstream.values()]
        earlier = one.inputs.get("the talk so far", "")
        assert len(earlier) <= max(0, case.chars - sum(map(len, last)))
        assert one.task.description == one.goal == GOAL
    accepted = [one for one in result.outcomes if one.status is kt.TaskStatus.COMPLETED]
    if accepted and case.kill is None:
        assert result.output or result.partial_output, "somebody spoke, and there is no result"
    broken: Any = Broken()
    again = kt.Team(
        "t", [kt.Member(name, broken) for name in MEMBERS], runtime=Replay(MemoryRecords(dict(journal.records)))
    )
    with anyio.fail_after(1_000):
        assert comparable(await talk.chat(silent=True).execute(request, again)) == comparable(result)


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(case=CASES)
def test_turns_budget_and_transcript_keep_their_limits_and_a_replay_is_the_same(backend: str, case: Case) -> None:
    run_in_virtual_time(play, case, backend=backend)


@given(
    said=st.lists(st.builds(Said, st.sampled_from(MEMBERS), st.text(max_size=80), st.text(max_size=20)), max_size=30),
    most=st.integers(0, 400),
)
def test_a_transcript_keeps_its_cap_and_has_the_newest_turns(said: list[Said], most: int) -> None:
    text = written(said, most)
    assert len(text) <= most
    whole = "\n\n".join(map(str, said))
    assert (text == whole) is (len(whole) <= most)
    if said and most >= 100 + len(str(said[-1])):
        assert text.endswith(str(said[-1]))
