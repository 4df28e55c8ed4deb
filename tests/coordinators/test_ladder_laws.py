"""Any tries, verdicts, seniors, decisions and risk: what holds of one task's way, whatever comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import ExpertTeamCoordinator, FailurePolicy
from kairo_team.testing import run_in_virtual_time, virtual_time_backends
from kairo_team.verdicts import NEVER_BY_RISK
from tests.coordinators.bench import COMPLETED, FAILED, LOW, PASS, Bench, left_open, task


@dataclass
class Way:
    """What each asked will say, in turn; when the script is over, the last of it again."""

    tries: list[str]
    verdicts: list[str]
    decisions: list[str]
    seniors: int
    members: int
    policy: FailurePolicy
    rounds: int
    risk: kt.RiskProfile

    def __post_init__(self) -> None:
        self.asked: dict[str, int] = dict.fromkeys(("tries", "verdicts", "decisions"), 0)
        self.approved = self.rejected = False

    def say(self, what: str) -> str:
        script: list[str] = getattr(self, what)
        number = self.asked[what]
        self.asked[what] += 1
        return script[min(number, len(script) - 1)]


CAUSES = [cause.value for cause in kt.Cause]
TRIES = st.lists(st.sampled_from(["made", "made", "same", "raises", "nothing", "empty", "partial"]), min_size=1)
ways = st.builds(
    Way,
    tries=TRIES,
    verdicts=st.lists(st.sampled_from(["pass", "revise", "revise", "revise", "crash", *CAUSES]), min_size=1),
    decisions=st.lists(st.sampled_from(["approve", "reject", "revise", "silence", "raise"]), min_size=1).map(
        lambda decisions: [*decisions, "silence"]
    ),
    seniors=st.integers(0, 2),
    members=st.integers(1, 3),
    policy=st.builds(FailurePolicy, retries=st.integers(0, 2), try_others=st.booleans(), abort_team=st.booleans()),
    rounds=st.integers(0, 3),
    risk=st.sampled_from(kt.RiskProfile),
)


def agent(way: Way) -> Any:
    async def work(assignment: kt.Assignment) -> Any:
        match way.say("tries"):
            case "raises":
                raise OSError("busy")
            case "nothing":
                return None
            case "empty":
                return ""
            case "same":
                return "the same"
            case "partial":
                return kt.AgentOutput(kt.Artifact("so far"), kt.AgentStatus.TURN_LIMIT_REACHED)
            case _:
                return f"artifact {way.asked['tries']}"

    return work


class Critic:
    def __init__(self, way: Way) -> None:
        self.way = way

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        said = self.way.say("verdicts")
        if said == "crash":
            raise RuntimeError("no judge")
        if said == "pass":
            return PASS
        if said == "revise":
            return kt.EvaluationVerdict.revise(f"number {self.way.asked['verdicts']}")
        return left_open(kt.Cause(said))


class Gate:
    def __init__(self, way: Way) -> None:
        self.way = way

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        match self.way.say("decisions"):
            case "approve":
                self.way.approved = True
                return kt.HumanDecision.approve()
            case "reject":
                self.way.rejected = True
                return kt.HumanDecision.reject()
            case "revise":
                return kt.HumanDecision.revise("more")
            case "raise":
                raise OSError("nobody there")
            case _:
                return None


def team_of(way: Way) -> Bench:
    senior = None
    for number in range(way.seniors):
        senior = kt.Member("chief", agent(way), name=f"chief-{number}", senior=senior)
    return Bench(*(kt.Member("clerk", agent(way), senior=senior) for _ in range(way.members)))


async def go(way: Way, *, gated: bool) -> tuple[kt.TeamResult, Bench]:
    bench = team_of(way)
    coordinator = ExpertTeamCoordinator(
        evaluator=Critic(way), failure_policy=way.policy, gate=Gate(way) if gated else None
    )
    config: dict[str, Any] = {"risk_profile": way.risk, "max_feedback_rounds": way.rounds}
    return await bench.run(coordinator, task("t", role="clerk"), **config), bench  # which replays it too


@pytest.mark.parametrize("backend", virtual_time_backends)
@given(way=ways, gated=st.booleans())
@settings(max_examples=settings().max_examples * 3 // 2)
def test_what_holds_of_every_way_up(backend: str, way: Way, gated: bool) -> None:
    result, bench = run_in_virtual_time(lambda: go(way, gated=gated), backend=backend)
    outcome = result["t"]
    verdict = outcome.verdict
    passed = verdict is not None and verdict.outcome is kt.VerdictOutcome.PASS
    assert outcome.status in (COMPLETED, FAILED)
    assert outcome.attempts == way.asked["tries"]
    if outcome.status is COMPLETED:
        assert verdict is not None
        assert outcome.artifact is not None
        by_risk = way.risk is LOW and verdict.cause not in NEVER_BY_RISK
        assert passed or way.approved or by_risk
        assert not way.rejected
        whole = passed and not outcome.artifact.partial
        expected = kt.TeamStatus.COMPLETED if whole else kt.TeamStatus.DEGRADED
        assert result.status is expected
    else:
        assert not passed
        assert not way.approved
        assert result.status is kt.TeamStatus.FAILED
        assert outcome.error
    started = [event.member for event in bench.recorder.of(events.AttemptStarted)]
    reviews = bench.recorder.of(events.EvaluationResult)
    revised = sum(event.verdict.outcome is kt.VerdictOutcome.REVISE for event in reviews)
    decided = way.asked["decisions"] if gated else 0
    assert revised <= way.rounds + 1 + way.seniors * (1 + decided) + decided
    assert sum(str(member).startswith("chief") for member in started) <= way.seniors * (1 + decided)
    assert gated or decided == 0
