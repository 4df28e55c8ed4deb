"""A run that is killed and goes on: the account it prints, and that the page shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.examples import survives
from tests.examples.running import ROOT, start

COMMAND = ("-m", "kairo_team.examples.survives")

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not (ROOT / "examples/survives.py").exists(), reason="runs in the repository only"),
]


def test_a_run_on_a_script_is_killed_and_pays_each_finished_call_once() -> None:
    done = start(*COMMAND, "--model", "script", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "9 finished calls were paid once each; calls in doubt, charged in full: 1."
    page = (ROOT / "docs/survives.md").read_text(encoding="utf-8")
    assert f"```text\n{done.stdout}```\n" in page, "the page shows what it prints"


@pytest.mark.exhaustive
def test_it_starts_as_a_file_too() -> None:
    done = start("examples/survives.py", "--model", "script", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_that_cannot_be_used_is_one_sentence() -> None:
    done = start(*COMMAND, "--model", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "error: model 'nonsense' cannot be used: a model is named 'provider:name', such as 'local:smollm2', "
        "or is in Runtime(models={name: model}); Runtime.models has 'script'\n"
    )


async def test_the_account_agrees_with_the_provider_or_says_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survives, "FINISHED", 100)  # so that the script does not wait to be killed
    await survives.work(tmp_path, "script")
    journal, log = kt.SqliteJournal(tmp_path / "runs.db"), tmp_path / "provider.log"
    lines, agrees = survives.account(journal, 9, log)
    assert agrees
    assert lines[-1] == "9 finished calls were paid once each; calls in doubt, charged in full: 0."
    honest = log.read_text(encoding="utf-8")
    log.write_text(honest + honest.splitlines()[0] + "\n", encoding="utf-8")
    lines, agrees = survives.account(journal, 9, log)
    assert not agrees, "a finished call was asked again"
    assert lines[-1].startswith("This is NOT true: ")
    log.write_text(honest + '["a request the journal does not know"]\n', encoding="utf-8")
    assert not survives.account(journal, 9, log)[1]


@pytest.mark.exhaustive
@pytest.mark.local_model
def test_on_the_model_inside_the_process() -> None:
    done = start(*COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"9 finished calls were paid once each; calls in doubt, charged in full: [01]\.", done.stdout)
