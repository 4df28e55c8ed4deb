"""`kairo serve`: a team behind an address, or over stdin and stdout."""

from __future__ import annotations

import json
import os
import secrets
import sys
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from kairo_team._util.database_url import has_password
from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.databases import DATABASE, DatabaseUrl, away_from_children, clustered, place_of
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.job import plain_log
from kairo_team.cli.journals import made
from kairo_team.cli.loading import importable, load_subject, read_team_spec
from kairo_team.cli.numbers import whole_number
from kairo_team.cli.options import (
    BehindProxyOption,
    BudgetOption,
    CoordinatorOption,
    DatabaseOption,
    EngineOption,
    FileJournalOption,
    HostOption,
    TeamFile,
    TlsCertOption,
    TlsKeyOption,
)
from kairo_team.cli.outputs import read_text
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.cli.sources import file_source, named_coordinator
from kairo_team.engine.work.runtime import Runtime, bind_runtime, runtime_of
from kairo_team.errors import KairoError
from kairo_team.serve.asgi import ServedTeam, asgi, check_extra, describe, make_rules
from kairo_team.web_console.address import Address

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from kairo_team.cli.loading import Spec
    from kairo_team.cluster.delivery import EngineName
    from kairo_team.team import Team

KEYS: Final = "KAIRO_SERVE_KEYS"
_PORT: Final = 8710


class McpWay(StrEnum):
    """How the MCP server is reached."""

    STDIO = "stdio"
    HTTP = "http"


class McpClient(StrEnum):
    """A program that starts MCP servers from its configuration."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CODEX = "codex"
    CURSOR = "cursor"
    GEMINI_CLI = "gemini-cli"
    VS_CODE = "vs-code"


_PLACES: Final = {
    McpClient.CLAUDE_CODE: ".mcp.json in the folder of the project",
    McpClient.CLAUDE_DESKTOP: "claude_desktop_config.json, which its settings for developers open",
    McpClient.CODEX: "~/.codex/config.toml",
    McpClient.CURSOR: "~/.cursor/mcp.json, or .cursor/mcp.json in the folder of the project",
    McpClient.GEMINI_CLI: "~/.gemini/settings.json",
    McpClient.VS_CODE: ".vscode/mcp.json in the folder of the project",
}
"""Where each client has its configuration."""

serve_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@serve_app.command(epilog=list_exit_codes("ended by Ctrl-C, or by the client over stdio"))
def serve(
    file: TeamFile,
    *,
    mcp: Annotated[
        McpWay | None,
        typer.Option(
            help="Serve an MCP tool, at /mcp or over stdin and stdout. Without any interface named: all, over HTTP."
        ),
    ] = None,
    openai: Annotated[
        bool, typer.Option("--openai", help="Serve the team as a model of OpenAI's interface, below /v1.")
    ] = False,
    a2a: Annotated[bool, typer.Option("--a2a", help="Serve the team as an agent of A2A, at /a2a.")] = False,
    ag_ui: Annotated[bool, typer.Option("--ag-ui", help="Serve the team to frontends by AG-UI, at /ag-ui.")] = False,
    budget: BudgetOption = None,
    key_budget: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="What the runs of one key may spend together, such as tokens=1000000."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"The keys: a name and a key on each line; default: {KEYS} has such lines, else a new key is printed.",
        ),
    ] = None,
    coordinator: CoordinatorOption = None,
    journal: FileJournalOption = None,
    database: DatabaseOption = None,
    engine: EngineOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, whole_number("Its port; 0: a free one.", 0, 65_535)] = _PORT,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    behind_proxy: BehindProxyOption = False,
    name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A host name that clients use; may be repeated.")
    ] = None,
    print_config: Annotated[
        McpClient | None,
        typer.Option(metavar="CLIENT", help=f"Print the configuration for an MCP client: {', '.join(McpClient)}."),
    ] = None,
) -> int:
    """Serve a team by MCP, OpenAI's interface, A2A and AG-UI, each run under a budget.

    A run needs a limit of tokens or dollars: --budget, or the file's own. With a journal, a request's header
    Idempotency-Key names its run, which continues when it is requested again.
    """
    over_stdio = mcp is McpWay.STDIO
    others = {"--openai": openai, "--a2a": a2a, "--ag-ui": ag_ui}
    if over_stdio and (extra := [name for name, on in others.items() if on]):
        sentence = f"--mcp stdio is for one client, without an address: leave {extra[0]} out, or take --mcp http"
        raise Refusal(sentence)
    if print_config is not None and not over_stdio:
        raise Refusal("--print-config is about a program that starts the team: give --mcp stdio too")
    named = database or os.environ.get(DATABASE)
    if print_config is not None:
        _check_shown(named)
    with ExitStack() as stack:
        if over_stdio:  # stdout is the client's
            stack.enter_context(redirect_stdout(sys.stderr))
        spec = read_team_spec(file)
        stack.enter_context(importable(spec.folder))
        with refusing(KairoError, OSError):
            check_extra("kairo serve")
            team, config, plan = load_subject(spec)
            given: dict[str, Any] = {
                "config": replace(config, budget=limited(config.budget, budget)),
                "key_budget": None if key_budget is None else limited(Budget(), key_budget, "--key-budget"),
                "plan": plan,
                "coordinator": named_coordinator(coordinator),
            }
            source = file_source(file, None, None, coordinator)
            runtime = stack.enter_context(_recording(team, journal, database, engine, source))
            team, given["runtime"] = replace(team, runtime=None), runtime
            stack.enter_context(away_from_children())
            stack.enter_context(plain_log())
            if print_config is not None:
                make_rules(team, **given)
                options = {"--budget": budget, "--coordinator": coordinator, "--engine": engine}
                place = {"--journal": journal and Path(journal).resolve(), "--database": named}
                _print_config(print_config, team, spec, {**options, **place})
                return 0
            if over_stdio:
                _serve_stdio(team, given)
                return 0
            known, is_new = _keys(keys)
            address = Address(host, port, tls_cert, tls_key, behind_proxy, tuple(name or ()), what="the served team")
            every = mcp is None and not any(others.values())
            app = asgi(
                team,
                keys=known,
                mcp=every or mcp is not None,
                openai=every or openai,
                a2a=every or a2a,
                ag_ui=None if every else ag_ui,
                names=sorted(address.known_names),
                **given,
            )
            _serve_http(app, address, team.name, known["caller"] if is_new else None)
    return 0


@contextmanager
def _recording(
    team: Team,
    journal: str | None,
    database: str | None,
    engine: EngineName | None,
    source: Mapping[str, str],
) -> Generator[Runtime]:
    """Give the team's runtime the journal or the database that is named; a database's workers make the attempts."""
    base = runtime_of(bind_runtime(team))
    place = place_of(journal, database)
    if place is None:
        yield base
    elif isinstance(place, DatabaseUrl):
        with clustered(place, engine, source) as cluster:
            yield base.on(cluster.journal, cluster, base.subscribers)
    else:
        with made(place, source) as book:
            yield base.on(book, base.engine, base.subscribers)


def _keys(file: Path | None) -> tuple[Mapping[str, str], bool]:
    """Return the keys, and whether they were made here; members and their programs do not see the variable."""
    from kairo_team.serve.guard import read_keys

    text = os.environ.pop(KEYS, None)
    if file is not None:
        advice = "give a file with a name and a key on each line"
        return read_keys(read_text("--keys", file, advice), str(file)), False
    if text is not None:
        return read_keys(text, KEYS), False
    return {"caller": secrets.token_urlsafe(32)}, True


def _check_shown(database: str | None) -> None:
    """Raise `Refusal` for a database that an entry of a configuration cannot name."""
    if database is None or database.startswith("file:"):
        return
    if database.startswith("env:") or has_password(database):
        raise Refusal(
            "a client starts the team without the variables of this terminal, and its configuration is not a place for "
            "a password: give --database file:PATH, a file that has the URL"
        )


def _print_config(client: McpClient, team: Team, spec: Spec, options: Mapping[str, object]) -> None:
    """Print an entry that starts the team in a client, and on stderr where to put it."""
    from kairo_team.serve.mcp_server import tool_name

    file = str(spec.file.resolve()) if spec.module is None else spec.module
    arguments = ["-m", "kairo_team", "serve", file if spec.team is None else f"{file}:{spec.team}", "--mcp", "stdio"]
    for option, value in options.items():
        arguments += [] if value is None else [option, str(value)]
    name, entry = tool_name(team.name), {"command": sys.executable, "args": arguments}
    if client is McpClient.CODEX:
        # A string of JSON is one of TOML, and so is a list of strings.
        lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
        text = "\n".join([f"[mcp_servers.{name}]", *lines])
    else:
        kind = {"type": "stdio"} if client in (McpClient.CLAUDE_CODE, McpClient.VS_CODE) else {}
        servers = "servers" if client is McpClient.VS_CODE else "mcpServers"
        text = json.dumps({servers: {name: {**kind, **entry}}}, indent=2)
    print(text, file=sys.__stdout__)
    print(f"kairo: this belongs in {_PLACES[client]}", file=sys.stderr)


def _serve_stdio(team: Team, given: Mapping[str, Any]) -> None:
    from kairo_team.serve.asked import Served
    from kairo_team.serve.mcp_server import serve_stdio

    served = Served(make_rules(team, **given))
    with redirect_stdout(sys.__stdout__):  # the SDK keeps what else is printed away from the client
        anyio.run(serve_stdio, served, describe(team))


def _serve_http(app: ServedTeam, address: Address, team: str, new_key: str | None) -> None:
    """Print where the team is, and serve until Ctrl-C."""
    from kairo_team.serve.serving import serve_http

    def ready(port: int) -> None:
        place = address.shown(port)
        *before, last = app.places
        listed = f"{', '.join(before)} and {last}" if before else last
        print(f"Team {team!r} is served at {place}: {listed}. Ctrl-C ends it.", flush=True)
        if new_key is not None:
            print(f"The key, made for this start: {new_key}", flush=True)

    try:
        serve_http(app, address, ready)
    except KeyboardInterrupt:
        return
