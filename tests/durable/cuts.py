"""Runs of payers that are cut at commits of their journal, and what must hold when they go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.models.retries import ModelRetry
from kairo_team.recorded import RecordedCall
from tests.durable.desk import Images
from tests.durable.payers import RUN, Payer

SAMPLE = 12
"""Cuts of each run in `make test`."""


async def play(payer: Payer, path: Path, *, go_on: bool, **options: Any) -> kt.TeamResult:
    """Run a payer's team, or go on with its run; `options` are the runtime's."""
    team, coordinator = payer.team(), payer.coordinator()
    request = kt.TeamExecutionRequest("Do it.", plan=payer.plan, config=payer.config, run_id=RUN)
    journal = kt.SqliteJournal(path, sync="normal")
    retry = ModelRetry(retries=payer.retries, backoff=0.0)
    try:
        async with kt.Runtime(models=payer.models(), journal=journal, model_retry=retry, **options) as runtime:
            with anyio.fail_after(60):
                if go_on:
                    return await runtime.resume(RUN, team, coordinator=coordinator)
                return await kt.run(team, request, runtime=runtime, coordinator=coordinator)
    finally:
        journal.close()


def outcomes(result: kt.TeamResult) -> list[Any]:
    return [
        (one.task_id, one.status, one.attempts, one.member, one.artifact and one.artifact.text, one.error)
        for one in result.outcomes
    ]


def of_models(calls: Iterable[RecordedCall]) -> int:
    return sum(one.what == "model" and one.state != "unsent" for one in calls)


def failed_last(calls: Sequence[RecordedCall]) -> int:
    """Count the tries that failed since the last answer: their call is still to be answered."""
    return len(list(takewhile(lambda one: one.state != "answered", reversed(calls))))


def check_cut(kind: type[Payer], backend: str, path: Path, seen: Any, first: Payer, whole: kt.TeamResult) -> None:
    """Go on from the image of a journal, and compare the end with that of the run that was never cut."""
    journal = kt.SqliteJournal(path)
    if journal.show(RUN).state != "interrupted":
        return
    before, doubt = journal.calls(RUN), journal.in_doubt(RUN)
    ended = ("answered",) if kind.asks_failed_again else ("answered", "failed")
    again = kind(*seen)
    result = anyio.run(partial(play, again, path, go_on=True), backend=backend)
    if kind.tells_what_is_left and doubt:
        assert result.status is whole.status, (path, result.error)
        return
    after = journal.calls(RUN)
    assert (result.status, result.output) == (whole.status, whole.output), (path, result.error)
    assert outcomes(result) == outcomes(whole), path
    finished = of_models([one for one in before if one.state in ended])
    assert len(again.account) - len(seen[0]) <= len(first.account) - finished, (path, "a call made again")
    assert set(again.account) <= set(first.account), (path, "a call that the whole run did not make")
    most = of_models(doubt) + (failed_last(before) if kind.asks_failed_again else 0)
    assert len(again.account) - len(first.account) <= most, (path, "more calls than those in doubt")
    assert len(again.used) - len(first.used) <= len(doubt) - of_models(doubt), (path, "more tools than in doubt")
    unseen = of_models(after) - len(again.account)
    assert 0 <= unseen <= of_models(doubt), (path, "calls that the journal does not know, or that were never made")
    assert any("was under way" in one or "were under way" in one for one in result.warnings) == bool(doubt), path
    assert not any("something else" in one for one in result.warnings), (path, "a false alarm")
    charged = sum((one.usage for one in doubt), kt.Usage())
    assert result.usage.tokens == whole.usage.tokens + charged.tokens, (path, result.usage, whole.usage, charged)
    assert (result.usage.loops, result.usage.dollars) == (whole.usage.loops, whole.usage.dollars), path
    assert journal.show(RUN).usage.tokens == result.usage.tokens, path
    journal.close()


def check_cuts(kind: type[Payer], backend: str, folder: Path, *, most: int | None) -> None:
    """Cut a run at commits of its journal, evenly spread, and go on from each."""
    first = kind()
    with pytest.MonkeyPatch.context() as patch:
        images = Images(folder, patch, lambda: (tuple(first.account), tuple(first.used)))
        whole = anyio.run(partial(play, first, folder / "runs.db", go_on=False), backend=backend)
    count = len(images.paths)
    assert count > 2, whole
    chosen = range(count) if most is None else sorted({number * count // most for number in range(most)})
    for number in chosen:
        check_cut(kind, backend, images.paths[number], images.counts[number], first, whole)
