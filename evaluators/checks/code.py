"""Checks on source code, which is never executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck
from kairo_team.evaluators.checks.script_process import SECONDS, run_script

if TYPE_CHECKING:
    from kairo_team.results import Artifact

# Extreme nesting exhausts the parser in several ways; all of them are findings, not failures of the check.
_PARSE: Final = """
import ast, json, sys
faults = []
for line, code in json.load(sys.stdin):
    try:
        ast.parse(code)
    except SyntaxError as error:
        faults.append([line + (error.lineno or 1), error.msg])
    except (ValueError, MemoryError, RecursionError) as error:
        faults.append([line + 1, str(error) or "nested too deeply"])
print(json.dumps(faults[:3]))
"""


async def _parses(artifact: Artifact) -> CheckAnswer:
    faults: Any = await run_script(_PARSE, _python(artifact.text))
    return not faults or "; ".join(f"line {line} is not valid Python: {message}" for line, message in faults)


python_parses = NamedCheck("python_parses", _parses, timeout=6 * SECONDS)
"""Check that the text parses as Python; if it has blocks fenced as Python, that each block does."""


def _python(text: str) -> list[tuple[int, str]]:
    """Return the Python blocks of a text, or else the whole text, each with the number of lines above."""
    blocks: list[tuple[int, str]] = []
    fence, begin, lines = "", 0, text.splitlines()
    for number, line in enumerate(lines):
        bare = line.strip()
        if fence and bare.startswith(fence) and not bare.strip(fence[0]):
            if begin:
                blocks.append((begin, "\n".join(lines[begin:number])))
            fence = ""
        elif not fence and bare.startswith(("```", "~~~")):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
            named = bare[len(fence) :].split()[:1]
            begin = number + 1 if named and named[0].lower() in ("python", "py", "python3") else 0
    if fence and begin:
        blocks.append((begin, "\n".join(lines[begin:])))
    return blocks or [(0, text)]
