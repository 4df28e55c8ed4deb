"""`kairo plugins --check --kit`: the kits that installed packages ship, each run by pytest in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.text import Text

from kairo_team._util.terminal import clean
from kairo_team.cli.refusal import Refusal
from kairo_team.errors import MissingExtra
from kairo_team.plugins import Plugin
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.cli.streams import Screen

_LONGEST: Final = 1800
"""Seconds after which the tests of one package are stopped."""
_FAILED: Final = 1
"""Pytest's exit code when tests failed."""
_NONE: Final = 5
"""Pytest's exit code when it found no test."""
_TAIL: Final = 5
"""Lines of pytest's output that explain a missing report."""


class KitRun(NamedTuple):
    """The kits of one package, after they ran."""

    kit: Plugin
    reports: Sequence[dict[str, Any]]
    """The documents of `KitReport.to_json`."""
    problem: str | None

    @property
    def entry(self) -> dict[str, Any]:
        """The run in the document for programs."""
        return {
            "distribution": self.kit.distribution,
            "version": self.kit.version,
            "module": self.kit.target,
            "problem": self.problem,
            "reports": list(self.reports),
        }

    def show(self, screen: Screen) -> None:
        """Print the run."""
        head = f"kits of {self.kit.distribution} {self.kit.version}: {self.kit.target}"
        screen.show(Text(one_line(head), style="bold"), **screen.uncut)
        for report in self.reports:
            for line in report["lines"]:
                screen.print_text(f"  {clean(line)}")
        if self.problem is not None:
            screen.print_indented(f"problem: {self.problem}", 2, "red")


def run_kit(kit: Plugin) -> KitRun:
    """Run the kits that a package ships; `Refusal` without the extra `tck`."""
    if find_spec("pytest") is None:
        raise Refusal(f"--kit: {MissingExtra('running kits', 'tck')}")
    with TemporaryDirectory() as folder:
        report, settings = Path(folder) / "report.json", Path(folder) / "pytest.ini"
        settings.write_text("[pytest]\n", encoding="utf-8")  # none of the folder where the command is given
        options = ["-c", str(settings), "--rootdir", folder, "-p", "no:cacheprovider", "--import-mode=importlib"]
        command = [sys.executable, "-m", "pytest", "-q", *options, "--kit-report", str(report), "--pyargs", kit.target]
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        try:
            done = subprocess.run(  # noqa: S603 - this Python, and a name of an installed package
                command,
                check=False,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST,
            )
        except subprocess.TimeoutExpired:
            return KitRun(kit, (), f"its tests were not over after {_LONGEST // 60} minutes, and were stopped")
        reports: Sequence[dict[str, Any]] = ()
        with suppress(OSError):  # it may have written no file
            reports = json.loads(report.read_text(encoding="utf-8"))["reports"]
    return KitRun(kit, reports, _problem(done, reports))


def _problem(done: subprocess.CompletedProcess[bytes], reports: Sequence[dict[str, Any]]) -> str | None:
    broken = [str(one["implementation"]).rpartition("::")[2] for one in reports if not one["ok"]]
    if broken:
        return f"{', '.join(broken)}: a clause does not hold, or none was tested"
    if done.returncode == 0 and reports:
        return None
    lines = [line for line in clean(done.stdout.decode(errors="replace")).splitlines() if line.strip()]
    why = "other tests of it failed" if reports and done.returncode == _FAILED else "it has no test class of a kit"
    if done.returncode not in {0, _FAILED, _NONE}:
        why = f"its tests could not be run (pytest ended with {done.returncode})"
    return f"{why}: {' / '.join(line.strip() for line in lines[-_TAIL:])}"
