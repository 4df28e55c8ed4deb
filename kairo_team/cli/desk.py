"""One command's output: the screen for people, the document for programs, and errors of writing them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TextIO

from kairo_team._util.late_pydantic import adapter
from kairo_team._util.masking import masked
from kairo_team.cli.exit_codes import LEFT_BY_SIGNAL, USAGE_ERROR
from kairo_team.cli.job import Ended, Job, check, describe_unreplaced, execute
from kairo_team.cli.journals import place_name
from kairo_team.cli.outputs import write_output
from kairo_team.cli.refusal import Refusal, explain
from kairo_team.cli.report import folded, show_result
from kairo_team.cli.run_table import INTERRUPTED
from kairo_team.cli.streams import Screen, claim_stdout, silence
from kairo_team.engine.plan.preflight import PlanCheck, plan_problems
from kairo_team.engine.work.run_arguments import pick_coordinator
from kairo_team.errors import PlanRefused
from kairo_team.results import TeamResult
from kairo_team.tasks import TaskGraph
from kairo_team.views.graph_chart import make_chart
from kairo_team.views.graph_mermaid import draw_mermaid, mermaid_limits
from kairo_team.views.graph_svg import draw_svg
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from kairo_team.engine.work.runtime import ContentMode

UNWRITTEN: Final = 1
"""Exit code when the result could not be written, as on a full disk."""
_MOST_PROBLEMS: Final = 3


class Desk:
    """The output of one command."""

    def __init__(self) -> None:
        self._screen: Screen | None = None
        self._write: Callable[[str], None] | None = None
        self._json = False
        self._lost: OSError | None = None
        self.has_shown = False
        """Whether the command has shown how its run ended."""

    @property
    def screen(self) -> Screen:
        """The output for a person."""
        if self._screen is None:
            self._screen = Screen(to_stderr=self._write is not None)
        return self._screen

    def begin(self, *, json: bool) -> None:
        """Keep stdout for a document, with `json`."""
        if json and self._write is None:
            self._write, self._json = claim_stdout("--json writes to stdout"), True

    def begin_chart(self) -> None:
        """Keep stdout for a chart; refusals go to stderr alone."""
        self._write = claim_stdout("the chart goes to stdout")

    def run(self, job: Job, events: Path | None, content: ContentMode | None) -> int:
        """Run a job, show its result and return the exit code; its events are appended to the file `events`."""
        if job.note:
            self.screen.print_text(job.note)
        if job.journal is not None and job.go_on is None:
            account, place = job.journal.account, place_name(job.journal)
            how = "is recorded" if account is None else f"is to be charged to {account!r} and recorded"
            self.screen.print_text(f"run {job.request.run_id} {how} in {place}")
        self._warn_of_unreplaced(job)
        ended = execute(job, self.screen, keep_on=self._write is not None, events=events, content=content)
        return self.show_ended(job, ended)

    def show_ended(self, job: Job, ended: Ended) -> int:
        """Show how a job ended, and return the exit code."""
        if self._write is not None:
            self.put(write_result(job, ended))
        if ended.result.refused:
            self.print_notice(f"nothing was started: {ended.result.error}")
        elif self._write is None:
            show_result(ended, self.screen)
        self.has_shown = True
        return ended.code

    def check(self, job: Job, *, recorded: bool) -> int:
        """Show whether a job can start, `recorded` or not, and how its budget would be split; return the exit code."""
        self._warn_of_unreplaced(job)
        found = check(job, recorded=recorded)
        code = 0 if found.ok else USAGE_ERROR
        if self._write is not None:
            self.put(write_check(found, code))
        for problem in found.problems:
            self.print_notice(f"cannot start: {problem}")
        if self._write is None:
            split = [] if found.split is None else [str(folded(found.split))]
            lines = [found.verdict, *found.notes, *split] if found.ok else split
            if lines:
                self.screen.print_text("\n".join(lines))
        return code

    def graph(self, job: Job, svg: Path | None) -> int:
        """Write a job's plan to stdout as a Mermaid flowchart, or to a file as a picture; return the exit code."""
        plan = _known_plan(job)
        chart = make_chart(plan, job.team)
        if svg is None:
            text = draw_mermaid(chart)
            self.put(text)
            for sentence in mermaid_limits(chart, text):
                self.print_notice(f"{sentence}: --svg PATH draws all of it")
            return 0
        write_output("--svg", svg, draw_svg(chart))
        self.print_notice(f"the plan of team {job.team.name!r} ({chart.size}) is drawn in {svg}")
        return 0

    def present(self, document: Mapping[str, Any], show: Callable[[Screen], None], code: int = 0) -> int:
        """Write the document and the exit code if --json was given, else call `show` for a person; return the code."""
        if self._write is not None:
            self.put(_json({**document, "exit_code": code}))
        else:
            show(self.screen)
        return code

    def refuse(self, *sentences: str) -> int:
        """Print why nothing can be started, a sentence per line, and return the exit code."""
        if self._json:
            self.put(write_refusal("; ".join(sentences), USAGE_ERROR))
        for sentence in sentences:
            self.print_notice(sentence)
        return USAGE_ERROR

    def print_notice(self, sentence: str) -> None:
        """Print a sentence to stderr."""
        stream: TextIO | None = sys.stderr  # None when it was closed before the program began
        try:
            if stream is not None:
                print(f"kairo: {one_line(sentence)}", file=stream)
        except OSError:
            silence(stream)

    def _warn_of_unreplaced(self, job: Job) -> None:
        sentence = describe_unreplaced(job)
        if sentence:
            self.print_notice(sentence)

    def put(self, document: str) -> None:
        """Write a document or a chart to the kept stdout."""
        assert self._write is not None
        try:
            self._write(masked(document))
        except OSError as error:
            self.lose(error)

    def lose(self, error: OSError) -> int:
        """Keep an error of writing output until the end of the program; return its exit code."""
        self._lost = error
        return UNWRITTEN

    def close(self, code: int) -> int:
        """Flush the buffers; return the exit code, or another one if the output was lost."""
        streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
        for stream in filter(None, streams):
            try:
                stream.flush()
            except OSError as error:
                silence(stream)
                self._lost = self._lost or error
        lost = self._lost or (self._screen.lost if self._screen is not None else None)
        if lost is None or isinstance(lost, BrokenPipeError) or code > LEFT_BY_SIGNAL:
            return code  # after SIGHUP the terminal has gone
        self.print_notice(f"the output could not be written: {explain(lost)}")
        return UNWRITTEN


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
    return _json(body | {"exit_code": exit_code})


def _write(body: dict[str, Any]) -> str:
    return _json({key: body.get(key, [] if key in _LISTS else None) for key in _KEYS})


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


# ---------------------------------------------------------------- kairo graph


def _known_plan(job: Job) -> TaskGraph:
    """Return the plan that the job's run would follow; `Refusal` if only a planner knows it, or no member can do it."""
    team, request = replace(job.team, runtime=None), job.request
    # First, as in `kairo check`: the coordinator need not follow the request's plan.
    coordinator = pick_coordinator(team, request, job.coordinator)
    preview = getattr(coordinator, "preview", None)
    try:
        plan = None if preview is None else preview(request, team)
    except PlanRefused as refused:
        raise Refusal(f"the plan cannot be carried out: {_listed(refused.problems)}") from None
    except Exception as error:
        raise Refusal(f"the plan cannot be previewed: {explain(error)}") from error
    plan = request.plan if plan is None else plan
    if plan is None:
        raise Refusal(
            f"the plan of team {job.team.name!r} is known only once its planner was asked, which kairo graph does not "
            "do: let the file build a `plan` (kt.TaskGraph), or a `request` with one"
        )
    if not isinstance(plan, TaskGraph):
        raise Refusal(f"the coordinator's preview must return a TaskGraph or None, not {plan!r:.80}")
    problems = plan_problems(plan.tasks, job.team)
    if problems:
        raise Refusal(f"the plan cannot be carried out: {_listed(problems)}")
    return plan


def _listed(problems: Sequence[str]) -> str:
    left_out = len(problems) - _MOST_PROBLEMS
    listed = "; ".join(problems[:_MOST_PROBLEMS])
    return f"{listed}; and {left_out:,} more, which kairo check lists" if left_out > 0 else listed
