"""The kit of `ResourceConstraint`: its answers about an attempt, and their effect in a run."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import anyio

from kairo_team.constraints import ResourceAction, ResourceContext, ResourceValidation
from kairo_team.contracts import MemberContext, ResourceConstraint
from kairo_team.errors import ConstraintExit, HaltError
from kairo_team.events import ConstraintViolated
from kairo_team.governance.plug_ins import name_of
from kairo_team.tasks import Assignment
from kairo_team.tck.calls import check_cancels, result_or_error, skip_unless
from kairo_team.tck.constraint_answers import ConstraintAnswers, Measure, asking, checked, context_of
from kairo_team.tck.kit import clause
from kairo_team.tck.one_attempt import (
    TURN_DOLLARS,
    TURN_SECONDS,
    TURN_TOKENS,
    TURNS,
    Played,
    TurnModel,
    Work,
    ask,
    keep_asking,
    play,
)

__all__ = ["Measure", "ResourceConstraintTCK", "context_of"]

_PER_TURN: dict[Measure, int] = {
    "turns": 1,
    "tokens": TURN_TOKENS,
    "seconds": TURN_SECONDS,
    "dollars": TURN_DOLLARS,
}
_CAUTIOUS = {ResourceAction.GRACEFUL_EXIT, ResourceAction.EMERGENCY_STOP}


class ResourceConstraintTCK(ConstraintAnswers):
    """The contract kit of constraints.

    Override `make_constraint`, and give `fine_contexts` and `violating_contexts`, made by hand or by `context_of`. If
    the constraint measures one amount, also give `measure` and `limit`.
    """

    @clause("C5")
    async def test_c05_its_failure_stops_the_attempt_in_its_name(self) -> None:
        """In a run nothing is called and nothing accepted, and the event names it."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        constraint, model = self.make_crashing_constraint(), TurnModel()
        if not isinstance(await result_or_error(asking(constraint, context_of())), Exception):
            return
        played = await play(keep_asking(model), member={"constraints": [constraint]})
        first = played.seen.of(ConstraintViolated)[0]
        assert (first.constraint, first.action) == (name_of(constraint), "emergency_stop"), f"its event is {first}"
        assert not played.accepted, "the attempt was accepted"
        assert not model.calls, "a model was called"

    # ------------------------------------------------------------------ watching

    @clause("C6", needs="watches")
    async def test_c06_a_watch_ends_with_the_violation(self) -> None:
        """The watch returns a violation with reason and metrics, and `on_violation` returns an action for it."""
        constraint: Any = self.make_violated_constraint()
        found = checked(await constraint.watch())
        assert found.violated, "it ended without a violation"
        assert isinstance(constraint.on_violation(found), ResourceAction)

    @clause("C6", needs="watches")
    async def test_c06_a_call_that_hangs_is_interrupted(self) -> None:
        """In a run whose one model call never ends, the watch ends it, for a member and for a team."""
        constraint = self.make_violated_constraint()
        action = constraint.on_violation(await self._violation())
        skip_unless(action is ResourceAction.EMERGENCY_STOP, f"its violation leads to {action}")
        for where in ("member", "team"):
            model = TurnModel(hangs=True)
            with anyio.move_on_after(1800) as patience:
                played = await self._play(keep_asking(model), self.make_violated_constraint(), where)
                assert not played.accepted, "the attempt was accepted"
            assert not patience.cancelled_caught, f"as a {where}'s constraint it left a call that hangs alone"

    # ------------------------------------------------------------------ cancellation

    @clause("C7", needs="watches")
    async def test_c07_a_watch_is_cancelled(self) -> None:
        """The watch ends with the attempt."""
        constraint: Any = self.make_constraint()
        await check_cancels("watch", constraint.watch)

    @clause("C7", needs="can_wait")
    async def test_c07_cancellation_passes_through(self) -> None:
        """A `validate` that waits is cancelled with the attempt."""
        await check_cancels("validate", asking(self.make_waiting_constraint(), context_of()))

    # ------------------------------------------------------------------ in a run

    @clause("C8")
    async def test_c08_an_attempt_within_the_limit_is_left_alone(self) -> None:
        """An attempt that uses nothing ends as it would without the constraint."""
        for where in ("member", "team"):
            played = await self._play(_use_nothing, self.make_constraint(), where)
            assert not played.seen.of(ConstraintViolated), f"it was violated: {played.seen.of(ConstraintViolated)}"
            assert played.result.output == "nothing used"

    @clause("C8", needs="reached_in_runs")
    async def test_c08_what_it_decides_happens(self) -> None:
        """After the violation no further call starts, or the outcome warns; kept work comes back."""
        for where in ("member", "team"):
            constraint, model = self.make_violated_constraint(), TurnModel()
            noted = _Noted(model)
            played = await self._play(keep_asking(model), constraint, where, watch=noted)
            assert noted.action is not None, f"{TURNS} turns, and it was never violated; see reached_in_runs"
            if self.measure is not None:
                turns = math.ceil(float(self.limit) / _PER_TURN[self.measure])
                assert noted.calls == turns, f"violated after {noted.calls} calls, and the limit is reached in {turns}"
            _check_decided(noted, played, model.calls, name_of(constraint))

    @clause("C8", needs="reached_in_runs")
    async def test_c08_nothing_it_decided_is_undone_by_asking_again(self) -> None:
        """An agent that swallows the refusal gets no further call."""
        model = TurnModel()
        noted = _Noted(model)
        await self._play(_stubborn(model), self.make_violated_constraint(), "member", watch=noted)
        skip_unless(noted.action in _CAUTIOUS, f"its violation leads to {noted.action}")
        assert model.calls == noted.calls, f"{model.calls - noted.calls} calls were made after its decision"

    @clause("C8")
    async def test_c08_other_constraints_stay_in_force(self) -> None:
        """A constraint that allows no call refuses it, both before and after this one in the list."""
        for place in (0, 1):
            model = TurnModel()
            constraints: list[ResourceConstraint] = [self.make_constraint()]
            constraints.insert(place, _NoCall())
            played = await play(keep_asking(model), member={"constraints": constraints})
            assert [one.constraint for one in played.seen.of(ConstraintViolated)] == ["no-call"]
            assert not model.calls, "with this constraint, another one no longer holds"

    # ------------------------------------------------------------------ shared

    async def _violation(self) -> ResourceValidation:
        return await self.make_violated_constraint().validate(self.violating_contexts[0])

    async def _play(self, work: Work, constraint: ResourceConstraint, where: str, **how: Any) -> Played:
        if where == "member":
            return await play(work, member={"constraints": [constraint]}, **how)
        return await play(work, constraints=[constraint], **how)


class _NoCall:
    """A constraint that refuses the first model call."""

    name = "no-call"

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        return ResourceValidation(bool(context.agent_state.messages), "no call", {"iteration": context.iteration})

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        return ResourceAction.GRACEFUL_EXIT


class _Noted:
    """A subscriber that notes the first violation, and the number of model calls begun by then."""

    def __init__(self, model: TurnModel) -> None:
        self.action: ResourceAction | None = None
        self.calls = 0
        self._model = model

    def __call__(self, event: object) -> None:
        if isinstance(event, ConstraintViolated) and self.action is None:
            self.action, self.calls = ResourceAction(event.action), self._model.calls


def _check_decided(noted: _Noted, played: Played, calls: int, name: str) -> None:
    outcome = played.outcome
    if noted.action in _CAUTIOUS:
        assert calls == noted.calls, f"{calls - noted.calls} calls were paid after it decided on {noted.action}"
        text = outcome.artifact.text if outcome.artifact else ""
        wanted = f"kept after turn {noted.calls}" if noted.action is ResourceAction.GRACEFUL_EXIT else "kept after"
        assert noted.calls <= 1 or text.startswith(wanted), f"what was kept is lost: {text!r}"
        return
    assert played.result.output == "everything", f"it decided on {noted.action}, and the work stopped"
    warned = any(name in warning for warning in outcome.warnings)
    assert warned is (noted.action is ResourceAction.WARN_CONTINUE), f"the outcome's warnings are {outcome.warnings}"


async def _use_nothing(assignment: Assignment, context: MemberContext) -> str:
    return "nothing used"


def _stubborn(model: TurnModel) -> Work:
    """Make an agent that never stops asking its model."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        for _ in range(TURNS // 2):
            with suppress(ConstraintExit, HaltError):
                await ask(context, model)
        return "everything"

    return work
