"""`asgi`: a team as an ASGI app."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_call
from kairo_team.contracts import TeamCoordinator
from kairo_team.engine.work.runtime import bind_runtime
from kairo_team.errors import MissingExtra, Misuse
from kairo_team.plugins import resolve
from kairo_team.serve.asked import MOST_RUNS, Rules, Served
from kairo_team.team import Team, TeamConfig

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kairo_team.budget import Budget
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.serve.guard import Keys
    from kairo_team.serve.mcp_server import McpOverHttp
    from kairo_team.tasks import TaskGraph

_NEEDS: Final = ("mcp", "starlette", "uvicorn")


def check_extra(what: str) -> None:
    """Raise `MissingExtra` without the extra `serve`."""
    if any(find_spec(name) is None for name in _NEEDS):
        raise MissingExtra(what, "serve")


def make_rules(
    team: Team,
    *,
    config: TeamConfig | None = None,
    budget: Budget | None = None,
    key_budget: Budget | None = None,
    plan: TaskGraph | None = None,
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
    most_runs: int = MOST_RUNS,
) -> Rules:
    """Return the rules of a served team; the arguments are as in `asgi`."""
    if not isinstance(team, Team):
        raise Misuse(f"a kt.Team is served, not {team!r:.80}")
    given = config or TeamConfig()
    return Rules(
        team=bind_runtime(team, runtime),
        config=given if budget is None else replace(given, budget=budget),
        plan=plan,
        coordinator=None if coordinator is None else resolve("coordinator", "coordinator", coordinator),
        key_budget=key_budget,
        most_runs=most_runs,
    )


def describe(team: Team) -> str:
    """Describe a team for a client."""
    members = ", ".join(member.id for member in team.members)
    return f"Have the team {team.name!r} ({members}) work on a goal, and return its result."


@known_call
def asgi(
    team: Team,
    *,
    keys: Mapping[str, str],
    budget: Budget | None = None,
    key_budget: Budget | None = None,
    mcp: bool = True,
    openai: bool = True,
    a2a: bool = True,
    ag_ui: bool | None = None,
    config: TeamConfig | None = None,
    plan: TaskGraph | None = None,
    coordinator: TeamCoordinator | str | None = None,
    runtime: Runtime | None = None,
    description: str | None = None,
    names: Sequence[str] = (),
    most_runs: int = MOST_RUNS,
) -> ServedTeam:
    """Make an ASGI app that serves a team by four interfaces.

    They are MCP at `/mcp`, OpenAI's chat completions and Responses below `/v1`, A2A at `/a2a` and AG-UI at `/ag-ui`;
    the last one where the extra `ag-ui` is installed, if `ag_ui` is None.

    `keys` are the keys of callers by their names, of at least 16 characters; each request needs one as a bearer token.
    Every run has `budget`, which replaces the budget of `config` and has to limit tokens or dollars. The runs of one
    key together have `key_budget`, and at most `most_runs` of them run at once; with a journal the budget is its
    account `serve/NAME`, otherwise it counts from the start of the server. `plan`, `config`, `coordinator` and
    `runtime` are as in `kairo_team.run`. `description` is what clients show of MCP's tool and A2A's agent. `names` are
    the host names that clients may use; without any, every name is taken.

    With a journal in the runtime, a request's header `Idempotency-Key` names its run: asked again, the same run
    continues, or its result is returned. A server such as uvicorn runs the app's lifespan; another app that mounts this
    one has to, with `async with served.lifespan():`. Raises `MissingExtra` without the extra `serve`, and `Misuse` for
    keys or budgets that are not safe.

    >>> app = kt.asgi(team, keys={"ada": os.environ["ADA_KEY"]}, budget=kt.Budget(tokens=20_000))
    """
    check_extra("kt.asgi")
    from kairo_team.serve.guard import Keys

    has_ag_ui = find_spec("ag_ui") is not None
    if ag_ui and not has_ag_ui:
        raise MissingExtra("AG-UI", "ag-ui")
    ag_ui = has_ag_ui if ag_ui is None else ag_ui
    if not (mcp or openai or a2a or ag_ui):
        raise Misuse("kt.asgi serves at least one of mcp, openai, a2a and ag_ui")
    rules = make_rules(
        team,
        config=config,
        budget=budget,
        key_budget=key_budget,
        plan=plan,
        coordinator=coordinator,
        runtime=runtime,
        most_runs=most_runs,
    )
    about = describe(team) if description is None else description
    chosen = {"openai": openai, "mcp": mcp, "a2a": a2a, "ag_ui": ag_ui}
    return ServedTeam(Served(rules, keys), Keys(keys), names, about, {one for one, on in chosen.items() if on})


class ServedTeam:
    """A team as an ASGI app, made by `asgi`."""

    def __init__(
        self, served: Served, keys: Keys, names: Sequence[str], description: str, interfaces: Collection[str]
    ) -> None:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route

        from kairo_team.models.address.parts import Refused
        from kairo_team.serve.guard import Guard, refusal

        self._served = served
        self._mcp: McpOverHttp | None = None
        routes: list[Route] = []
        self.places: list[str] = []
        """The served interfaces and their places, for people."""
        if "openai" in interfaces:
            from kairo_team.serve.openai_routes import openai_routes

            routes += openai_routes(served)
            self.places.append("OpenAI's interface below /v1")
        if "mcp" in interfaces:
            from kairo_team.serve.mcp_server import McpOverHttp

            self._mcp = McpOverHttp(served, description)
            routes.append(Route("/mcp", self._mcp))
            self.places.append("MCP at /mcp")
        if "a2a" in interfaces:
            from kairo_team.serve.a2a_routes import a2a_routes

            routes += a2a_routes(served, description)
            self.places.append("A2A at /a2a")
        if "ag_ui" in interfaces:
            from kairo_team.serve.ag_ui_routes import ag_ui_routes

            routes += ag_ui_routes(served)
            self.places.append("AG-UI at /ag-ui")
        paths = ", ".join(sorted(route.path for route in routes))

        async def refuse(request: Any, error: Exception) -> Any:
            assert isinstance(error, HTTPException)
            sentence = f"there is no {request.method} {request.url.path!r} here, only {paths}"
            return refusal(Refused(sentence, error.status_code, "not_found_error"))

        app = Starlette(
            routes=routes, exception_handlers={HTTPException: refuse}, lifespan=lambda _app: self.lifespan()
        )
        self._app = Guard(app, keys, names)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Take requests while the block runs; servers do so by themselves."""
        # First in, last out: the MCP server answers with its callers.
        async with self._served.open(), nullcontext() if self._mcp is None else self._mcp.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)
