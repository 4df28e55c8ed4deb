"""What a release says of itself agrees: version, tag, changelog, support table, migration notes and licences."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="runs in the repository only")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the list is that of Linux")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def read(*place: str) -> str:
    return ROOT.joinpath(*place).read_text("utf-8")


def licences() -> Any:
    spec = importlib.util.spec_from_file_location("licences", ROOT / "scripts" / "licences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changelog_begins_with_the_version() -> None:
    newest = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == project()["version"]


def test_a_tagged_commit_has_the_version_of_its_tag() -> None:
    asked = ["git", "tag", "--points-at", "HEAD", "--list", "v*"]
    done = subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("there is no git, or no repository")
    assert set(done.stdout.split()) <= {f"v{project()['version']}"}


def test_the_support_page_names_every_python_that_the_package_names() -> None:
    named = [one.rpartition(" ")[2] for one in project()["classifiers"] if re.search(r":: 3\.\d+$", one)]
    page = read("docs", "support.md")
    assert [version for version in named if version not in page] == []


def rows(table: str) -> list[tuple[str, str]]:
    """The first two columns of a table of modules."""
    return re.findall(r"^\| `(kairo_team[\w.]*)` \| `(kairo_team[\w.]*)` \|$", table, re.MULTILINE)


@pytest.mark.parametrize(("old", "new"), rows(read("docs", "migration.md")) if (ROOT / "docs").exists() else [])
def test_a_module_that_moved_is_where_the_migration_notes_say(old: str, new: str) -> None:
    assert is_there(new)
    assert not is_there(old), "it is still there"


def is_there(name: str) -> bool:
    """Return whether a module, or a name in one, exists; a folder with nothing but old byte code does not."""
    parent, _, last = name.rpartition(".")
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # the parent is gone, or is not a package
        return find_spec(parent) is not None and hasattr(import_module(parent), last)
    return spec is not None and spec.origin is not None


def test_a_name_that_changed_is_where_the_migration_notes_say() -> None:
    from kairo_team import events
    from kairo_team.evaluators import checks

    assert (events.TeamRunFailed.type, hasattr(events, "TeamFailed")) == ("team.failed", False)
    assert (callable(checks.NamedCheck), hasattr(checks, "Made")) == (True, False)


@on_linux
def test_every_package_of_every_extra_names_its_licence_and_is_listed() -> None:
    program = licences()
    found = program.packages()
    assert [one.name for one in found if not one.licence] == []
    written = read("docs", "licences.md").splitlines()
    missing = [line for line in program.page(found) if line not in written]
    assert missing == [], "write the page again: .venv/bin/python scripts/licences.py > docs/licences.md"


@on_linux
def test_the_bill_of_materials_has_every_package_with_its_version_and_licence() -> None:
    program = licences()
    found = program.packages()
    bill = json.loads(json.dumps(program.bill_of_materials(found)))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "kairo-team")
    assert [(one["name"], one["version"]) for one in bill["components"]] == [(one.name, one.version) for one in found]
    assert all(one["licenses"][0]["license"]["name"] for one in bill["components"])
