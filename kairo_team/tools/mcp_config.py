"""`load_mcp`: MCP servers from a file in the `mcpServers` format that MCP clients read."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kairo_team._util.mistakes import did_you_mean
from kairo_team._util.narrowing import is_list, is_several
from kairo_team.data.files import Data, Place, read_data
from kairo_team.data.mistakes import Mistake, sentences, unknown_key
from kairo_team.errors import known
from kairo_team.tools.mcp import McpServer

Source = str | os.PathLike[str] | Mapping[str, Any]
Make = Callable[..., McpServer]
"""Makes one server, with the options of `McpServer`."""

_TOP: Final = ("mcpServers", "$schema")
_BOTH: Final = ("type", "disabled", "description")
_STDIO: Final = ("command", "args", "env", "cwd")
_HTTP: Final = ("url", "headers")
# Clients do not agree on one word.
_STREAMED: Final = ("http", "streamable-http", "streamableHttp")
"""How clients write streamable HTTP."""
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}?")


def load_mcp(source: Source, *, allow: Iterable[str] | None = None, **options: Any) -> list[McpServer]:
    """Read MCP servers from a .json file in the `mcpServers` format of MCP clients, or from a dict of that form.

    A server has `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`; both may have `disabled` and
    `description`. `${NAME}` and `${NAME:-default}` in these strings are read from the environment. A relative `cwd`
    begins at the file's folder.

    `allow` lists the tools that may be used, as `server/tool`, with globs in the part behind the slash: `files/read_*`,
    `search/*`. Servers without an entry are left out and never started. With None all servers are returned, and the
    team's `McpPolicy` decides. `options` are fields of `McpServer` for every server, such as `request_timeout`.

    Nothing is started or connected. Raises `ValueError` with a line for each mistake: the file, the line, and what is
    allowed; `OSError` for a file that cannot be read.

    >>> servers = {"search": {"url": "https://search.example/mcp"}, "shell": {"command": "mcp-shell"}}
    >>> kt.load_mcp({"mcpServers": servers}, allow=["search/query"])
    [<McpServer 'search' at https://search.example/mcp>]
    """
    name, data, folder = _data_of(source)
    reading = _Reading(folder, [])
    listed = reading.servers(data.value)
    if reading.mistakes:
        raise ValueError("\n".join(sentences(reading.mistakes, name, data.line_of)))
    allowed = None if allow is None else _allowed(name, allow, listed)
    made: list[McpServer] = []
    for server, make in listed.items():
        if make is None or (allowed is not None and server not in allowed):
            continue
        chosen = options if allowed is None else {**options, "allow": allowed[server]}
        made.append(make(**chosen))
    return made


class _Reading(NamedTuple):
    """Reads the values of one file and collects its mistakes; no message contains a value of the environment."""

    folder: Path
    mistakes: list[Mistake]

    def servers(self, value: Any) -> dict[str, Make | None]:
        """Return what makes each server, by name; None for a disabled one."""
        if not self._is_mapping(value, (), "the file"):
            return {}
        self._refuse_unknown(value, (), _TOP)
        if "mcpServers" not in value:
            self._note((), "has no 'mcpServers': put the servers under this key, by name")
            return {}
        servers = value["mcpServers"]
        if not self._is_mapping(servers, ("mcpServers",), "it"):
            return {}
        return {name: self._server(name, one, ("mcpServers", name)) for name, one in servers.items()}

    def _server(self, name: str, value: Any, place: Place) -> Make | None:
        before = len(self.mistakes)
        if not self._is_mapping(value, place, "a server"):
            return None
        kind = value.get("type")
        known_kinds = ("stdio", *_STREAMED)
        if kind == "sse":
            self._note(place, "is 'sse', which is not supported: give the server's streamable HTTP address", "type")
        elif kind is not None and kind not in known_kinds:
            self._note(place, f"must be one of {', '.join(map(repr, known_kinds))}, not {kind!r:.80}", "type")
        if ("command" in value) == ("url" in value):
            both = "command" in value
            self._note(place, f"needs a command or a url{', not both' if both else ''}: {_FORMS}")
            return None
        is_http = "url" in value
        if kind in known_kinds and (kind != "stdio") is not is_http:
            self._note(place, f"{kind!r} does not fit a server with a {'url' if is_http else 'command'}", "type")
        self._refuse_unknown(value, place, (*(_HTTP if is_http else _STDIO), *_BOTH))
        disabled = value.get("disabled", False)
        if not isinstance(disabled, bool):
            self._note(place, f"must be true or false, not {disabled!r:.80}", "disabled")
        if disabled is True:
            return None  # its variables need not be set
        make = self._http(name, value, place) if is_http else self._stdio(name, value, place)
        if len(self.mistakes) == before:
            try:
                make()  # what a server's own checks refuse is reported with its line
            except ValueError as error:
                self._note(place, f"is not valid: {error}")
        return make

    def _stdio(self, name: str, value: Mapping[str, Any], place: Place) -> Make:
        command = self._text(value["command"], (*place, "command"))
        given = value.get("args", [])
        if not is_list(given):
            self._note((*place, "args"), f"must be a list of strings, not {type(given).__name__}")
            given = []
        args = [self._text(one, (*place, "args", n)) for n, one in enumerate(given)]
        # A program's path may have spaces, so the words are a mistake only if no such program is found.
        if " " in command.strip() and shutil.which(command) is None:
            first, *rest = str(value["command"]).split()
            self._note(
                (*place, "command"),
                f'is one program and has no arguments: write "command": "{first}", "args": {json.dumps(rest)}',
            )
        env = self._texts(value.get("env", {}), (*place, "env"))
        cwd = self._text(value["cwd"], (*place, "cwd")) if "cwd" in value else None
        folder = None if cwd is None else self.folder / Path(cwd).expanduser()
        # A `Path` says that the spaces are part of the name.
        program = Path(command) if " " in command else command

        def make(**options: Any) -> McpServer:
            return McpServer.stdio(name, program, *args, env=env, cwd=folder, **options)

        return make

    def _http(self, name: str, value: Mapping[str, Any], place: Place) -> Make:
        url = self._text(value["url"], (*place, "url"))
        headers = self._texts(value.get("headers", {}), (*place, "headers"))

        def make(**options: Any) -> McpServer:
            return McpServer.http(name, url, headers=headers, **options)

        return make

    def _texts(self, value: Any, place: Place) -> dict[str, str]:
        if not self._is_mapping(value, place, "it"):
            return {}
        return {name: self._text(one, (*place, name)) for name, one in value.items()}

    def _text(self, value: Any, place: Place) -> str:
        """Return a string with its variables replaced."""
        if not isinstance(value, str):
            self._note(place, f"must be a string, not {type(value).__name__}")
            return ""
        for written in _PLACEHOLDER.findall(value):
            found = _VARIABLE.fullmatch(written)
            if found is None:
                self._note(place, f"has {written:.80}, which is not known; write ${{NAME}} or ${{NAME:-default}}")
            elif found[1] not in os.environ and found[2] is None:
                self._note(
                    place,
                    f"needs the environment variable {found[1]!r}, which is not set: set it, or write "
                    f"${{{found[1]}:-default}}",
                )
        return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[2] or ""), value)

    def _is_mapping(self, value: Any, place: Place, what: str) -> bool:
        if not isinstance(value, Mapping):
            self._note(place, f"{what} must be a mapping, not {type(value).__name__}".removeprefix("it "))
            return False
        return True

    def _refuse_unknown(self, value: Mapping[str, Any], place: Place, takes: tuple[str, ...]) -> None:
        for key in value:
            if key not in takes:
                self.mistakes.append(Mistake(place, unknown_key(str(key), takes), key))

    def _note(self, place: Place, says: str, key: str | None = None) -> None:
        self.mistakes.append(Mistake(place if key is None else (*place, key), says))


_FORMS: Final = '{"command": "npx", "args": [...]} or {"url": "https://..."}'


def _data_of(source: Source) -> tuple[str, Data, Path]:
    """Return the data's name in messages, the data, and the folder at which a relative `cwd` begins."""
    if isinstance(source, Mapping):
        return "the MCP servers", Data(source), Path.cwd()
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"load_mcp takes the path of a .json file or a dict, not {source!r:.80}")
    file = Path(source).expanduser()
    if file.suffix.lower() != ".json":
        raise ValueError(f"{file}: load_mcp takes a .json file, not one with the suffix {file.suffix!r}")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}: give the path of a file with mcpServers")
    return str(file), read_data(file), file.resolve().parent


def _allowed(name: str, allow: Any, servers: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the allowed names and globs by server."""
    if not is_several(allow):
        raise ValueError(f"allow must be a list such as ['files/read_*'], not {allow!r:.80}")
    found: dict[str, list[str]] = {}
    for entry in allow:
        server, slash, tool = entry.partition("/") if isinstance(entry, str) else ("", "", "")
        if server in servers and slash and tool.strip():
            found.setdefault(server, []).append(tool)
            continue
        if server in servers:
            raise ValueError(f"allow: {entry!r} names no tool: write '{server}/*' for all tools of this server")
        hint = did_you_mean(server, servers)
        raise ValueError(
            f"allow: {entry!r:.80} must be 'server/tool' or a glob such as 'server/read_*'; {hint}the servers "
            f"of {name} are {known(servers)}"
        )
    if not found:
        raise ValueError("allow is empty: name the tools that may be used, such as ['files/read_*']")
    return found
