"""The result as one JSON document (`--json`).

The keys are the same for every end of the run:

- `run_id`, `team`, `goal`: strings; null when no run was built
- `status`: "completed", "degraded", "failed", "timeout", "cancelled" or "suspended"; "interrupted" for a run that was
  stopped and can be resumed from its journal; "refused" when nothing was started
- `exit_code`: the program's
- `output`: the result text, null unless the run is completed or degraded and a last task of its plan was accepted;
  `partial_output`: the finished work that a run without an output kept, or null; `error`: why the run did not
  complete; null only if it did
- `outcomes`: one per task in plan order, each with `task_id`, `status`, `member`, `attempts`, `usage`, `warnings`,
  `error`, `artifact` (`text`, `data`, `media_type`, `partial`) and `verdict` (`outcome`, `cause`, `score`, `feedback`,
  `findings`, `criteria` ...)
- `usage`: `prompt_tokens`, `completion_tokens`, `dollars` (a string, exact), `loops`, `tool_calls`, `seconds`
- `budget`: the tree, each node with `name`, `path`, `budget` (its ceiling), `guarantee`, `usage`, `halt`, `origin`,
  `children` ...
- `duration`: seconds; `warnings`: sentences; `halt`: why the team's budget stopped it, or null
- `note`: a remark on the input, or null
- `go_on`: the commands that continue the run: they answer its questions, and the last one resumes it; empty when the
  run has ended or has no journal
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.late_pydantic import adapter
from kairo_team.cli.run_table import INTERRUPTED
from kairo_team.engine.plan.preflight import PlanCheck
from kairo_team.results import TeamResult

if TYPE_CHECKING:
    from kairo_team.cli.job import Ended, Job

_KEYS: Final = (
    "run_id", "team", "goal", "status", "exit_code", "output", "partial_output", "error", "outcomes", "usage", "budget",
    "duration", "warnings", "halt", "note", "go_on",
)  # fmt: skip
_LISTS: Final = {"outcomes", "warnings", "go_on"}


def write_result(job: Job, ended: Ended) -> str:
    """Write the document of a run."""
    result = ended.result
    body: dict[str, Any] = adapter(TeamResult).dump_python(result, mode="json", fallback=repr)
    body |= {"team": job.team.name, "goal": job.request.goal, "note": job.note}
    body |= {"output": result.output, "partial_output": result.partial_output, "exit_code": ended.code}
    body["go_on"] = list(ended.go_on)
    if ended.interrupted:
        body["status"] = INTERRUPTED
    if result.refused:
        body["status"] = "refused"
    return _write(body)


def write_refusal(sentence: str, exit_code: int) -> str:
    """Write the document of a run that was never built."""
    return _write({"status": "refused", "error": sentence, "exit_code": exit_code})


def write_check(found: PlanCheck, exit_code: int) -> str:
    """Write the document of `kairo check`: the fields of `PlanCheck`, and `exit_code`."""
    body: dict[str, Any] = adapter(PlanCheck).dump_python(found, mode="json", fallback=repr)
    return json.dumps(body | {"exit_code": exit_code}, indent=2) + "\n"


def _write(body: dict[str, Any]) -> str:
    document = {key: body.get(key, [] if key in _LISTS else None) for key in _KEYS}
    return json.dumps(document, indent=2) + "\n"
