"""Any team, any plan, any misbehaviour, any meddling from outside: the scenarios of the team machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.verdicts import ESCALATION_CAUSES

MEMBER_ACTS: Final = (
    "succeed", "succeed", "succeed", "succeed", "same", "fail", "fail", "hang", "nothing", "nonsense", "empty",
    "partial", "spend", "spend", "overspend", "group", "record", "swallow", "swallow slowly", "clean up slowly",
    "halt oneself", "stop oneself", "pay", "pay", "cancel oneself", "succeed", "succeed", "succeed",
)  # fmt: skip
"""What a member may do when it is called."""

VERDICTS: Final = (
    "pass", "pass", "pass", "pass", "revise", "revise", "same again", "crash", "hang", "swallow", "no verdict",
    *(f"escalate {cause.value}" for cause in sorted(ESCALATION_CAUSES)),
)  # fmt: skip
"""What an evaluator may do."""

DECISIONS: Final = ("approve", "approve", "reject", "revise", "silence", "raise", "nonsense", "defer", "defer", "defer")
"""What a person may do when asked; `approve`, `reject` and `revise` are answers too."""

WAITING_ACTS: Final = (
    "succeed", "succeed", "pay", "same", "fail", "spend", "overspend", "partial", "cancel oneself",
)  # fmt: skip
WAITING_VERDICTS: Final = ("pass", "revise", "same again", "crash", "escalate undecided", "escalate human_required")
ASKED: Final = ("defer", "defer", "defer", "approve", "revise", "reject", "silence")
"""The same, for runs that are likely to wait for people."""

PLANS: Final = ("plan", "plan", "plan", "plan", "raise", "nonsense", "unbindable", "spend", "overspend")
"""What a planner may do."""

DEEDS: Final = ("cancel task", "cancel task", "steer", "steer one", "top up", "kill", "cancel caller", "alarm")
"""What may come from outside while a run works."""


class Deed(NamedTuple):
    """Something that comes from outside."""

    at: float
    """Seconds after the session's beginning."""
    what: str
    which: int
    """The task it is about, by its place in the plan."""


@dataclass
class Script:
    """How whoever works on one task behaves: at its first try, its second, and so on, over and over."""

    acts: list[str]
    seconds: float
    verdicts: list[str]


@dataclass
class Scenario:
    """One run with all its sessions, and what is done to it."""

    tasks: list[kt.Task]
    scripts: list[Script]
    members: list[dict[str, Any]]
    config: kt.TeamConfig
    shared: kt.Budget | None
    """The runtime's budget."""
    expert: bool
    live: bool
    """Begun by `Runtime.start`, not by the coordinator."""
    policy: dict[str, Any]
    reviewed: bool
    """The expert team's evaluator is the editor; otherwise the one that only looks for text."""
    planner: list[str] | None
    """What the planner does, call by call; None: the plan is given."""
    fallback: bool
    approval: bool
    replan: bool
    gate: list[str] | None
    """What the person does, question by question; None: nobody can be asked."""
    guarded: bool
    """A team constraint can stop everything."""
    answers: list[str]
    """What the questions that were put off are answered with, in a random order; `later` leaves one open."""
    more: int | None
    """Tokens by which the budget is raised on resuming."""
    deeds: list[Deed]
    later: list[Deed] = field(default_factory=list[Deed])
    """Deeds of the sessions after the first."""

    def script(self, task_id: str) -> Script:
        """Return how work on a task goes; tasks of a new plan go like the first ones."""
        number = int(task_id[1:]) if task_id[1:].isdigit() else 0
        return self.scripts[number % len(self.scripts)]

    def does(self, *acts: str) -> bool:
        """Say whether any member may do one of these."""
        return any(act in script.acts for script in self.scripts for act in acts)


ROLES: Final = ("r0", "r1")


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@st.composite
def tasks_of(draw: st.DrawFn, members: int) -> list[kt.Task]:
    tasks: list[kt.Task] = []
    for number in range(draw(st.integers(1, 6))):
        before = draw(st.lists(some(*(t.id for t in tasks)), unique=True, max_size=3)) if tasks else []
        bound = draw(some("anybody", "anybody", "role", "member"))
        task = kt.Task(
            f"t{number}",
            "do",
            member=f"m{draw(st.integers(0, members - 1))}" if bound == "member" else None,
            role="r0" if bound == "role" else None,
            depends_on=before,
            needs=draw(some("all", "all", len(before), len(before) // 2)),
            weight=draw(some(1.0, 0.5, 7.0)),
            timeout=draw(some(None, None, 2.0)),
            budget=draw(some(None, None, None, kt.Budget(tokens=25), kt.Budget(loops=1))),
            evaluator=draw(some(None, None, "ed")),
        )
        tasks.append(task)
    return tasks


@st.composite
def members_of(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "role": "r0" if number == 0 else draw(some(*ROLES)),
            "max_concurrency": draw(some(None, None, 1, 2)),
            "budget": draw(some(None, None, None, kt.Budget(tokens=30), kt.Budget(loops=3))),
            "senior": draw(some(False, False, True)),
        }
        for number in range(draw(st.integers(1, 3)))
    ]


@st.composite
def configs(draw: st.DrawFn) -> kt.TeamConfig:
    return kt.TeamConfig(
        budget=kt.Budget(
            tokens=draw(some(None, None, None, 300, 300, 100, 0)),
            loops=draw(some(None, None, None, 30, 15, 4)),
            seconds=draw(some(None, None, None, None, None, 2.0, 4.0, 9.0, 0.0)),
        ),
        risk_profile=draw(st.sampled_from(kt.RiskProfile)),
        max_feedback_rounds=draw(st.integers(0, 3)),
        task_timeout=20.0,
        review_timeout=draw(some(5.0, 5.0, 0.01)),
        max_parallel_tasks=draw(some(None, None, 1, 2)),
        cancel_grace=draw(some(0.0, 0.5, 2.0)),
    )


MOMENTS: Final = (0.0, 0.05, 0.3, 0.5, 1.0, 1.7, 4.0)


def deeds(most: int) -> st.SearchStrategy[list[Deed]]:
    one = st.builds(Deed, some(*MOMENTS), some(*DEEDS), st.integers(0, 7))
    return st.lists(one, max_size=most)


def lines(*acts: str, most: int = 4) -> st.SearchStrategy[list[str]]:
    return st.lists(some(*acts), min_size=1, max_size=most)


@st.composite
def scenarios(draw: st.DrawFn, *, cancelled: bool = False, waits: bool = False) -> Scenario:
    """Draw a run of either coordinator with everything that can go wrong with it; if so asked, its caller does.

    `waits`: one that is likely to wait for people, for several tasks and in several sessions.
    """
    members, expert = draw(members_of()), waits or draw(some(True, True, False))
    tasks = draw(tasks_of(len(members)))
    seconds = some(0.0, 0.1, 0.5, 1.0, 3.0)
    gate = draw(lines(*ASKED) if waits else st.none() | lines(*DECISIONS)) if expert else None
    acts, verdicts = (WAITING_ACTS, WAITING_VERDICTS) if waits else (MEMBER_ACTS, VERDICTS)
    planner = draw(st.none() | lines(*PLANS)) if expert else None
    return Scenario(
        tasks=tasks,
        scripts=[draw(st.builds(Script, lines(*acts, most=3), seconds, lines(*verdicts, most=3))) for _ in tasks],
        members=members,
        config=draw(configs()),
        shared=draw(some(None, None, None, kt.Budget(tokens=200))),
        expert=expert,
        live=not cancelled and draw(st.booleans()),
        policy={
            "retries": draw(st.integers(0, 2)),
            "backoff": 0.2,
            "try_others": draw(some(True, True, False)),
            "abort_team": draw(some(False, False, False, True)),
        },
        reviewed=draw(some(True, True, False)),
        planner=planner,
        fallback=draw(st.booleans()),
        approval=gate is not None and draw(some(False, False, True)),
        replan=planner is not None and draw(some(False, True, True)),
        gate=gate,
        guarded=draw(some(False, False, False, True)),
        answers=draw(lines("approve", "reject", "revise", "later", most=5)),
        more=draw(some(None, None, 100)),
        deeds=[Deed(draw(some(*MOMENTS)), "cancel caller", 0)] if cancelled else draw(deeds(0 if waits else 4)),
        later=draw(deeds(2)),
    )
