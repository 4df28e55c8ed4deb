"""The badge and the page of plug-ins say what the reports say, whatever packages write into their names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kairo_team.contracts import HumanGate
from kairo_team.tck import ContractResult, KitReport
from kairo_team.tck.published import badge_of, page_of


def document(name: str = "acme-gate", problem: str | None = None, *, kits: bool = True) -> dict[str, Any]:
    """A report as `kairo plugins --check --kit --json` prints it."""
    results = [ContractResult(f"test_c0{number}", [f"C{number}"], "passed") for number in (1, 2, 3)]
    report = json.loads(KitReport("TestInbox", HumanGate, results).to_json())
    own = {"kind": "gate", "name": "acme", "distribution": name, "version": "1.0", "built_in": False}
    ours = {"kind": "gate", "name": "defer", "distribution": "kairo-team", "version": "0.2", "built_in": True}
    run = {"distribution": name, "version": "1.0", "module": "acme", "problem": problem, "reports": [report]}
    return {"plugins": [ours, own], "kits": [run] if kits else []}


def test_the_badge_names_the_contracts_that_are_kept() -> None:
    root = ET.fromstring(badge_of([document()]))  # noqa: S314 - it was made here
    assert [one.text for one in root.iter() if one.tag.endswith("}text")] == ["kairo-team", "HumanGate 1.5"]
    assert "href" not in badge_of([document()]), "nothing is loaded from anywhere"


def test_the_badge_of_a_broken_package_is_red() -> None:
    badge = badge_of([document(problem="TestInbox: a clause does not hold, or none was tested")])
    assert "a clause does not hold" in badge
    assert "#b3261e" in badge


def test_a_badge_is_of_one_package() -> None:
    both = [document(), document("other")]
    with pytest.raises(ValueError, match=r"here are acme-gate, other: name one by --package$"):
        badge_of(both)
    assert badge_of(both, "other") == badge_of([document("other")])
    with pytest.raises(ValueError, match="here are none: name one"):
        badge_of(both, "third")
    with pytest.raises(ValueError, match="write it by `kairo plugins --check --kit --json`"):
        badge_of([{"plugins": []}])


def test_the_page_lists_every_package_once() -> None:
    lines = page_of([document(), document(), document("bare", kits=False), document("odd", "it broke")]).splitlines()
    assert lines[4:] == [
        "| acme-gate 1.0 | gate acme | HumanGate 1.5 \\(3 of 5 clauses\\) | nothing failed |",
        "| bare 1.0 | gate acme | - | ships none |",
        "| odd 1.0 | gate acme | HumanGate 1.5 \\(3 of 5 clauses\\) | it broke |",
    ]


def test_hostile_names_write_no_markdown_and_no_html() -> None:
    hostile = document("<script>|\n# x", "[a](javascript:b) <img src=x>")
    page = page_of([hostile])
    assert len(page.splitlines()) == 5
    assert not any(f"{one}" in page.replace(f"\\{one}", "") for one in "<>[]()")
    ET.fromstring(badge_of([document("<b>&")]))  # noqa: S314 - it was made here


def test_the_command_writes_both_and_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "kits.json").write_text(json.dumps(document()))
    (tmp_path / "odd.json").write_text("[]")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kairo_team.tck", *arguments]
        return subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)

    assert run("badge", "kits.json").stdout == badge_of([document()])
    assert run("page", "kits.json").stdout == page_of([document()])
    for wrong in (("badge", "odd.json"), ("page", "gone.json"), ("badge", "kits.json", "--package", "x")):
        said = run(*wrong)
        assert (said.returncode, said.stdout) == (2, "")
        assert len(said.stderr.splitlines()) == 1
