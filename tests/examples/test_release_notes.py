"""The demo's team, on a scripted model and on the real one."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.examples import release_notes
from kairo_team.examples.release_notes import build
from kairo_team.examples.release_notes_history import curated, past, read, understand
from kairo_team.examples.release_notes_prompt import ASK, INSTRUCTIONS, PAIRS, REVISIONS
from kairo_team.examples.release_notes_rubric import problems
from kairo_team.testing import FunctionModel

pytestmark = pytest.mark.real_time  # the editor is a plain function and works in a thread


def right(request: kt.ModelRequest) -> str:
    subject = request.messages[-1].text.partition(ASK)[2]
    verb, _, rest = subject.partition(" ")
    return json.dumps({"sentence": f"{past(verb.lower()).capitalize()} {rest}."})


wrong_sentence = json.dumps({"sentence": "Added something that is not there."})


def wrong(request: kt.ModelRequest) -> str:
    return wrong_sentence


async def run(
    answer: Callable[[kt.ModelRequest], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[kt.TeamResult, list[kt.ModelRequest]]:
    """Run the demo on the shipped history with a model that answers so."""
    monkeypatch.chdir(tmp_path)
    asked: list[kt.ModelRequest] = []

    def listen(request: kt.ModelRequest) -> str:
        asked.append(request)
        return answer(request)

    team, request, coordinator, _ = build()
    runtime = kt.Runtime(models={"local:smollm2": FunctionModel(listen)})
    return await kt.run(team, request, coordinator=coordinator, runtime=runtime), asked


async def test_every_sentence_stands_under_its_kind_with_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, asked = await run(right, monkeypatch, tmp_path)
    assert result.status is kt.TeamStatus.COMPLETED
    assert len(asked) == 6
    assert result.output == (
        "## Added\n"
        "- Added the words of a human criterion to the question that a person is asked. (e282b15)\n"
        "- Added 280 mutants of contracts, and the table of known failures with what stands against each. (0dce23c)\n"
        "- Added three packages written against the contracts alone: LangGraph, the rubric library, a debate. (83913a3)"
        "\n\n## Changed\n"
        "- Required anyio 4.16: older ones swallow a native cancel that meets ours. (a3a7816)\n"
        "- Showed planning's, evaluation's and the reserve's share in kt.check. (158b46c)\n\n"
        "## Fixed\n"
        "- Fixed certificates that outlived a changed question, and a walk that was quadratic in confidences. (039e475)"
    )


async def test_what_the_writer_cannot_mend_its_senior_writes_by_rule(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, asked = await run(wrong, monkeypatch, tmp_path)
    assert result.status is kt.TeamStatus.COMPLETED
    assert "- Required anyio 4.16: older ones swallow a native cancel that meets ours. (a3a7816)" in str(result.output)
    assert "something that is not there" not in str(result.output)
    first = result["write-1"]
    assert (first.member, first.attempts) == ("senior", 4), "the same found wanting three times is enough"
    assert len(asked) == 6 * 3


def test_what_the_senior_writes_passes_the_rubric_for_every_commit() -> None:
    subjects = (Path(__file__).parent.parent / "data/commit_subjects.txt").read_text("utf-8").splitlines()
    picked = [commit.subject for commit in (understand("abc", subject) for subject in subjects) if commit]
    assert picked
    for subject in picked:
        task, inputs = kt.Task("write-1", subject), {"subject": subject}
        text = release_notes.plain(kt.Assignment(task, "Write.", inputs, {}, {}))
        assert not problems(release_notes.Sentence.model_validate_json(text).sentence, subject)


async def test_a_sentence_that_is_missing_is_replaced_by_the_commits_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mostly_right(request: kt.ModelRequest) -> str:
        return wrong(request) if "Require anyio" in request.messages[-1].text else right(request)

    monkeypatch.setattr(release_notes, "plain", lambda assignment: wrong_sentence)
    result, _ = await run(mostly_right, monkeypatch, tmp_path)
    assert result.status is kt.TeamStatus.DEGRADED
    missing = (
        "- Require anyio 4.16: older ones swallow a native cancel that meets ours [the commit's own words] (a3a7816)"
    )
    assert missing in str(result.output)
    assert "something that is not there" not in str(result.output)
    assert result["write-1"].status is kt.TaskStatus.FAILED


async def test_notes_need_half_of_the_sentences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release_notes, "plain", lambda assignment: wrong_sentence)
    result, _ = await run(wrong, monkeypatch, tmp_path)
    assert result.status is kt.TeamStatus.FAILED
    assert result["notes"].status is kt.TaskStatus.SKIPPED


async def test_a_revision_carries_the_findings_and_a_higher_temperature(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def about_anyio(request: kt.ModelRequest) -> bool:
        return "anyio 4.16" in request.messages[-1].text

    drafts = iter(["", "Required anyio: older ones swallow a cancel.", "Required 4.16 at last.", "Added anyio 4.16."])

    def answer(request: kt.ModelRequest) -> str:
        if not about_anyio(request):
            return right(request)
        draft = next(drafts)
        return f'{{"sentence": "{draft}"}}' if draft else wrong(request)

    _, asked = await run(answer, monkeypatch, tmp_path)
    mine = [request for request in asked if about_anyio(request)]
    asked_for = ASK + "Require anyio 4.16: older ones swallow a native cancel that meets ours"
    assert mine[0].messages[-1].text == asked_for
    assert mine[1].messages[-1].text.startswith('Begin with "Required". Keep "4.16". Keep "anyio", "older",')
    assert mine[1].messages[-1].text.endswith("\n" + asked_for)
    assert [request.settings["temperature"] for request in mine] == [0, 0.4, 0.7, 0.7]
    assert {request.max_tokens for request in mine} == {64}
    assert mine[0].messages[0].text == INSTRUCTIONS


def test_the_examples_the_model_learns_from_pass_the_rubric() -> None:
    pairs = [*PAIRS.items(), *((subject, sentence) for _, subject, sentence in REVISIONS)]
    assert [sentence for subject, sentence in pairs if problems(sentence, subject)] == []
    assert all(understand("abc", subject) for subject, _ in pairs if len(subject.split()) > 3)


def test_the_plan_goes_through_json_and_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pydantic import TypeAdapter

    monkeypatch.chdir(tmp_path)
    plan = build()[1].plan
    assert plan is not None
    graphs: TypeAdapter[kt.TaskGraph] = TypeAdapter(kt.TaskGraph)
    assert graphs.validate_json(graphs.dump_json(plan)) == plan
    assert plan["notes"].needed == 3


def test_the_note_says_which_history_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert build()[3] == "6 commits from the history of kairo-team, shipped as data"


def test_outside_a_repository_the_curated_history_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert read().source.startswith("the history of kairo-team, shipped as data (")
    assert read().commits == curated().commits


def test_the_file_serves_kairo_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(str(release_notes.__file__)).resolve()
    spec = importlib.util.spec_from_file_location("release_notes_by_path", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert isinstance(module.team, kt.Team)
    assert isinstance(module.request, kt.TeamExecutionRequest)
    assert not hasattr(module, "plan")


@pytest.mark.exhaustive
@pytest.mark.local_model
@pytest.mark.parametrize("anyio_backend", [("asyncio", {}), ("trio", {})])
async def test_on_the_real_model_nothing_untrue_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    team, request, coordinator, _ = build()
    result = await kt.run(team, request, coordinator=coordinator)
    assert result.status in {kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED}
    for outcome in result.outcomes[:-1]:
        if outcome.status is kt.TaskStatus.COMPLETED:
            assert outcome.artifact is not None
            sentence = outcome.artifact.data_as(release_notes.Sentence).sentence
            assert sentence in str(result.output)
            assert not problems(sentence, request.plan[outcome.task_id].inputs["subject"] if request.plan else "")
        else:
            assert "[the commit's own words]" in str(result.output)
