"""`MiniAgent` makes its conversation shorter before it is longer than the model's window, and goes on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.mini_compaction import cut_results
from kairo_team.errors import ModelCallError
from kairo_team.messages import Billing
from kairo_team.models.prompt_bounds import prompt_bound
from kairo_team.testing import EventRecorder, FunctionModel
from kairo_team.tools import ToolResult
from tests.durable.desk import Images
from tests.models.test_files import png

pytestmark = pytest.mark.anyio

WINDOW = 8_000
TURNS = 200
FILLER = "the tide table says nothing more about it. " * 50
CODE = re.compile(r"code-\d+=\d+")


@kt.tool(side_effect="read")
async def look(page: int) -> str:
    """Look at a page; every twentieth has a code."""
    code = f"code-{page}={page * 7} " if page % 20 == 0 else ""
    return f"page {page}: {code}{FILLER}"


def tokens_of(request: kt.ModelRequest) -> int:
    return prompt_bound(request) // 4


class Clerk(FunctionModel):
    """Reads page after page and adds up the codes; remembers nothing but what the prompt says."""

    def __init__(self, *, window: int | None = WINDOW, turns: int = TURNS, limit: int = WINDOW) -> None:
        super().__init__(self._reply, name="test:clerk")
        self.context_window = window
        self.refused: list[kt.ModelRequest] = []
        self.summaries = 0
        self._turns = turns
        self._limit = limit

    async def count_tokens(self, request: kt.ModelRequest) -> int:
        return tokens_of(request)

    def _reply(self, request: kt.ModelRequest) -> kt.ModelResponse:
        used = tokens_of(request)
        if used > self._limit:
            self.refused.append(request)
            raise ModelCallError("context_length", self.name, "the prompt is too long", unspent=True)
        text = "\n".join(message.text for message in request.messages)
        codes = sorted(set(CODE.findall(text)))
        if "Write a summary of the work so far" in text:
            self.summaries += 1
            pages = [int(found) for found in re.findall(r"page (\d+)", text)]
            return kt.ModelResponse(f"{' '.join(codes)}; read until page {max(pages)}", usage=kt.Usage(used, 40))
        pages = [int(found) for found in re.findall(r"page (\d+)", text)]
        page = max(pages, default=0) + 1
        if page > self._turns:
            total = sum(int(code.partition("=")[2]) for code in codes)
            return kt.ModelResponse(f"total {total}", usage=kt.Usage(used, 10))
        call = kt.ToolCall(f"c{page}", "look", {"page": page})
        return kt.ModelResponse("", [call], kt.Usage(used, 10))


RIGHT = f"total {sum(page * 7 for page in range(1, TURNS + 1) if page % 20 == 0)}"


def agent(model: Any, **given: Any) -> kt.MiniAgent:
    return kt.MiniAgent(model, tools=[look], max_turns=TURNS + 5, settings={"max_tokens": 400}, **given)


@pytest.mark.sampled("anyio_backend")
async def test_a_session_of_200_turns_in_a_window_of_8000_tokens_ends_with_the_right_answer() -> None:
    clerk, recorder = Clerk(), EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    team = kt.Team("archive", [kt.Member("clerk", agent(clerk))], runtime=runtime)
    result = await kt.run(team, "Add up the codes of 200 pages.", config=kt.TeamConfig(task_timeout=None))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, RIGHT)
    assert clerk.refused == []
    assert max(map(tokens_of, clerk.calls)) <= WINDOW - 400
    made_shorter = [event.data for event in recorder.of(events.AttemptProgress) if "made shorter" in event.text]
    assert made_shorter
    assert all(data["tokens_after"] < data["tokens_before"] for data in made_shorter)
    assert clerk.summaries == sum(data["messages_summed_up"] > 0 for data in made_shorter) > 0
    assert len(clerk.calls) == TURNS + 1 + clerk.summaries
    assert result.usage.tokens == sum(tokens_of(call) for call in clerk.calls) + 10 * (TURNS + 1) + 40 * clerk.summaries


async def test_the_oldest_results_are_cut_first_and_before_any_summary() -> None:
    clerk = Clerk(turns=20)
    output = await agent(clerk).run("Add up the codes.")
    assert output.text == "total 140"
    first = next(call for call in clerk.calls if any("[cut: " in message.text for message in call.messages))
    results = [message.text for message in first.messages if message.role == "tool"]
    cut = ["[cut: " in text for text in results]
    assert cut == sorted(cut, reverse=True)
    assert not cut[-1]
    assert clerk.summaries == 0 or clerk.calls.index(first) < TURNS


async def test_the_transcript_keeps_what_was_cut() -> None:
    output = await agent(Clerk(turns=40)).run("Add up the codes.")
    results = [message.text for message in output.transcript if message.role == "tool"]
    assert len(results) == 40
    assert all(FILLER in text for text in results)


async def test_a_model_of_unknown_window_is_asked_again_with_less_where_it_refuses_the_length() -> None:
    clerk = Clerk(window=None, turns=60)
    output = await agent(clerk).run("Add up the codes.")
    assert output.text == f"total {sum(7 * page for page in (20, 40, 60))}"
    assert len(clerk.refused) == 1, "it learns how long a prompt may be"


async def test_it_can_be_off() -> None:
    clerk = Clerk(turns=60)
    with pytest.raises(ModelCallError, match="too long"):
        await agent(clerk, compact=False).run("Add up the codes.")
    assert clerk.summaries == 0


async def test_a_task_that_is_too_long_by_itself_is_refused_as_before() -> None:
    clerk = Clerk(window=None)
    with pytest.raises(ModelCallError, match="too long"):
        await agent(clerk).run("Read this. " + "word " * 10_000)
    assert len(clerk.refused) == 1


async def test_a_newest_result_that_is_too_long_is_cut_at_last() -> None:
    @kt.tool(side_effect="read")
    async def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}: " + "x " * 40_000

    clerk = Clerk(turns=1)
    output = await kt.MiniAgent(clerk, tools=[look], settings={"max_tokens": 400}).run("Look.")
    assert (output.text, clerk.refused) == ("total 0", [])


@pytest.mark.sampled("anyio_backend")
async def test_its_words_are_a_template_of_their_own() -> None:
    words = {
        "compact": "{% if summary is none %}Write a summary of the work so far. {{ conversation }}"
        "{% else %}SO FAR: {{ summary }}{% endif %}"
    }
    clerk = Clerk()
    await agent(clerk, templates=words).run("Add up the codes.")
    assert any("SO FAR: " in message.text for message in clerk.calls[-1].messages)


async def test_a_summary_that_is_blank_replaces_nothing() -> None:
    class Silent(Clerk):
        def _reply(self, request: kt.ModelRequest) -> kt.ModelResponse:
            asked = super()._reply(request)
            return kt.ModelResponse(" ", usage=kt.Usage(10, 1)) if asked.text.startswith("code") else asked

    clerk = Silent(turns=40)
    output = await agent(clerk).run("Add up the codes.")
    assert output.text.startswith("total")


@pytest.mark.real_time
@pytest.mark.sampled("anyio_backend")
@pytest.mark.parametrize(
    "window",
    [pytest.param(3_000, id="known"), pytest.param(None, id="learned", marks=pytest.mark.exhaustive)],
)
async def test_a_session_that_is_cut_anywhere_goes_on_with_the_same_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    async def run(clerk: Clerk, path: Path) -> kt.AgentOutput:
        journal = kt.SqliteJournal(path, sync="normal")
        try:
            return await agent(clerk).run("Add up the codes.", journal=journal, run_id="codes-1")
        finally:
            journal.close()

    def prompts(clerk: Clerk) -> list[Any]:
        return [call.without_asides.messages for call in clerk.calls]

    def clerk() -> Clerk:
        return Clerk(window=window, turns=60, limit=3_000)

    first, images = clerk(), Images(tmp_path, monkeypatch)
    whole = await run(first, tmp_path / "runs.db")
    monkeypatch.undo()
    assert (whole.text, first.summaries > 0) == ("total 840", True)
    for image in images.paths[:: len(images.paths) // 8]:
        again = clerk()
        output = await run(again, image)
        assert (output.text, output.status) == (whole.text, kt.AgentStatus.COMPLETED)
        if window is not None:
            assert prompts(again) == prompts(first)[len(first.calls) - len(again.calls) :]


async def test_files_of_old_results_are_cut_and_named_and_the_files_of_the_task_stay() -> None:
    photo, page = kt.File(data=png(), name="photo.png"), kt.File(data=png(), name="page.png")

    @kt.tool(side_effect="read")
    async def look(page_number: int) -> ToolResult:
        """Look at a page."""
        return ToolResult(f"page {page_number}", files=[page])

    def used_by(request: kt.ModelRequest) -> int:
        return 200 + 900 * len(request.files)

    def reply(request: kt.ModelRequest) -> kt.ModelResponse:
        used = used_by(request)
        if "Write a summary" in request.messages[-1].text:
            assert "[left out: page.png" in request.messages[-1].text
            return kt.ModelResponse("pages were read", usage=kt.Usage(used, 10))
        if len(model.calls) >= 20:
            return kt.ModelResponse("done", usage=kt.Usage(used, 10))
        call = kt.ToolCall(f"c{len(model.calls)}", "look", {"page_number": len(model.calls)})
        return kt.ModelResponse("", [call], kt.Usage(used, 10))

    class Seeing(FunctionModel):
        context_window = WINDOW

        async def count_tokens(self, request: kt.ModelRequest) -> int:
            return used_by(request)

    model = Seeing(reply, name="test:seeing")
    reader = kt.MiniAgent(model, tools=[look], max_turns=40, settings={"max_tokens": 400})
    output = await reader.run("Read the pages of this book.", files=[photo])
    assert output.text == "done"
    assert max(map(used_by, model.calls)) <= WINDOW - 400
    last = model.calls[-1]
    assert last.files[0] == photo
    assert last.messages[-2].files == (page,) or last.messages[-3].files == (page,)
    kept = [message.files for message in output.transcript if message.role == "tool"]
    assert all(files == (page,) for files in kept), "the transcript keeps them"


def test_a_result_that_is_cut_names_its_files() -> None:
    page = kt.File(data=png(), name="page.png")
    results = [kt.Message.tool(str(number), "page", [page]) for number in range(3)]
    left, cut = cut_results(results, 10_000, 3)
    assert cut == 2
    assert [message.files for message in left] == [(), (), (page,)]
    assert left[0].text == "page\n[left out: page.png, image/png, 71 bytes]"


async def test_an_agent_that_thinks_writes_its_summary_without_thinking_and_with_room_for_it() -> None:
    class Thinking(Clerk):
        def _reply(self, request: kt.ModelRequest) -> kt.ModelResponse:
            thoughts = 0 if request.settings.get("thinking") is False else 300
            made = super()._reply(request)
            return replace(made, billing=Billing(reasoning_tokens=thoughts))

    clerk = Thinking(window=3_000, turns=60, limit=3_000)
    output = await agent(clerk, thinking="low").run("Add up the codes.")
    assert output.text == "total 840"
    summaries = [call for call in clerk.calls if "Write a summary" in call.messages[-1].text]
    assert summaries
    assert all(call.settings["thinking"] is False and (call.max_tokens or 0) > 300 for call in summaries)
    assert all(call.settings["thinking"] == "low" for call in clerk.calls if call not in summaries)
