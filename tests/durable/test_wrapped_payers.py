"""The same for agents of other libraries, and for tools of MCP servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `pydantic-ai` is not installed")
pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import kairo_team as kt
from kairo_team import events
from kairo_team.gates import CallbackGate
from kairo_team.testing import EventRecorder
from tests.durable import wrapped_payers
from tests.durable.cuts import SAMPLE, check_cuts, of_models, play
from tests.durable.desk import Images
from tests.durable.payers import RUN, Payer

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

PAYERS: list[type[Payer]] = [
    wrapped_payers.PydanticAI,
    wrapped_payers.Graph,
    wrapped_payers.OpenAI,
    wrapped_payers.Mcp,
]
MAIL = "it was called before the run was interrupted, and it is unknown whether it was done"


@pytest.mark.parametrize("kind", PAYERS)
def test_an_agent_of_another_library_goes_on_to_the_same_end(kind: type[Payer], tmp_path: Path) -> None:
    check_cuts(kind, "asyncio", tmp_path, most=SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", PAYERS)
def test_an_agent_of_another_library_goes_on_from_each_cut(kind: type[Payer], tmp_path: Path) -> None:
    check_cuts(kind, "asyncio", tmp_path, most=None)


def images_of(first: Payer, folder: Path) -> tuple[kt.TeamResult, Images]:
    """Run a payer to its end, and return the images of its journal."""
    with pytest.MonkeyPatch.context() as patch:
        images = Images(folder, patch, lambda: (tuple(first.account), tuple(first.used)))
        return anyio.run(partial(play, first, folder / "runs.db", go_on=False)), images


def test_a_graph_that_is_only_followed_asks_again_in_a_cut_attempt_and_says_so(tmp_path: Path) -> None:
    first = wrapped_payers.Followed()
    whole, images = images_of(first, tmp_path)
    for path, seen in zip(images.paths, images.counts, strict=True):
        journal = kt.SqliteJournal(path)
        if journal.show(RUN).state != "interrupted":
            continue
        again, recorder = wrapped_payers.Followed(*seen), EventRecorder()
        result = anyio.run(partial(play, again, path, go_on=True, subscribers=[recorder]))
        assert (result.status, result.output is None) == (whole.status, whole.output is None)
        doubt, after = of_models(journal.in_doubt(RUN)), of_models(journal.calls(RUN))
        assert 0 <= after - len(again.account) <= doubt, path
        assert len(again.used) - len(first.used) <= len(journal.in_doubt(RUN)) - doubt, (path, "a tool ran again")
        repeated = len(again.account) - len(first.account) - doubt
        told = sum(one.calls for one in recorder.of(events.CallsDiverged))
        assert told >= repeated, path
        assert (told > 0) == any("made other calls" in one for one in result.warnings), path


def test_a_tool_of_an_mcp_server_in_doubt_is_not_called_again_without_a_person(tmp_path: Path) -> None:
    class Writing(wrapped_payers.Mcp):
        """Its tool may change something."""

        side_effect = "write"

    _, images = images_of(Writing(), tmp_path)
    path, seen = next(
        (path, seen)
        for path, seen in zip(images.paths, images.counts, strict=True)
        if any(one.what == "tool" for one in kt.SqliteJournal(path).in_doubt(RUN))
    )
    asked: list[str] = []

    def approve(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question.text)
        return kt.HumanDecision.approve()

    other = tmp_path / "other.db"
    other.write_bytes(path.read_bytes())
    alone, allowed = Writing(*seen), Writing(*seen)
    anyio.run(partial(play, alone, path, go_on=True))
    anyio.run(partial(play, allowed, other, go_on=True, gate=CallbackGate(approve)))
    assert any(MAIL in one for one in alone.account)
    assert [MAIL in one for one in asked] == [True]
    assert len(allowed.used) == len(alone.used) + 1
