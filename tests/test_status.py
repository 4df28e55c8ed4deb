"""The status of a run: the whole table, against an oracle written from the design's text alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, product, starmap
from typing import Any, Final

import pytest

from kairo_team.artifacts import Artifact
from kairo_team.budget import HaltReason, Usage
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.engine.records.plan_records import NewPlanRecords
from kairo_team.engine.run.ending import RunEnd, RunFacts, decide_status
from kairo_team.engine.tasks.ready_tasks import Entry
from kairo_team.engine.tasks.task_run import TaskRun, TaskState
from kairo_team.errors import HaltError, PlanRefused, PlanRejected, TeamAborted
from kairo_team.results import TeamStatus
from kairo_team.tasks import Task
from kairo_team.team import RiskProfile, TeamConfig
from kairo_team.verdicts import Cause, EvaluationVerdict
from tests import states_page
from tests.status_oracle import Story, TaskEnd, status_of

PLAIN = replace(states_page.PLAIN, accepted=2)
EXHAUSTIONS: Final = tuple(halt for halt in HaltReason if halt.endswith("_budget_exceeded") and halt[:4] != "time")
BOTH: Final = (False, True)


# ---------------------------------------------------------------- the decision


def story_of(facts: RunFacts) -> Story:
    """Tell the oracle what the facts say."""
    lost = TaskEnd("failed", for_budget=facts.ended_for_halt)
    tasks = [TaskEnd("completed", unpassed=facts.degraded)] * facts.accepted + [lost] * facts.lost
    tasks += [replace(lost, needed=False)] * facts.dispensable
    return Story(
        tuple(tasks),
        killed=facts.caller_cancelled or facts.halt == "cancelled",
        late=facts.halt == "time_budget_exceeded",
        refused=facts.broken,
        emergency=facts.halt == "emergency_stop",
        exhausted=facts.halt in EXHAUSTIONS,
        plan_waits=facts.waiting,
        risk=facts.risk.value,
        tolerant=facts.tolerate_failures,
    )


def every_fact() -> list[RunFacts]:
    """List every combination that can be: a task that ended for the budget is one that was not accepted."""
    some = (0, 1, 2)
    axes = product(
        [None, *HaltReason], BOTH, BOTH, BOTH, BOTH, some, some, some, BOTH, RiskProfile, BOTH
    )  # fmt: skip
    facts = list(starmap(RunFacts, axes))
    return [
        one
        for one in facts
        if not (one.ended_for_halt and not one.lost and not one.dispensable) and not (one.degraded and not one.accepted)
    ]


def test_every_combination_of_facts_has_the_status_the_design_says() -> None:
    facts = every_fact()
    assert len(facts) == 32_640
    assert [one for one in facts if decide_status(one) != status_of(story_of(one))] == []


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (PLAIN, TeamStatus.COMPLETED),
        (replace(PLAIN, halt=HaltReason.CANCELLED, broken=True), TeamStatus.CANCELLED),
        (replace(PLAIN, halt=HaltReason.TIME_BUDGET_EXCEEDED, accepted=0), TeamStatus.TIMEOUT),
        (replace(PLAIN, caller_cancelled=True, halt=HaltReason.TIME_BUDGET_EXCEEDED), TeamStatus.CANCELLED),
        (replace(PLAIN, halt=HaltReason.TOKEN_BUDGET_EXCEEDED), TeamStatus.COMPLETED),
        (replace(PLAIN, lost=1, dispensable=1), TeamStatus.FAILED),
        (replace(PLAIN, dispensable=1, risk=RiskProfile.HIGH), TeamStatus.DEGRADED),
        (replace(PLAIN, degraded=True), TeamStatus.DEGRADED),
        (replace(PLAIN, accepted=0, tolerate_failures=True), TeamStatus.FAILED),
        (replace(PLAIN, accepted=0, lost=1, waiting=True), TeamStatus.SUSPENDED),
        (replace(PLAIN, broken=True, waiting=True), TeamStatus.FAILED),
    ],
)
def test_the_cases_people_ask_about(facts: RunFacts, status: TeamStatus) -> None:
    assert decide_status(facts) is status


# ---------------------------------------------------------------- from what happened to the decision

PASS = EvaluationVerdict.passed(1.0)
LEFT_OPEN = EvaluationVerdict.escalate(Cause.UNDECIDED, "nobody knows")
NO_STEPS = NewPlanRecords(MemoryRecords(), 0)


def record(state: TaskState, *, dispensable: bool = False, **fields: Any) -> TaskRun:
    """Make a task that ended like this; a dispensable one has a dependent that did without it."""
    entry = Entry(Task("t", "do"), 0, ("m",), accepted=state is TaskState.COMPLETED)
    if dispensable:
        entry.dependents.append(Entry(Task("after", "do"), 1, ("m",), needed=1, accepted_needs=1))
    made = TaskRun(entry, NO_STEPS)
    made.state = state
    for name, given in fields.items():
        setattr(made, name, given)
    return made


COMPLETED, FAILED, SKIPPED = TaskState.COMPLETED, TaskState.FAILED, TaskState.SKIPPED
TEXT, PART = Artifact("text"), Artifact("text", partial=True)
ENDS: Final[Sequence[tuple[TaskRun, TaskEnd]]] = [
    (record(COMPLETED, artifact=TEXT), TaskEnd("completed")),
    (record(COMPLETED, artifact=TEXT, verdict=PASS), TaskEnd("completed")),
    (record(COMPLETED, artifact=TEXT, verdict=LEFT_OPEN), TaskEnd("completed", unpassed=True)),
    (record(COMPLETED, artifact=PART), TaskEnd("completed", partial=True)),
    (record(COMPLETED, artifact=PART, verdict=PASS), TaskEnd("completed", partial=True)),
    (record(FAILED, artifact=PART), TaskEnd("failed")),
    (record(FAILED, for_halt=True), TaskEnd("failed", for_budget=True)),
    (record(FAILED, superseded=True), TaskEnd("failed", needed=False)),
    (record(SKIPPED), TaskEnd("skipped")),
    (record(SKIPPED, dispensable=True), TaskEnd("skipped", needed=False)),
    (record(TaskState.CANCELLED), TaskEnd("cancelled")),
    (record(TaskState.SUSPENDED), TaskEnd("suspended")),
]
"""Every way one task can end that matters, and what is seen of it."""

HALTED = HaltError(HaltReason.TOKEN_BUDGET_EXCEEDED, Usage(), "team")
CAUSES: Final[Sequence[tuple[HaltReason | None, dict[str, Any], dict[str, bool]]]] = [
    (None, {}, {}),
    (None, {"caller_cancelled": True}, {"killed": True}),
    (HaltReason.CANCELLED, {"error": HALTED}, {"killed": True}),
    (HaltReason.TIME_BUDGET_EXCEEDED, {"error": HALTED}, {"late": True}),
    (HaltReason.EMERGENCY_STOP, {"error": HALTED}, {"emergency": True}),
    (None, {"error": PlanRefused(["no"])}, {"refused": True}),
    (None, {"error": PlanRejected("no")}, {"refused": True}),
    (None, {"error": RuntimeError("a coordinator broke")}, {"refused": True}),
    (None, {"error": HALTED}, {"refused": True}),
    (None, {"error": TeamAborted("enough"), "aborted": True}, {"aborted": True}),
    *((halt, {}, {"exhausted": True}) for halt in EXHAUSTIONS),
    *((halt, {"error": HALTED}, {"exhausted": True}) for halt in EXHAUSTIONS),
    (EXHAUSTIONS[0], {"error": TeamAborted("enough")}, {"exhausted": True, "aborted": True}),
    (EXHAUSTIONS[0], {"caller_cancelled": True}, {"exhausted": True, "killed": True}),
    (HaltReason.TIME_BUDGET_EXCEEDED, {"caller_cancelled": True}, {"late": True, "killed": True}),
    (HaltReason.TIME_BUDGET_EXCEEDED, {"error": TeamAborted("enough")}, {"late": True, "aborted": True}),
    (HaltReason.EMERGENCY_STOP, {"error": TeamAborted("enough")}, {"emergency": True, "aborted": True}),
]
"""What can bring a run to its end: the root's halt, what the run knows beside it, and what is seen."""


MOST: Final = 4
"""Different ends in one mix: one that was accepted, one each that was needed and was not, and one that waits."""


def mixes(most: int = MOST) -> Iterator[tuple[tuple[TaskRun, TaskEnd], ...]]:
    return chain.from_iterable(combinations(ENDS, size) for size in range(most + 1))


def test_audit_g14_what_a_run_was_ended_without_counts_as_if_it_had_not_been_planned() -> None:
    config = TeamConfig()
    for mix in mixes():
        kept = [one for one, _ in mix]
        off = [record(state) for state in (SKIPPED, TaskState.CANCELLED, FAILED)]
        for one in off:
            one.task = Task("off", "do")
        ending = RunEnd(tolerate_failures=False, concluded="enough", called_off={"off"})
        plain = RunEnd(tolerate_failures=False)
        assert ending.status(None, [*kept, *off], config, waiting=False) is plain.status(
            None, kept, config, waiting=False
        )


@pytest.mark.parametrize(("most", "many"), [(3, 1 + 12 + 66 + 220), pytest.param(4, 794, marks=pytest.mark.exhaustive)])
def test_every_way_a_run_can_end_has_the_status_the_design_says(most: int, many: int) -> None:
    """Coordinator x risk x cause of the end x mix of task ends x fallback x a plan that waits: none is undefined."""
    told, wrong = 0, list[tuple[Story, object]]()
    configs = [TeamConfig(risk_profile=risk) for risk in RiskProfile]
    rest = list(product(CAUSES, configs, BOTH, BOTH, BOTH))
    for mix in mixes(most):
        records, ends = [one for one, _ in mix], tuple(end for _, end in mix)
        asleep = any(end.status == "suspended" for end in ends)
        for (halt, known, seen), config, tolerant, fallback, plan_waits in rest:
            ending = RunEnd(tolerate_failures=tolerant, degraded="a fallback plan" if fallback else None, **known)
            status = ending.status(halt, records, config, waiting=plan_waits or asleep)
            risk = config.risk_profile.value
            story = Story(ends, plan_waits=plan_waits, fallback=fallback, risk=risk, tolerant=tolerant, **seen)
            told += 1
            if status != status_of(story):
                wrong.append((story, status))
    assert wrong == []
    assert told == many * 23 * 3 * 2 * 2 * 2
