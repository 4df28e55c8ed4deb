"""The console as an ASGI application."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kairo_team._util.terminal import clean
from kairo_team.errors import KairoError
from kairo_team.views.text import clock
from kairo_team.web_console.access import Guarded
from kairo_team.web_console.pages import Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from kairo_team.web_console.access import Access
    from kairo_team.web_console.sources import Source

_HERE: Final = Path(__file__).parent


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
            Route("/questions", pages.questions),
            Route("/questions/stream", pages.questions_stream),
            Route("/questions/subject", pages.subject),
            Route("/questions/answer", pages.answer, methods=["POST"]),
            Route("/run", pages.run),
            Route("/run/stream", pages.run_stream),
            Route("/run/cancel", pages.cancel, methods=["POST"]),
            Route("/run/steer", pages.steer, methods=["POST"]),
            Route("/run/top-up", pages.top_up, methods=["POST"]),
            Route("/run/cancel-task", pages.cancel_task, methods=["POST"]),
            Route("/compare", pages.compare),
            Route("/name", pages.name, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        exception_handlers={KairoError: pages.refuse, ValueError: pages.refuse, HTTPException: pages.refuse},
    )
    return Guarded(app, access)  # outermost, so that error pages get the headers too


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
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    made.filters |= {"moment": _moment, "clock": clock}
    return made


def _harmless(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(value: float | datetime) -> Markup:
    """Write a moment for people; the page's script adds how long ago it was."""
    at = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else value
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC")
