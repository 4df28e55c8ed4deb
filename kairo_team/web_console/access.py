"""Who may use the console: a secret token, a strict cookie, known host names, and headers that forbid scripts."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST_TOKEN: Final = 16
"""Fewest characters of a given token."""
FAILURES: Final = 10
"""Wrong tokens from one address in `WINDOW` seconds after which it is refused until some of them are older."""
WINDOW: Final = 60.0
_ADDRESSES: Final = 10_000
"""Most addresses whose failures are remembered."""
MAX_BODY: Final = 64_000
"""Most bytes of a form."""

_SIGN_IN: Final = Markup(
    '<form method="get" action="/"><label for="token">Token</label> '
    '<input id="token" name="token" type="password" autocomplete="off" required> <button>Sign in</button></form>'
)
_PAGE: Final = Markup(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<title>{title} - kairo console</title><link rel="icon" href="/static/icon.svg">'
    '<link rel="stylesheet" href="/static/parts.css">'
    '<link rel="stylesheet" href="/static/console.css"></head>\n'
    '<body><main><h1>{title}</h1><p role="alert" class="warning">{sentence}</p>{form}</main></body></html>\n'
)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+)(?::\d+)?")

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response. Without `same-origin` a form's `Origin` would be missing."""
FILE_POLICY: Final = "default-src 'none'; sandbox; frame-ancestors 'none'"
"""The policy of a file that a member made, in place of the console's: nothing in it may run, or load anything."""


REPORT_POLICY: Final = "{policy}; sandbox allow-scripts allow-popups allow-downloads; frame-ancestors 'none'"
"""The policy of a report: its own, and an origin of its own, from which nothing of the console can be read."""
_POLICY: Final = "content-security-policy"
_OWN_POLICY: Final = "sandbox"
"""What the policies of these pages have, and the console's has not."""


class Failures:
    """Wrong secrets, by the address that sent them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def is_limited(self, address: str) -> bool:
        """Return whether an address is refused, whatever it sends."""
        failures = self._failures.get(address, deque())
        while failures and failures[0] <= self._clock() - WINDOW:
            failures.popleft()
        return len(failures) >= FAILURES

    def note(self, address: str) -> None:
        """Count a wrong secret."""
        self._failures.setdefault(address, deque(maxlen=FAILURES)).append(self._clock())
        self._failures.move_to_end(address)
        if len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)


class Access:
    """The secrets of one console, and the failed attempts to guess them."""

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        token: str | None = None,
        secure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hosts` are the names that browsers may use; with `secure` cookies are sent over HTTPS alone.

        Raises `ValueError` for a `token` of fewer than 16 characters; None makes one.
        """
        if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
            raise ValueError(f"the console's token needs at least {LEAST_TOKEN} characters of printable ASCII")
        self.token = token or secrets.token_urlsafe(32)
        self.hosts = frozenset(host.lower() for host in hosts)
        self.secure = secure
        self.cookie = f"kairo-{self._derived('name')[:8]}"
        """The cookie's name, different for each console: ports of one machine share the browser's cookies."""
        self.session = self._derived("session")
        self.form_key = self._derived("form")
        """The key that every form that changes something must send."""
        self._failures = Failures(clock)

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    def set_cookie(self, response: Response) -> None:
        """Give the browser its session, which no script can read and no other site can use."""
        response.set_cookie(self.cookie, self.session, httponly=True, samesite="strict", secure=self.secure)

    def refusal(self, request: Request) -> Response | None:
        """Return the refusal of a request; None admits it."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return _refusal(f"This console is called {names}: open it by one of these names.", 421)
        if request.method not in ("GET", "HEAD") and not _is_own_page(request, hosts[0]):
            return _refusal("Only a page of this console may change something.", 403)
        # The sign-in page needs the style sheet; static files hold no secret.
        return None if request.url.path.startswith("/static/") else self._refuse_stranger(request)

    def _refuse_stranger(self, request: Request) -> Response | None:
        given = request.cookies.get(self.cookie, "")
        if same(given, self.session):
            return None
        address = request.client.host if request.client else ""
        if self._failures.is_limited(address):
            refused = _refusal("Too many wrong tokens came from your address. Wait a minute.", 429)
            refused.headers["retry-after"] = str(int(WINDOW))
            return refused
        # No other page takes the token, so that no other address contains it.
        token = request.query_params.get("token", "") if request.url.path == "/" else ""
        if same(token, self.token):
            return None
        if given or token:
            self._failures.note(address)
        return _refusal("Open the link that the console printed when it started: it has the token.", 401)

    def is_entry(self, request: Request) -> bool:
        """Return whether a request brings the token of the printed link."""
        return same(request.query_params.get("token", ""), self.token)

    def is_own_form(self, fields: Mapping[str, str]) -> bool:
        """Return whether a form was made by this console."""
        return same(fields.get("form_key", ""), self.form_key)


class Guarded:
    """Answers refused requests in place of the console, and sets the headers of every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                own = _OWN_POLICY in headers.get("content-security-policy", "")
                headers.update({name: word for name, word in HEADERS.items() if not (own and name == _POLICY)})
            await send(message)

        await (self._access.refusal(Request(scope)) or self._app)(scope, receive, send_guarded)


def _refusal(sentence: str, status: int) -> Response:
    """Return the page of a refused request; it shows nothing of the runs."""
    signs_in = status == 401  # noqa: PLR2004 - what HTTP calls it
    title, form = ("Sign in", _SIGN_IN) if signs_in else ("Refused", "")
    return HTMLResponse(_PAGE.format(title=title, sentence=sentence, form=form), status)


def same(given: str, known: str) -> bool:
    """Return whether two secrets are equal."""
    # In constant time; a query that is not UTF-8 decodes to lone surrogates.
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without the port; "" if the header is malformed."""
    found = _HOST.fullmatch(host)
    return found[1].lower() if found else ""


def _is_own_page(request: Request, host: str) -> bool:
    """Return whether a page of this host made the request, or a program, which sends no such headers."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return all(urlsplit(origin).netloc == host for origin in request.headers.getlist("origin"))
