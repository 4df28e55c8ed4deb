from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True, timeout=60)


def test_version(program: Any) -> None:
    said = program("--version")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(r"kairo \d+\.\d+\.\d+\S*\n", said.out)


def test_the_version_is_found_without_what_is_slow_to_import() -> None:
    asked = "import sys; from kairo_team.cli.app import run_program; run_program(['--version'])\n"
    done = python(asked + "print([one for one in ('importlib.metadata', 'pydantic', 'email') if one in sys.modules])")
    assert done.stdout.splitlines() == [f"kairo {metadata.version('kairo-team')}", "[]"]


def test_the_version_is_found_however_the_library_is_installed() -> None:
    """Without a folder of the usual name, `importlib.metadata` is asked; a library that is only copied has none."""
    hide = "from kairo_team._util import version\nversion._END = '.none'\n"
    asked = "print(repr(version.version_of_library()))"
    assert python(hide + asked).stdout == f"{metadata.version('kairo-team')!r}\n"
    hide += "import importlib.metadata as m\ndef no(name): raise m.PackageNotFoundError(name)\nm.version = no\n"
    assert python(hide + asked).stdout == "''\n"


def test_without_a_command_it_says_what_there_is(kairo: Any) -> None:
    said = kairo()
    assert (said.code, said.out) == (2, "")
    assert "demo" in said.err
    assert "run" in said.err


@pytest.mark.parametrize("command", [[], ["demo"], ["run"]])
def test_help_names_the_exit_codes(kairo: Any, command: list[str]) -> None:
    said = kairo(*command, "--help")
    assert said.code == 0
    assert "0 completed; 2 usage error; 3 degraded; 4 failed; 5 timeout; 6 cancelled; 7 suspended;" in " ".join(
        said.out.split()
    )


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_names_it(missing: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['kairo', 'demo']\n"
    done = python(hide + "from kairo_team.cli import main; sys.exit(main())")
    assert done.returncode == 2
    assert done.stderr == "kairo: the command line needs the extra 'cli': pip install 'kairo-team[cli]'\n"


def test_the_library_imports_neither_typer_nor_rich() -> None:
    done = python("import kairo_team, kairo_team.cli, sys; sys.exit(bool({'typer', 'rich'} & set(sys.modules)))")
    assert done.returncode == 0
