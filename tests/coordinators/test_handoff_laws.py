"""Whatever members hand over: hops stay below the limit, the budget holds, it ends, and a replay decides the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import anyio
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends
from tests.test_recorded_steps import Broken, Replay, comparable

NAMES: Final = ("a", "b", "c", "d")
LIMITS: Final = (kt.Budget(tokens=60), kt.Budget(loops=5), kt.Budget(tool_calls=2))


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep still: many attempts fail here, and say so."""
    logger = logging.getLogger("kairo_team")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@dataclass
class Move:
    """What a member does in one of its turns."""

    what: str
    """`tool`, `data`, `answer`, `fail` or `say`: hand over by the tool or by data, answer, raise, only write."""
    to: int
    """Which of those it may hand over to; -1 is somebody else."""
    message: str
    """Blank: something new each time."""
    text: str
    tokens: int
    seconds: float


@dataclass
class Talk:
    """A team that hands over, and how its run is limited."""

    members: int
    moves: dict[str, list[Move]]
    """What each member does in turn; then it begins again."""
    how: dict[str, Any]
    config: dict[str, Any]

    def work(self) -> Any:
        done: dict[str, int] = dict.fromkeys(NAMES, 0)

        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
            me = context.role.id
            move = self.moves[me][done[me] % len(self.moves[me])]
            done[me] += 1
            said = {"to": self.target(me, move), "message": move.message or f"number {sum(done.values())}"}
            context.keep(move.text)
            await anyio.sleep(move.seconds)
            left = context.remaining.tokens
            context.governor.record_usage(prompt_tokens=move.tokens if left is None else min(move.tokens, left))
            if move.what == "fail":
                raise LookupError("closed")
            if move.what == "data":
                return kt.Artifact(move.text or "said", {"hand_over": said})
            if move.what == "tool" and context.offered:
                return (await context.tool("hand_over")(**said)).text
            return move.text or "said"

        return work

    def allowed(self, member: str) -> list[str]:
        others = [name for name in NAMES[: self.members] if name != member]
        named: list[str] = self.how["routes"].get(member, others)
        return [name for name in others if name in named]

    def target(self, member: str, move: Move) -> str:
        allowed = self.allowed(member)
        return allowed[move.to % len(allowed)] if allowed and move.to >= 0 else "nobody"

    def team(self, agent: Any, runtime: kt.Runtime) -> kt.Team:
        return kt.Team("desk", [kt.Member(name, agent) for name in NAMES[: self.members]], runtime=runtime)


MOVES = st.builds(
    Move,
    what=st.sampled_from([*["tool"] * 6, *["data"] * 3, "answer", "fail"]),
    to=st.sampled_from([0, 1, 2, 0, 1, 2, -1]),
    message=st.sampled_from(["go on", "Go  on", "", "", ""]),
    text=st.sampled_from(["", "half", "more of it"]),
    tokens=st.sampled_from([0, 1, 30]),
    seconds=st.sampled_from([0.0, 1.0, 20.0]),
)


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    members = draw(st.sampled_from([1, 2, 2, 3, 3, 4]))
    names = NAMES[:members]
    others = {name: [one for one in names if one != name] for name in names}
    routes = draw(st.dictionaries(st.sampled_from(names), st.just(None), max_size=members))
    how: dict[str, Any] = {
        "max_hops": draw(st.integers(0, 12)),
        "routes": {
            name: draw(st.lists(st.sampled_from(others[name]), unique=True)) if others[name] else [] for name in routes
        },
        "failure_policy": FailurePolicy(retries=draw(st.integers(0, 1)), try_others=draw(st.booleans())),
    }
    config: dict[str, Any] = {
        "budget": draw(st.sampled_from([*[kt.Budget()] * 3, *LIMITS, kt.Budget(seconds=30.0)])),
        "risk_profile": draw(st.sampled_from(list(kt.RiskProfile))),
    }
    moves = {name: draw(st.lists(MOVES, min_size=1, max_size=3)) for name in names}
    return Talk(members, moves, how, config)


async def play(talk: Talk, agent: Any, journal: MemoryRecords) -> tuple[kt.TeamResult, EventRecorder]:
    seen = EventRecorder()
    request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(**talk.config), run_id="r")
    team = talk.team(agent, Replay(journal, subscribers=[seen]))
    with anyio.fail_after(10_000):
        return await kt.HandoffCoordinator(**talk.how).execute(request, team), seen


@pytest.mark.parametrize("backend", virtual_time_backends)
@settings(max_examples=settings().max_examples * 3 // 2)
@given(talk=talks())
def test_whatever_members_hand_over(backend: str, talk: Talk) -> None:
    async def check() -> None:
        journal = MemoryRecords()
        result, seen = await play(talk, talk.work(), journal)
        seen.assert_lawful()
        event(result.status.value)
        turns = [outcome.task_id for outcome in result.outcomes]
        assert turns == [f"turn.{number:04d}" for number in range(1, len(turns) + 1)]
        assert len(turns) <= talk.how["max_hops"] + 1
        event(f"{min(len(turns), 5)} turns")
        budget = talk.config["budget"]
        for name in ("tokens", "loops", "tool_calls"):
            limit = getattr(budget, name)
            assert limit is None or getattr(result.usage, name) <= limit
        check_routes(talk, result)
        if result.status is kt.TeamStatus.COMPLETED:
            assert result.artifact == result.outcomes[-1].artifact
        check_new_words(seen, result)
        broken: Any = Broken()
        again, replayed = await play(talk, broken, MemoryRecords(dict(journal.records)))
        replayed.assert_lawful()
        assert comparable(again) == comparable(result)

    run_in_virtual_time(check, backend=backend)


def check_routes(talk: Talk, result: kt.TeamResult) -> None:
    """Nobody had a turn that was not one of those its turn could have been given to."""
    for before, after in zip(result.outcomes, result.outcomes[1:], strict=False):
        assert after.member is None or after.member in talk.allowed(before.member or "")


def check_new_words(seen: EventRecorder, result: kt.TeamResult) -> None:
    """No two hand-overs that were followed were the same."""
    plan = result.plan
    assert plan is not None
    said = [
        (before.member, task.member, before.artifact and before.artifact.text.casefold(), words(task))
        for before, task in zip(result.outcomes, plan.tasks[1:], strict=False)
    ]
    assert len(set(said)) == len(said)
    assert len(seen.of(events.TeamEnded)) == 1


def words(task: kt.Task) -> str:
    return " ".join(str(task.inputs["message"]).split()).casefold()


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(circle=st.integers(2, 4), message=st.text(min_size=1).filter(str.strip), text=st.text(), tool=st.booleans())
def test_the_same_words_end_after_one_round_however_many_take_part(
    backend: str, circle: int, message: str, text: str, tool: bool
) -> None:
    names = NAMES[:circle]
    following: dict[str, str] = dict(zip(names, [*names[1:], names[0]], strict=True))

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        context.keep(text)
        to = following[context.role.id]
        if tool:
            await context.tool("hand_over")(to=to, message=message)
        return kt.Artifact(text.strip() or "said", {"hand_over": {"to": to, "message": message}})

    async def check() -> None:
        team = kt.Team("desk", [kt.Member(name, work) for name in names])
        result = await kt.run(team, "g", coordinator=kt.HandoffCoordinator(max_hops=1_000))
        assert result.status is kt.TeamStatus.DEGRADED
        assert len(result.outcomes) == circle + 1
        assert "in the same words as before" in result.warnings[0]

    run_in_virtual_time(check, backend=backend)
