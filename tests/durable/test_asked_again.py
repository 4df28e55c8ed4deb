"""What a resumed run reports: calls in doubt, and calls that took the place of recorded ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.durable import database
from kairo_team.testing import EventRecorder
from tests.durable.cuts import play
from tests.durable.desk import Images
from tests.durable.payers import RUN, Members, Payer, SideBySide, ask

pytestmark = pytest.mark.real_time

ELSE = "made other calls than before the run was interrupted"
ONE = kt.TaskGraph([kt.Task("one", "Do one.")])


class Fickle(Payer):
    """A member that asks one thing after the other in an attempt; `words` are what they begin with."""

    plan: kt.TaskGraph | None = ONE

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def team(self) -> kt.Team:
        async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
            model = context.model("m:x")
            for number, word in enumerate(self.words):
                await model.complete(ask(f"{word} {number}"))
            return "done"

        return kt.Team("team", [kt.Member("writer", work)])


class Judged(Fickle):
    """An evaluator that asks; and a member that asks nothing."""

    def coordinator(self) -> Any:
        return ExpertTeamCoordinator(evaluator=_Asking(self.words))

    def team(self) -> kt.Team:
        async def work(assignment: kt.Assignment) -> str:
            return "done"

        return kt.Team("team", [kt.Member("writer", work)])


class _Asking:
    def __init__(self, words: Sequence[str]) -> None:
        self.models, self.words = ("m:x",), words

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        for number, word in enumerate(self.words):
            await context.context.model("m:x").complete(ask(f"{word} {number}"))
        return kt.EvaluationVerdict.passed()


class Planning(Fickle):
    """A planner that asks; and a member that asks nothing."""

    plan = None

    def coordinator(self) -> Any:
        return ExpertTeamCoordinator(planner=_Planner(self.words))

    def team(self) -> kt.Team:
        return Judged().team()


class _Planner:
    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: kt.MemberContext) -> kt.TaskGraph:
        for number, word in enumerate(self.words):
            await context.model("m:x").complete(ask(f"{word} {number}"))
        return ONE


def cut(folder: Path, first: Payer, *, answered: int, sent: int = 0) -> Path:
    """Return the journal of a run that was cut when so many calls were answered, and so many more were sent."""

    def is_it(path: Path) -> bool:
        with closing(sqlite3.connect(path)) as connection:
            states = [state for (state,) in connection.execute("SELECT state FROM call")]
        return states.count("answered") == answered and states.count("sent") == sent

    with pytest.MonkeyPatch.context() as patch:
        images = Images(folder, patch)
        anyio.run(partial(play, first, folder / "runs.db", go_on=False))
    return next(path for path in images.paths if is_it(path))


def resumed(path: Path, payer: Payer) -> tuple[kt.TeamResult, list[events.Event]]:
    """Go on with the run; return how it ended, and its events."""
    recorder = EventRecorder()
    result = anyio.run(partial(play, payer, path, go_on=True, subscribers=[recorder]))
    return result, recorder.events


def diverged(found: Sequence[events.Event]) -> list[tuple[str | None, int]]:
    return [(one.task_id, one.calls) for one in found if isinstance(one, events.CallsDiverged)]


def test_a_call_that_took_the_place_of_a_recorded_one_is_made_and_reported(tmp_path: Path) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=2)
    again = Fickle("a", "b", "b")
    result, found = resumed(path, again)
    assert len(again.account) == 2
    assert diverged(found) == [("one", 1)]
    [warning] = result.warnings
    assert warning.startswith(f"task 'one' {ELSE}: 1 call was made in the place of recorded ones, and paid again.")
    assert "context.recorded(...)" in warning
    assert result.status is kt.TeamStatus.COMPLETED


def test_every_such_call_is_counted(tmp_path: Path) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=3)
    result, found = resumed(path, Fickle("b", "b", "b", "b"))
    assert diverged(found) == [("one", 3)]
    assert f"task 'one' {ELSE}: 3 calls were made in the place of recorded ones" in result.warnings[0]


@pytest.mark.parametrize("words", [("a", "a", "a"), ("a", "a", "a", "a", "a")])
def test_who_asks_the_same_and_more_has_not_diverged(tmp_path: Path, words: Sequence[str]) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=1, sent=1)
    result, found = resumed(path, Fickle(*words))
    assert diverged(found) == []
    assert not any(ELSE in warning for warning in result.warnings)


def test_who_needs_less_has_not_diverged(tmp_path: Path) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=2)
    result, found = resumed(path, Fickle("a"))
    assert (diverged(found), result.warnings) == ([], ())


class Ordered(SideBySide):
    plan = ONE


class Shuffled(Ordered):
    """The same calls at once, in another order."""

    order = ("a2", "c1", "b1", "a1")


@pytest.mark.parametrize("answered", [1, 2, 3])
def test_calls_at_once_may_come_in_another_order(tmp_path: Path, answered: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        images = Images(tmp_path, patch)
        anyio.run(partial(play, Ordered(), tmp_path / "runs.db", go_on=False))
    path = [one for one in images.paths if kt.SqliteJournal(one).show(RUN).state == "interrupted"][-1]
    with closing(sqlite3.connect(path)) as connection, connection:  # as if only so many had been sent by then
        kept = f"SELECT key FROM step WHERE key LIKE 'call:%' ORDER BY id LIMIT {answered}"  # noqa: S608 - a number
        connection.execute("DELETE FROM step WHERE key LIKE 'attempt:%'")
        connection.execute(f"DELETE FROM call WHERE key NOT IN ({kept})")  # noqa: S608 - the same
        connection.execute(f"DELETE FROM step WHERE key LIKE 'call:%' AND key NOT IN ({kept})")  # noqa: S608 - the same
    again = Shuffled()
    result, found = resumed(path, again)
    assert len(again.account) == 4 - answered
    assert (diverged(found), result.warnings) == ([], ())


@pytest.mark.parametrize(("kind", "what"), [(Judged, "the review of task 'one'"), (Planning, "the work 'plan:")])
def test_reviews_and_plans_are_watched_too(kind: type[Fickle], what: str, tmp_path: Path) -> None:
    path = cut(tmp_path, kind("a", "a"), answered=1)
    result, found = resumed(path, kind("b", "b"))
    assert diverged(found) == [("one" if kind is Judged else None, 1)]
    assert any(warning.startswith(what) and ELSE in warning for warning in result.warnings)


def test_each_later_session_reports_it_too(tmp_path: Path) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_MOST_AT_ONCE", 1)  # a commit for each record
        images = Images(tmp_path, patch)
        first, _ = resumed(path, Fickle("b", "b", "b"))
    last = [one for one in images.paths if kt.SqliteJournal(one).show(RUN).state == "interrupted"][-1]
    result, found = resumed(last, Fickle("b", "b", "b"))
    assert diverged(found) == []
    assert result.warnings == first.warnings


def test_calls_in_doubt_are_named_with_what_they_are_charged(tmp_path: Path) -> None:
    path = cut(tmp_path, Fickle("a", "a", "a"), answered=1, sent=1)
    [doubt] = kt.SqliteJournal(path).in_doubt(RUN)
    result, _ = resumed(path, Fickle("a", "a", "a"))
    [warning] = result.warnings
    assert warning == (
        "1 call was under way when an earlier session of the run ended, and nobody saw the answer: model 'test:m', "
        f"charged {doubt.usage.tokens} tokens"
    )


class Mailing(Members):
    """It also pays for tools, in a team inside the team."""

    def team(self) -> kt.Team:
        inner = super().team()
        return kt.Team("outer", [kt.Member("group", TeamAgent(inner, plan=ONE))])


def test_calls_in_doubt_of_runs_inside_are_named_in_the_result_of_the_whole(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        images = Images(tmp_path, patch)
        anyio.run(partial(play, Mailing(), tmp_path / "runs.db", go_on=False))
    path = next(one for one in images.paths if any(c.what == "tool" for c in kt.SqliteJournal(one).in_doubt(RUN)))
    result, _ = resumed(path, Mailing())
    assert any(warning.endswith("tool 'note', charged 1 tool call") for warning in result.warnings)
