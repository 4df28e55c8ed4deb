"""The comparison of docs/side-by-side.md: its rules are pure functions, and its tables show what is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks.side_by_side import tables
from benchmarks.side_by_side.jobs import CASES, JOBS, READER, SORTER, SPECIALISTS, fault
from benchmarks.side_by_side.libraries import LIBRARIES
from benchmarks.side_by_side.lines import written
from benchmarks.side_by_side.program import Given
from benchmarks.side_by_side.provider import CODE, DOCUMENTS, TALK, Call, Json, Provider, key_of, reply_to, serving
from benchmarks.side_by_side.situations import HELD, REFUSED, Command, Seen, answered, killed, limit_of, seen

HERE = Path(tables.__file__).parent
PLAIN = Seen("Joined: doc-1, doc-2.", worked=True, calls=8, billed=1_349)


def asking(told: str, asked: str = "", **more: Any) -> Json:
    messages = [{"role": "system", "content": told}, {"role": "user", "content": asked}]
    return {"model": "scripted", "messages": messages, **more}


def tool(name: str, **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_a_line_counts_when_it_has_code_that_is_the_users_own() -> None:
    source = '''"""About it."""

from __future__ import annotations

import os

# A comment.
WHERE = (  # a bracket
    "a",
)


def act() -> str:
    """Say it."""
    said = """two
    lines"""
    return said + os.sep


if __name__ == "__main__":
    act()
'''
    assert written(source) == 7  # WHERE has three, `act` has four


def test_a_team_with_a_typed_answer_takes_at_most_16_lines() -> None:
    page = (HERE.parent.parent / "docs" / "side-by-side.md").read_text(encoding="utf-8")
    program = page.partition("<!-- typed team -->\n```python\n")[2].partition("```")[0]
    assert written(program) == 14
    assert "has 14 lines" in page


def test_an_import_over_several_lines_counts_nothing() -> None:
    assert written("from a import (\n    b,\n    c,\n)\n\nb(c)\n") == 1


def test_the_tests_of_the_code_fail_twice_and_then_pass() -> None:
    assert fault(CODE[0]) == "FAILED: slug('Hello World') is 'hello world', not 'hello-world'"
    assert "Tea" in str(fault(CODE[1]))
    assert fault(CODE[2]) is None
    assert len(CASES) == len(CODE) - 1


def test_the_writer_writes_the_next_version_when_it_is_told_what_failed_last() -> None:
    asked = asking("You are the writer.")
    for code in CODE:
        reply = reply_to(asked)["content"]
        assert reply == code
        asked["messages"].append({"role": "user", "content": str(fault(reply))})


def test_a_reader_summarises_the_document_that_it_is_given_and_not_the_last_of_a_list() -> None:
    asked = asking(READER, f"Read doc-4. There are {list(DOCUMENTS)}.")
    assert key_of(asked) == "reader doc-4"
    assert reply_to(asked)["content"].startswith("Summary of doc-4.")


def test_a_text_that_joins_others_is_another_when_others_are_joined() -> None:
    asked = asking("You are the answerer.", "The bug specialist found the cause.")
    assert key_of(asked) == "answerer bug"
    assert reply_to(asked)["content"].startswith("Answered from: bug.")


def test_a_list_is_said_as_text_or_through_the_tool_for_output() -> None:
    assert reply_to(asking(SORTER))["content"] == '["bug", "billing"]'
    offered = asking(SORTER, tools=[tool("final_result", response={"type": "array"})])
    call = reply_to(offered)["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("final_result", {"response": ["bug", "billing"]})


@pytest.mark.parametrize(
    ("offered", "arguments"),
    [
        (tool("transfer_to_billing"), {}),
        (tool("handoff_to_agent", agent_name={}, message={}), {"agent_name": "billing", "message": "ANY"}),
    ],
)
def test_a_desk_hands_over_with_whatever_tool_is_offered(offered: Json, arguments: Mapping[str, str]) -> None:
    call = reply_to(asking("You are the front desk.", tools=[offered]))["tool_calls"][0]["function"]
    assert call["name"] == offered["function"]["name"]
    said = json.loads(call["arguments"])
    assert {name: "ANY" if name == "message" else value for name, value in said.items()} == arguments


def test_a_desk_that_is_asked_again_after_its_hand_over_has_nothing_to_do() -> None:
    asked = asking("You are the front desk.", tools=[tool("transfer_to_billing")])
    asked["messages"] += [reply_to(asked), {"role": "tool", "content": "ok", "tool_call_id": "1"}]
    assert key_of(asked) == "front desk, handed over"
    assert reply_to(asked)["content"] == "I have handed it over."


def test_a_desk_that_sees_how_it_came_to_the_customer_hands_over_all_the_same() -> None:
    front = asking("You are the front desk.", tools=[tool("transfer_to_billing")])
    billing = asking("You are the billing desk.", tools=[tool("transfer_to_refunds")])
    billing["messages"] += [reply_to(front), {"role": "tool", "content": "ok", "tool_call_id": "1"}]
    assert key_of(billing) == "billing desk"
    assert reply_to(billing)["tool_calls"][0]["function"]["name"] == "transfer_to_refunds"


def test_a_desk_that_cannot_hand_over_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="no tool to hand over to billing"):
        reply_to(asking("You are the front desk.", tools=[tool("weather")]))


def test_a_request_of_nobody_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="nobody of the jobs asks this"):
        key_of(asking("You are a poet."))


def test_the_ledger_has_every_call_and_its_tokens() -> None:
    provider = Provider(refuse={"sorter"})
    with serving(provider) as url:
        reply = _post(url, asking(READER, "doc-1"))
        refused = _post(url, asking(SORTER))
        streamed = _post(url, asking(READER, "doc-1", stream=True))
    tokens = json.loads(reply[1])["usage"]["total_tokens"]
    assert [reply[0], refused[0], streamed[0]] == [200, 400, 200]
    assert json.loads(refused[1])["error"]["code"] == "content_filter"
    *chunks, end = [line.removeprefix("data: ") for line in streamed[1].split("\n\n") if line]
    assert end == "[DONE]"
    assert json.loads(chunks[0])["choices"][0]["delta"]["content"].startswith("Summary of doc-1.")
    assert json.loads(chunks[-1])["usage"]["total_tokens"] == tokens
    assert provider.ledger == [
        Call("reader doc-1", tokens, answered=True),
        Call("sorter", 0, refused=True),
        Call("reader doc-1", tokens, answered=True),
    ]
    assert answered(provider.ledger) == {"reader doc-1"}


def _post(url: str, request: Json) -> tuple[int, str]:
    address = urlsplit(url)
    connection = HTTPConnection(address.netloc, timeout=60)
    connection.request("POST", f"{address.path}/chat/completions", json.dumps(request))
    reply = connection.getresponse()
    said = reply.status, reply.read().decode()
    connection.close()
    return said


# ------------------------------------------------------------------ our own programs

DONE = {
    "map_reduce": "Joined: doc-1, doc-2, doc-3, doc-4, doc-5, doc-6.",
    "triage": "Answered from: billing, bug.",
    "write_test_fix": "Documented version 3.",
    "support_desk": "Paid back.",
}


async def run_ours(job: str, provider: Provider, folder: Path, tokens: int | None = None, again: bool = False) -> str:
    program = import_module(f"benchmarks.side_by_side.kairo_team_{job}")
    with serving(provider) as url:
        said: str = await program.run(Given(url, folder, tokens, None, again))
    return said


@pytest.mark.real_time
@pytest.mark.parametrize("job", JOBS)
async def test_our_program_does_its_job(job: str, tmp_path: Path) -> None:
    provider = Provider()
    said = await run_ours(job, provider, tmp_path)
    assert said.startswith(f"completed: {DONE[job]}")
    assert len(provider.ledger) == {"map_reduce": 8, "support_desk": 3}.get(job, 4)


@pytest.mark.exhaustive
@pytest.mark.real_time
@pytest.mark.parametrize("job", JOBS)
async def test_our_program_never_bills_more_than_its_limit(job: str, tmp_path: Path) -> None:
    provider = Provider()
    await run_ours(job, provider, tmp_path, tokens=600)
    assert sum(call.tokens for call in provider.ledger) <= 600


@pytest.mark.exhaustive
@pytest.mark.real_time
@pytest.mark.parametrize("job", JOBS)
async def test_our_program_goes_on_from_the_branch_that_failed_and_pays_nothing_again(job: str, tmp_path: Path) -> None:
    failed, well = Provider(refuse=REFUSED[job]), Provider()
    assert not (await run_ours(job, failed, tmp_path)).startswith("completed")
    said = await run_ours(job, well, tmp_path, again=True)
    assert said.startswith("completed: ")
    assert not answered(failed.ledger) & answered(well.ledger)


@pytest.mark.exhaustive
@pytest.mark.parametrize("job", JOBS)
def test_our_program_is_killed_and_started_again_and_pays_nothing_again(job: str, tmp_path: Path) -> None:
    found = killed(Command(sys.executable, f"benchmarks.side_by_side.kairo_team_{job}"), job, tmp_path)
    assert found.came.startswith(f"completed: {DONE[job]}")
    assert found.again == 0
    assert found.cut


# ------------------------------------------------------------------ the page


def test_every_job_has_a_branch_that_fails_and_calls_that_are_under_way_at_the_kill() -> None:
    assert set(REFUSED) == set(HELD) == set(JOBS)


def test_the_limit_is_a_share_of_what_the_program_was_billed_without_one() -> None:
    assert limit_of(PLAIN) == (809, 4)


def test_what_was_answered_in_an_earlier_process_is_paid_again_when_it_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(
        "import json, sys, urllib.request\n"
        f"for name in ('doc-1', 'doc-2'):\n"
        f"    messages = [{{'role': 'user', 'content': {READER!r} + name}}]\n"
        "    body = json.dumps({'messages': messages}).encode()\n"
        "    urllib.request.urlopen(sys.argv[sys.argv.index('--url') + 1] + '/chat/completions', body).read()\n"
        "print(json.dumps({'result': 'done'}))\n",
        encoding="utf-8",
    )
    provider = Provider()
    found = seen(Asking(tmp_path), tmp_path, provider, again={"reader doc-2", "reader doc-3"}, cut=1)
    paid = [call.tokens for call in provider.ledger]
    assert found == Seen("done", worked=True, calls=2, billed=sum(paid), again=paid[1], cut=1)


class Asking(Command):
    def __init__(self, folder: Path) -> None:
        super().__init__(sys.executable, str(folder / "asks.py"))

    def line(self, url: str, folder: Path, tokens: int | None, calls: int | None, again: bool) -> list[str]:
        return [self.python, self.module, "--url", url]


def test_a_library_has_a_program_for_every_job() -> None:
    there = {path.stem for path in HERE.glob("*_*.py")} - {"__init__", "__main__"}
    assert there == {f"{library}_{job}" for library in LIBRARIES for job in JOBS}


def test_a_program_asks_what_the_others_ask() -> None:
    for path in HERE.glob("*_*.py"):
        if not path.stem.startswith("__"):
            assert "You are the" not in path.read_text(encoding="utf-8"), f"{path.name}: its texts stand in jobs.py"
    assert set(SPECIALISTS) == {"bug", "billing", "sales"}


def test_a_cell_has_what_came_back_and_what_was_billed() -> None:
    failed = Seen("OpenAIError: refused", worked=False, calls=7, billed=778)
    drawn = tables.draw("map_reduce", _results(failed=failed, well=replace(PLAIN, again=778)))
    row = drawn.splitlines()[2]
    joined = "joined: 2 of 6 documents"
    assert row == (
        f"| LangGraph | 28 | 8, 1,349 | `OpenAIError`; 778 billed | {joined}; 1,349 billed, **778** of it again "
        f"| **1,349 of 809**; {joined} | {joined}; 1,349 billed, 0 of it again |"
    )


def _results(**other: Seen) -> tables.Results:
    over = Seen(PLAIN.came, worked=True, calls=8, billed=1_349, limit=809)
    found = {"plain": PLAIN, "failed": PLAIN, "well": PLAIN, "limited": over, "killed": PLAIN, **other}
    job = {"lines": 28, "seen": {name: asdict(each) for name, each in found.items()}}
    return {"langgraph": {"versions": {"langgraph": "1.2.22"}, "jobs": {"map_reduce": job}}}


def test_what_is_recorded_is_short_and_replaces_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    long = Seen(f"Paid back.{TALK}\n", worked=True, calls=3, billed=413)
    wrong = Seen("OddError: see https://example.com/x\nmore", worked=False, calls=3, billed=413)
    for billed in (1, 2):
        tables.record("adk", {"google-adk": str(billed)}, "support_desk", billed, {"plain": long, "failed": wrong})
    tables.record("langgraph", {}, "triage", 3, {})
    results = tables.load()
    assert list(results) == ["langgraph", "adk"]
    assert results["adk"]["versions"] == {"google-adk": "2"}
    assert results["adk"]["jobs"]["support_desk"]["lines"] == 2
    came = {name: each["came"] for name, each in results["adk"]["jobs"]["support_desk"]["seen"].items()}
    assert came == {"plain": "Paid back", "failed": "OddError: see ... more"}


def test_the_page_has_the_tables_of_what_is_recorded() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.redraw(page, tables.load()) == page, "python -m benchmarks.side_by_side --tables"
    for part in ("libraries", *JOBS):
        assert f"<!-- side by side: {part} -->" in page


def test_the_recorded_lines_are_those_of_the_programs_that_are_here() -> None:
    for library, entry in tables.load().items():
        for job, found in entry["jobs"].items():
            source = (HERE / f"{library}_{job}.py").read_text(encoding="utf-8")
            assert found["lines"] == written(source), f"{library}_{job}.py has changed: measure it again"


def test_the_tables_are_drawn_without_measuring() -> None:
    page = tables.PAGE.read_bytes()
    drawn = subprocess.run(
        [sys.executable, "-m", "benchmarks.side_by_side", "--tables"],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert tables.draw("triage", tables.load()) in drawn.stdout
    assert tables.PAGE.read_bytes() == page


@pytest.mark.parametrize(
    ("came", "cell"),
    [
        ("degraded: Joined: doc-1, doc-2", "degraded: joined: 2 of 6 documents; 9 billed"),
        (
            "failed: read.0001: Summary of doc-1. read.0002: Summary of doc-2",
            "failed: summaries: 2 of 6 documents; 9 billed",
        ),
        ("failed: None", "failed: nothing; 9 billed"),
        ("Answered from: bug", "answered from: bug; 9 billed"),
    ],
)
def test_what_came_back_is_said_in_a_few_words(came: str, cell: str) -> None:
    row = tables.draw("map_reduce", _results(failed=Seen(came, worked=True, calls=1, billed=9))).splitlines()[2]
    assert cell in row.split(" | ")
