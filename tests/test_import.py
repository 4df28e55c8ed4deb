"""`import kairo_team` stays quick: what is heavy is imported when it is first needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("jinja2", "networkx", "pydantic_ai", "rich", "trio", "typer", "xllamacpp")


@pytest.mark.smoke
def test_the_import_brings_nothing_heavy() -> None:
    code = "import json, sys, kairo_team; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert "kairo_team" in loaded
    assert loaded.isdisjoint(HEAVY)
