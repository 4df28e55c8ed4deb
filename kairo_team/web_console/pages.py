"""The console's pages and the actions of their forms."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from kairo_team._util.counts import count
from kairo_team._util.masking import masked
from kairo_team._util.terminal import clean
from kairo_team._util.threads import run_in_thread
from kairo_team.budget import Budget
from kairo_team.errors import JournalError, Misuse, NoQuestion, RunNotFound
from kairo_team.human import HumanDecision
from kairo_team.recorded import ENDED, STATES
from kairo_team.views.report_html import report_policy
from kairo_team.web_console.access import FILE_POLICY, MAX_BODY, REPORT_POLICY, Access
from kairo_team.web_console.open_questions import open_questions
from kairo_team.web_console.run_page import AT_ONCE, TABS, RunPages, Shown
from kairo_team.web_console.streams import messages
from kairo_team.web_console.task_tree import MOST_TASKS

if TYPE_CHECKING:
    from jinja2 import Environment

    from kairo_team.recorded import RecordedRun
    from kairo_team.web_console.sources import AtWork, Source

_SELECTED: Final = "run "
"""How the names of the fields of selected runs begin; the run's id follows."""
_CONFLICT: Final = 409
_AWAY: Final = 503
_RECONNECT: Final = "retry: 2000\n\n"
"""The stream of a page while the journal cannot be read: its browser connects again after so many milliseconds."""
_NAME: Final = "kairo-person"
"""The cookie with the name of the person at this browser."""
_THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_DIGITS: Final = 6
"""Most digits of a number in an address."""
_ANY: Final = "application/octet-stream"
_MOST_NAME: Final = 80
_MOST_OPENED: Final = 50
"""Maps and loops that a browser may have open in a long list."""
_MOST_RUNS: Final = 50
"""Runs of one page of the list."""
_LOOK_AT_RUNS: Final = 2.0
"""Seconds between two reads of the list for an open page."""
_YEAR: Final = 365 * 86_400
_THOROUGH: Final = 5.0
"""Seconds after which everything is read again, even if nothing seems to have changed."""

_SAID: Final = {
    "approve": "you approved it",
    "revise": "you sent it back with your words",
    "reject": "you rejected it",
    "defer": "you deferred it, and it stays open",
}


class _Asked(NamedTuple):
    """Which runs a list has."""

    q: str
    state: str
    page: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Asked:
        """Return what an address asks for; an unknown state or page asks for all, from the first one on."""
        query, state, page = (given.get(name, "").strip() for name in ("q", "state", "page"))
        return cls(query, state if state in STATES else "", max(_number(page) or 1, 1))


class Pages:
    """Answers the console's requests."""

    def __init__(
        self, source: Source, access: Access, templates: Environment, person: str, is_closing: Callable[[], bool]
    ) -> None:
        """`person` acts where a browser gave no name. Streams end when the console `is_closing`."""
        self._is_closing = is_closing
        self._source = source
        self._pages = RunPages(source)
        self._access = access
        self._templates = templates
        self._person = person

    # ------------------------------------------------------------------ pages

    def runs(self, request: Request) -> Response:
        """Show the recorded runs; the printed link begins a session."""
        if "token" in request.query_params:
            return self._enter(request)
        return self._runs(request, _Asked.of(request.query_params), request.query_params.get("done", ""))

    def _runs(self, request: Request, asked: _Asked, done: str = "", refused: str = "", status: int = 200) -> Response:
        parts = self._parts(request, "runs_parts.html", self._listed(asked))
        shown = {"done": done, "refused": refused, "back": f"/?{urlencode(asked._asdict())}"}
        return self._page(request, "runs.html", status, parts=parts, **asked._asdict(), asked=asked._asdict(), **shown)

    def runs_stream(self, request: Request) -> Response:
        """Send the list of runs whenever it changes."""
        asked = _Asked.of(request.query_params)

        def render(_state: object) -> dict[str, str]:
            return self._parts(request, "runs_parts.html", self._listed(asked))

        return self._streamed(request, lambda: int(monotonic() / _LOOK_AT_RUNS), render)

    def _listed(self, asked: _Asked) -> dict[str, Any]:
        """Return the values of one page of the list of runs."""
        words = asked.q.lower().split()
        fit = [
            run
            for run in self._source.runs()
            if all(word in f"{run.run_id} {run.team} {run.goal}".lower() for word in words)
        ]
        counts = Counter(run.state for run in fit)
        found = [run for run in fit if asked.state in ("", run.state)]
        page = min(asked.page, max(1, math.ceil(len(found) / _MOST_RUNS)))  # runs are forgotten, and a search has fewer
        first = (page - 1) * _MOST_RUNS
        shown = found[first : first + _MOST_RUNS]
        return {
            **asked._asdict(),
            "page": page,
            "runs": shown,
            "more": len(found) - first - len(shown),
            "total": len(fit),
            "counts": [(state, counts[state]) for state in STATES if counts[state]],
            "asks": Counter(one.asked.run_id for one in self._source.pending()),
            "limits": {run.run_id: self._limit(run) for run in shown},
            "progress": {run.run_id: None if run.problem else self._source.progress(run) for run in shown},
            "ended": ENDED,
            "accounts": self._source.accounts(),
        }

    def _limit(self, run: RecordedRun) -> int | None:
        if run.problem is not None:
            return None
        try:
            return self._source.limit(run)
        except RunNotFound:  # it was forgotten just now
            return None

    def _enter(self, request: Request) -> Response:
        """Set the cookie of a new session."""
        if not self._access.is_entry(request):
            return RedirectResponse("/", 303)
        # A page, not a redirect: after a link on another site, a redirect would not send the strict cookie.
        response = HTMLResponse(self._templates.get_template("enter.html").render())
        self._access.set_cookie(response)
        return response

    def questions(self, request: Request, refused: str = "", status: int = 200, current: str = "") -> Response:
        """Show the questions that wait for a person, and why an answer to the `current` one was refused."""
        done = request.query_params.get("done", "")
        parts = self._parts(request, "question_parts.html", {"questions": open_questions(self._source)})
        return self._page(request, "questions.html", status, parts=parts, done=done, refused=refused, current=current)

    def run(self, request: Request, run_id: str = "", refused: str = "", status: int = 200) -> Response:
        """Show one run, by default the one of the address; of a long run, only its first events."""
        run_id = run_id or request.query_params.get("id", "")
        page = self._pages.of(run_id)
        run = self._source.show(run_id)
        shown = Shown(start=_number(request.query_params.get("from", "")))
        parts = page.parts(self._look(run_id), shown, partial(self._run_parts, run_id, shown), AT_ONCE)
        done = request.query_params.get("done", "")
        return self._page(request, "run.html", status, run=run, parts=parts, tabs=TABS, done=done, refused=refused)

    def task(self, request: Request) -> Response:
        """Show one task of a run; for the script of the run's page, only the part about the task."""
        run_id, task_id = request.query_params.get("id", ""), request.query_params.get("task", "")
        values = self._pages.of(run_id).task(task_id)
        if values is None:
            raise HTTPException(404, f"Run {run_id!r} has no task {task_id!r}.")
        shown = {"form_key": self._access.form_key, "here": _run_path(run_id), **values}
        if "part" in request.query_params:
            return self._html("task_part.html", shown)
        return self._page(request, "task.html", here=_run_path(run_id), **values)

    def report(self, request: Request) -> Response:
        """Show the report of a run: a page with a policy of its own, which cannot use the console's session."""
        run_id = request.query_params.get("id", "")
        page = self._source.report(run_id)
        headers = {"content-security-policy": REPORT_POLICY.format(policy=report_policy())}
        return HTMLResponse(page.encode("utf-8", "replace"), headers=headers)

    def output(self, request: Request) -> Response:
        """Return the whole output of a run, or of a task, as a file."""
        run_id, task_id = request.query_params.get("id", ""), request.query_params.get("task", "")
        text = self._pages.of(run_id).output(task_id)
        if text is None:
            raise HTTPException(404, f"Run {run_id!r} has no such output to save.")
        headers = {"content-disposition": 'attachment; filename="output.txt"'}
        return PlainTextResponse(masked(text).encode("utf-8", "replace"), headers=headers)

    def _run_parts(self, run_id: str, shown: Shown, values: dict[str, Any]) -> dict[str, str]:
        """Render the parts of a run's page; they are the same for all browsers that show the same."""
        closed = () if shown.tab is None else [one for one in TABS if one != shown.tab]
        common = {"form_key": self._access.form_key, "here": _run_path(run_id)}
        return self._blocks("run_parts.html", {**common, **values}, closed)

    def compare(self, request: Request) -> Response:
        """Show two runs side by side; for one alone, the runs of its team to choose from."""
        names = [request.query_params.get(one, "").strip() for one in ("a", "b")]
        if not names[1]:
            run = self._source.show(names[0])
            others = [one for one in self._source.runs() if one.team == run.team and one.run_id != run.run_id]
            return self._page(request, "compare_with.html", run=run, others=others[:_MOST_RUNS])
        first, second = (self._pages.of(one).read() for one in names)
        mine, other = first["view"].story.tasks, second["view"].story.tasks
        ids = list(dict.fromkeys([*mine, *other]))
        differing = [one for one in ids if one not in mine or one not in other or mine[one].state != other[one].state]
        shown = [*dict.fromkeys([*differing, *ids])][:MOST_TASKS]
        rows = [(one, mine.get(one), other.get(one)) for one in shown]
        counted = {"differing": len(differing), "total": len(ids), "more": len(ids) - len(shown)}
        return self._page(request, "compare.html", runs=(first, second), rows=rows, **counted)

    def subject(self, request: Request) -> Response:
        """Return the whole subject of a question as a file."""
        name = request.query_params.get("question", "")
        waiting = [one.asked for one in self._source.pending()]
        for question in waiting:
            if question.id == name:
                text = question.subject.encode("utf-8", "replace")
                headers = {"content-disposition": 'attachment; filename="subject.txt"'}
                return PlainTextResponse(text, headers=headers)
        raise NoQuestion(name, [one.id for one in waiting])

    def file(self, request: Request) -> Response:
        """Return a file of a run's artifacts: an image as itself, any other to be saved."""
        run_id, *which = (request.query_params.get(one, "") for one in ("id", "digest", "type"))
        self._source.show(run_id)
        files = self._source.files(run_id)
        found = next((one for one in files if [one.file.digest, one.file.media_type] == which), None)
        data = None if found is None or found.file.url is not None else found.file.data
        if found is None or data is None:
            raise HTTPException(404, f"Run {run_id!r} keeps no content of such a file.")
        shown = found.is_shown
        name = quote(clean(found.file.name), safe="")
        headers = {
            "content-disposition": f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{name}",
            "content-security-policy": FILE_POLICY,
        }
        return Response(data, headers=headers, media_type=found.file.media_type if shown else _ANY)

    # ------------------------------------------------------------------ live

    def run_stream(self, request: Request) -> Response:
        """Send the parts of a run's page whenever they change."""
        page = self._pages.of(request.query_params.get("id", ""))
        self._source.show(page.run_id)
        asked = request.query_params
        opened = tuple(asked.getlist("open")[-_MOST_OPENED:])
        find = asked.get("find", "").strip()[:_MOST_NAME]
        shown = Shown(asked.get("tab"), find, _number(asked.get("from", "")), opened)

        def render(state: object) -> dict[str, str]:
            parts: dict[str, str] = page.parts(state, shown, partial(self._run_parts, page.run_id, shown))
            return parts

        return self._streamed(request, partial(self._look, page.run_id), render)

    def questions_stream(self, request: Request) -> Response:
        """Send the queue of questions whenever it changes."""

        def render(_state: object) -> dict[str, str]:
            return self._parts(request, "question_parts.html", {"questions": open_questions(self._source)})

        return self._streamed(request, partial(self._look, None), render)

    def _look(self, run_id: str | None) -> object:
        """Return a value that differs if a page may have changed, and at least every `_THOROUGH` seconds."""
        return self._source.changes(run_id), int(monotonic() / _THOROUGH)

    def _streamed(
        self, request: Request, look: Callable[[], object], render: Callable[[object], dict[str, str]]
    ) -> StreamingResponse:
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(messages(last, look, render, self._is_closing), media_type="text/event-stream")

    def _parts(self, request: Request, template: str, values: Mapping[str, Any]) -> dict[str, str]:
        return self._blocks(template, {**self._common(request), **values})

    def _blocks(self, template: str, values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, str]:
        """Render the blocks of a template: the parts of a page, by name."""
        found = self._templates.get_template(template)
        context = found.new_context(dict(values))
        blocks = {name: block for name, block in found.blocks.items() if name not in without}
        return {name: Markup("").join(map(Markup, block(context))) for name, block in blocks.items()}

    # ------------------------------------------------------------------ actions

    async def answer(self, request: Request) -> Response:
        """Answer a question."""
        given = await self._form(request)
        question, action, text = given.get("question", ""), given.get("action", ""), given.get("text", "").strip()
        decision = HumanDecision(cast("Any", action), text, self._user_name(request))
        await run_in_thread(self._source.answer, question, decision)
        return _page_before(given, f"{_SAID[action]} ({question})")

    async def cancel(self, request: Request) -> Response:
        """End a run for good."""
        given = await self._form(request)
        await run_in_thread(self._source.cancel, given.get("run", ""), self._reason(request, given))
        return _page_before(given, "cancelled")

    async def cancel_runs(self, request: Request) -> Response:
        """End the runs that were selected in the list; say which could not be ended, and why."""
        given = await self._form(request)
        names = [name.removeprefix(_SELECTED) for name in given if name.startswith(_SELECTED)]
        if not names:
            raise ValueError("select the runs to cancel")
        reason, refused = self._reason(request, given), list[str]()
        for name in names:
            try:
                await run_in_thread(self._source.cancel, name, reason)
            except Misuse as error:  # it has ended meanwhile, or was forgotten
                refused.append(str(error))
        done = f"cancelled {count(len(names) - len(refused), 'run')}" if len(names) > len(refused) else ""
        if not refused:
            return _page_before(given, done)
        return await run_in_thread(self._runs, request, _asked_of(given), done, "; ".join(refused), _CONFLICT)

    async def steer(self, request: Request) -> Response:
        """Give a directive to a run at work."""
        given = await self._form(request)
        text, task_id, by = given.get("text", ""), given.get("task") or None, self._user_name(request)
        await run_in_thread(lambda: self._at_work(given).steer(text, task_id, by=by))
        return _page_before(given, "told")

    async def top_up(self, request: Request) -> Response:
        """Raise the limits of a run at work."""
        given = await self._form(request)
        amounts = {name: _amount(given.get(name, "")) for name in ("tokens", "dollars")}
        if not any(amounts.values()):
            raise ValueError("say how many tokens or dollars to add")
        if amounts["tokens"] and not amounts["tokens"].isdecimal():
            raise ValueError(f"tokens are a whole number, not {amounts['tokens']!r}")
        more = Budget(int(amounts["tokens"]) if amounts["tokens"] else None, amounts["dollars"] or None)
        by = self._user_name(request)
        await run_in_thread(lambda: self._at_work(given).top_up(more, by=by))
        return _page_before(given, "budget raised")

    async def fork(self, request: Request) -> Response:
        """Make a run that does a task again, and show it."""
        given = await self._form(request)
        new_id = await run_in_thread(self._source.fork, given.get("run", ""), given.get("task", ""))
        return _page_before({"back": _run_path(new_id)}, "forked")

    async def cancel_task(self, request: Request) -> Response:
        """End one task of a run at work."""
        given = await self._form(request)
        reason = self._reason(request, given)
        await run_in_thread(lambda: self._at_work(given).cancel_task(given.get("task", ""), reason))
        return _page_before(given, "the task is being cancelled")

    def _at_work(self, given: Mapping[str, str]) -> AtWork:
        return self._source.at_work(given.get("run", ""))

    async def name(self, request: Request) -> Response:
        """Keep the name of the person at this browser; it is recorded with their actions."""
        given = await self._form(request)
        response = RedirectResponse(_own_path(given.get("back", "")), 303)
        # A cookie takes only ASCII.
        name = quote(" ".join(given.get("name", "").split())[:_MOST_NAME])
        secure = self._access.secure
        response.set_cookie(_NAME, name, _YEAR, httponly=True, samesite="strict", secure=secure)
        return response

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form of this console."""
        body = b""
        async with aclosing(request.stream()) as parts:
            async for part in parts:
                body += part
                if len(body) > MAX_BODY:
                    raise HTTPException(413, f"A form may have at most {MAX_BODY:,} bytes.")
        given = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not self._access.is_own_form(given):
            raise HTTPException(403, "This form is from an earlier session of the console: open the page again.")
        # For `refuse`, which gets only the request, and the body can be read once.
        request.state.given = given
        return given

    # ------------------------------------------------------------------ what pages share

    def _reason(self, request: Request, given: Mapping[str, str]) -> str:
        """Return why something is cancelled: who did it, and what they wrote."""
        why = given.get("text", "").strip()
        return f"cancelled by {self._user_name(request)} in the console" + (f": {why}" if why else "")

    def _user_name(self, request: Request) -> str:
        return self._name(request) or "somebody"

    def _name(self, request: Request) -> str:
        """Return the name of the person at a browser; reads nothing but the cookie."""
        # Read like a field of a form, because `name` has quoted it.
        given = dict(parse_qsl(f"name={request.cookies.get(_NAME, '')}")).get("name", "")[:_MOST_NAME]
        return given or self._person

    def _common(self, request: Request) -> dict[str, Any]:
        return {**self._about(request), "waiting": self._source.number_open()}

    def _about(self, request: Request) -> dict[str, Any]:
        """Return what every page has, without a look at the runs."""
        path, run_id = request.url.path, request.query_params.get("id", "") or _run_of(given_in(request))
        return {
            "person": self._name(request),
            "form_key": self._access.form_key,
            "here": _run_path(run_id) if run_id else path.removesuffix("/stream").removesuffix("/answer"),
            "journal": self._source.name,
        }

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        return self._html(template, {**self._common(request), **values}, status)

    def _html(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        text = self._templates.get_template(template).render(values)
        # A member's text may hold lone surrogates, which UTF-8 has no bytes for.
        return HTMLResponse(text.encode("utf-8", "replace"), status)

    def refuse(self, request: Request, error: Exception) -> Response:
        """Show why something was not done."""
        if isinstance(error, JournalError):
            if request.url.path.endswith("/stream"):  # after any other answer, a browser would give the stream up
                return PlainTextResponse(_RECONNECT, media_type="text/event-stream")
            # Without a look at the runs: the journal cannot be read.
            values = {**self._about(request), "waiting": 0, "heading": "Not done", "sentence": str(error)}
            return self._html("refused.html", values, _AWAY)
        status = (
            error.status_code if isinstance(error, HTTPException) else 404 if isinstance(error, LookupError) else 409
        )
        sentence = error.detail if isinstance(error, HTTPException) else str(error)
        given = given_in(request)
        if isinstance(error, Misuse | ValueError) and given:  # its form is on that page
            if given.get("back", "").startswith("/?"):
                return self._runs(request, _asked_of(given), "", sentence, status)
            if given.get("back", "").startswith("/questions"):
                return self.questions(request, sentence, status, given.get("question", ""))
            with suppress(RunNotFound):
                return self.run(request, _run_of(given), sentence, status)
        heading = "Not found" if status == 404 and request.method == "GET" else "Not done"  # noqa: PLR2004 - HTTP's number
        return self._page(request, "refused.html", status, heading=heading, sentence=sentence)


def _amount(text: str) -> str:
    """Return an amount without the commas between thousands, as in `5,000`; any other text as it is."""
    text = text.strip()
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def given_in(request: Request) -> Mapping[str, str]:
    """Return the fields of the form that a request brought, if it was read."""
    return cast("Mapping[str, str]", getattr(request.state, "given", {}))


def _asked_of(given: Mapping[str, str]) -> _Asked:
    """Return which list of runs has a form."""
    return _Asked.of(dict(parse_qsl(urlsplit(given.get("back", "")).query)))


def _run_of(given: Mapping[str, str]) -> str:
    """Return the run whose page has a form."""
    back = dict(parse_qsl(urlsplit(given.get("back", "")).query))
    return given.get("run") or back.get("id", "")


def _number(text: str) -> int:
    """Return the whole number of an address; 0 for anything else."""
    return int(text) if re.fullmatch(rf"-?\d{{1,{_DIGITS}}}", text, re.ASCII) else 0


def _run_path(run_id: str) -> str:
    return f"/run?id={quote(run_id)}"


def _own_path(path: str) -> str:
    """Return a path of this console; the first page for any other address."""
    # A browser takes `//host` and `/\host` for another site.
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


def _page_before(given: Mapping[str, str], done: str) -> Response:
    path, _, place = _own_path(given.get("back", "")).partition("#")
    return RedirectResponse(f"{path}{'&' if '?' in path else '?'}done={quote(done)}{place and f'#{place}'}", 303)
