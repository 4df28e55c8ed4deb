"""The server of the console, in a thread of a program or as a command."""

from __future__ import annotations

import getpass
import threading
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import uvicorn
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kairo_team._util.terminal import clean
from kairo_team.errors import KairoError, Misuse
from kairo_team.views.rendered import rendered
from kairo_team.views.report_html import asset
from kairo_team.views.text import clock
from kairo_team.web_console.access import Access, Guarded
from kairo_team.web_console.pages import Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from kairo_team.web_console.address import Address
    from kairo_team.web_console.sources import Source

_HERE: Final = Path(__file__).parent
_SHARED: Final = {"parts.css": "text/css", "parts.js": "text/javascript"}
"""The style and the script that pages share with reports, and their media types."""


def make_app(
    source: Source, access: Access, *, person: str | None = None, is_closing: Callable[[], bool] = lambda: False
) -> ASGIApp:
    """Return the console of a source of runs; `person` acts where a browser gave no name (None: the user).

    Streams of open pages end when the console `is_closing`.
    """
    pages = Pages(source, access, templates(), _user() if person is None else person, is_closing)
    app = Starlette(
        routes=[
            Route("/", pages.runs),
            Route("/stream", pages.runs_stream),
            Route("/cancel", pages.cancel_runs, methods=["POST"]),
            Route("/questions", pages.questions),
            Route("/questions/stream", pages.questions_stream),
            Route("/questions/subject", pages.subject),
            Route("/questions/answer", pages.answer, methods=["POST"]),
            Route("/run", pages.run),
            Route("/run/task", pages.task),
            Route("/run/report", pages.report),
            Route("/run/output", pages.output),
            Route("/run/stream", pages.run_stream),
            Route("/run/file", pages.file),
            Route("/run/cancel", pages.cancel, methods=["POST"]),
            Route("/run/steer", pages.steer, methods=["POST"]),
            Route("/run/top-up", pages.top_up, methods=["POST"]),
            Route("/run/fork", pages.fork, methods=["POST"]),
            Route("/run/cancel-task", pages.cancel_task, methods=["POST"]),
            Route("/compare", pages.compare),
            Route("/name", pages.name, methods=["POST"]),
            *(Route(f"/static/{name}", _shared) for name in _SHARED),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        exception_handlers={KairoError: pages.refuse, ValueError: pages.refuse, HTTPException: pages.refuse},
    )
    return Guarded(app, access)  # outermost, so that error pages get the headers too


def _shared(request: Request) -> Response:
    """Return a file that pages share with reports."""
    name = request.url.path.rpartition("/")[2]
    return Response(asset(name), media_type=_SHARED[name])


def _user() -> str:
    """Return the name of the user of this process; "" if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@cache
def templates() -> Environment:
    """Return the templates: all values are escaped, and control and bidi characters are replaced."""
    made = Environment(
        # The templates of reports too: pages show tasks with the same macros.
        loader=ChoiceLoader(
            [FileSystemLoader(_HERE / "templates"), PackageLoader("kairo_team.views", "report_assets")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    filters: dict[str, Any] = made.filters
    filters.update(moment=_moment, clock=clock, rendered=rendered)
    return made


def _harmless(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(value: float | datetime) -> Markup:
    """Write a moment for people; the page's script adds how long ago it was."""
    at = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else value
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC")


class ConsoleServer:
    """A console that runs in a thread of its own, from `start` to `close`."""

    def __init__(
        self, source: Source, address: Address, *, token: str | None = None, person: str | None = None
    ) -> None:
        """Take the runs to show and the address; `token` and `person` are as in `kairo_team.console`."""
        self.access = Access(address.known_names, token=token, secure=address.secure)
        app = make_app(source, self.access, person=person, is_closing=lambda: self._server.should_exit)
        self._server = uvicorn.Server(
            uvicorn.Config(app, timeout_graceful_shutdown=1, lifespan="off", **address.server_options())
        )
        self._source = source
        self._address = address
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that the console listens on, once it has started."""
        sockets = [one for server in self._server.servers for one in server.sockets]
        return int(sockets[0].getsockname()[1])

    @property
    def link(self) -> str:
        """The address that lets a browser in; a person who has it can answer questions and end runs."""
        return f"{self._address.shown(self.port)}/?token={self.access.token}"

    def start(self) -> Self:
        """Begin to serve; `Misuse` if the address is taken or cannot be used."""
        thread = threading.Thread(target=self._serve, name="kairo-console", daemon=True)
        thread.start()
        self._thread = thread
        # uvicorn calls nothing when it has started, so it is asked again and again.
        while not self._server.started:
            thread.join(0.01)
            if not thread.is_alive():
                self._source.close()
                config = self._server.config
                raise Misuse(f"the console cannot listen on {config.host}, port {config.port}: take another port")
        return self

    def _serve(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # how uvicorn says that it could not start; it has logged why
            return

    def wait(self) -> None:
        """Wait for the end of the console; a signal interrupts the wait."""
        while self._thread is not None and self._thread.is_alive():
            time.sleep(0.5)  # in Python 3.11 a thread whose `join` a signal interrupts counts as ended

    def close(self) -> None:
        """Stop the console; open pages show it. Kept runs without a journal are gone."""
        self._server.should_exit = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._source.close()

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
