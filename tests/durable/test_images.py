"""A run that is cut at any commit of its journal goes on to the same end, and pays nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

import kairo_team as kt
from tests.durable.desk import RUN, Images, Provider, begin, go_on

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


def texts(result: kt.TeamResult) -> dict[str, str | None]:
    return {one.task_id: one.artifact.text if one.artifact else None for one in result.outcomes}


async def test_kf_b14_g15_a_run_cut_at_any_commit_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Provider()
    images = Images(tmp_path, monkeypatch, lambda: sum(first.asked.values()))
    whole = await begin(tmp_path / "runs.db", first)
    assert whole.status == "completed", whole
    monkeypatch.undo()
    for path, known in zip(images.paths, images.counts, strict=True):
        journal = kt.SqliteJournal(path)
        state = journal.show(RUN).state
        if state == "completed":
            continue
        assert state == "interrupted"
        done = [call for call in journal.calls(RUN) if call.state == "answered"]
        doubt = journal.in_doubt(RUN)
        models_done = sum(call.what == "model" for call in done)
        assert models_done <= known <= models_done + sum(call.what == "model" for call in doubt), path
        before = journal.show(RUN).usage
        again = Provider()
        result = await go_on(path, again)
        assert result.status == "completed", (path, result.error, result)
        assert sum(again.asked.values()) == sum(first.asked.values()) - models_done, path
        held = sum((call.usage for call in doubt), kt.Usage())
        assert result.usage.tokens == whole.usage.tokens + held.tokens, (path, result.usage, whole.usage, held)
        assert result.usage.loops == whole.usage.loops, (path, before, result.usage, whole.usage)
        assert set(texts(result)) == set(texts(whole))
        assert journal.result(RUN) is not None
