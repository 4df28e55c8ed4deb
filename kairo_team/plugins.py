"""Plug-ins by name: the built-in ones, and those that installed packages publish as entry points.

Each plug-in point has a group of entry points, such as `kairo_team.evaluators`. A package is imported only when one of
its plug-ins is requested: listing the names reads metadata alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team._util.frozen import EMPTY
from kairo_team._util.mistakes import did_you_mean
from kairo_team._util.plugin_shapes import check_agent, check_instance, check_plug_in
from kairo_team._util.terminal import clean
from kairo_team._util.version import version_of_library
from kairo_team.clauses import Promise, promise_of
from kairo_team.contracts import check_constraints, check_guardrails
from kairo_team.errors import known
from kairo_team.plugin_options import loose_paths

if TYPE_CHECKING:
    from importlib.metadata import Distribution

OURS: Final = "kairo-team"
"""The distribution of the built-in plug-ins."""
KITS: Final = "kairo_team.kits"
"""The group of entry points of test classes: each names the module with the kits that a package ships."""
_TARGET: Final = re.compile(r"\s*(?P<module>\w+(\.\w+)*)\s*:\s*(?P<attribute>\w+(\.\w+)*)\s*(\[.*\])?\s*")
_LONGEST: Final = 300
"""The most characters of an error's own text: a package writes it."""


class Kind(NamedTuple):
    """One plug-in point."""

    group: str
    """The group of entry points."""
    contract: str
    """The protocol, in the module `home`."""
    kit: str | None
    """The contract kit in `kairo_team.tck`; None without one."""
    what: str
    """The word for one plug-in, with its article."""
    built_in: Mapping[str, str]
    """`module:attribute` by name."""
    check: Callable[[str, Any], object]
    """Raises `ValueError`, whose sentence begins with the first argument, for an object of the wrong shape."""
    is_made: bool = True
    """Whether the published object makes a plug-in; False: it is the plug-in."""
    home: str = "kairo_team.contracts"
    """The module of the contract."""

    @property
    def word(self) -> str:
        """The word for one plug-in, without its article."""
        return self.what.partition(" ")[2]

    @property
    def promise(self) -> Promise | None:
        """The version and the stability of the contract; None for a tool, which has the library's own class."""
        return promise_of(getattr(import_module(self.home), self.contract, object))

    @property
    def mark(self) -> str:
        """The promise, as it is written after the contract's name: ` 1.5 (experimental)`; "" without one."""
        return f" {self.promise.version} ({self.promise.stability})" if self.promise else ""


class Plugin(NamedTuple):
    """One plug-in as its package publishes it, not imported."""

    kind: str
    name: str
    target: str
    """`module:attribute`."""
    distribution: str
    version: str
    problem: str | None = None
    """Why its name alone does not find it; None: it does."""

    @property
    def full_name(self) -> str:
        """The name that finds this plug-in and no other: `name@distribution`."""
        return f"{self.name}@{self.distribution}"

    def load(self) -> Any:
        """Import its package and return the published object; `ValueError` if that fails, whatever it raises."""
        owner = f"{kind_of(self.kind).word} {self.name!r}"
        match = _TARGET.fullmatch(self.target)
        if match is None:
            raise ValueError(
                f"{owner} cannot be loaded from {_source_of(self)}: an entry point is written 'module:attribute'"
            )
        try:
            return attrgetter(match["attribute"])(import_module(match["module"]))
        except (Exception, SystemExit) as error:
            raise ValueError(f"{owner} cannot be loaded from {_source_of(self)}: {_explain(error)}") from error


def _source_of(plugin: Plugin) -> str:
    return f"{plugin.target!r} ({plugin.distribution} {plugin.version or version_of_library()})"


def find(kind: str, name: str) -> Any:
    """Import the plug-in of that name and return the published object: the class or function that makes the plug-in.

    A tool is published itself. A built-in name stays built in. `name@distribution` names one of several packages that
    publish the same name; "_" counts as "-". Raises `ValueError` for an unknown kind or name, for a name that several
    packages publish, and for a package that cannot be imported.

    >>> from kairo_team import plugins
    >>> plugins.find("constraint", "timeout").__name__
    'Timeout'
    """
    target = _built_in_target(kind, name)
    built_in = None if target is None else Plugin(kind, name, target, OURS, version="")  # the version is slow to read
    return (built_in or locate(kind, name)).load()


def _built_in_target(kind: str, name: Any) -> str | None:
    """Return the target of the built-in plug-in of that name; None without one."""
    known_here = kind_of(kind).built_in
    return next((known_here[one] for one in known_here if isinstance(name, str) and _key(one) == _key(name)), None)


def make(kind: str, name: str, options: Mapping[str, Any] = EMPTY, *, also: Iterable[str] = ()) -> Any:
    """Make the plug-in of that name with its options, and check its shape.

    `also` are options that the caller takes itself; the error for an unknown option lists them. Raises what `find`
    raises, and `ValueError` for an unknown, missing or refused option, and for an object without the method of its
    protocol.

    >>> from kairo_team import plugins
    >>> plugins.make("constraint", "timeout", {"seconds": 5})
    Timeout(seconds=5)
    """
    return make_by(kind, f"{kind_of(kind).word} {name!r}", find(kind, name), options, also=also)


def make_by(kind: str, owner: str, found: Any, options: Mapping[str, Any] = EMPTY, *, also: Iterable[str] = ()) -> Any:
    """Make a plug-in by the object that a package publishes, or by code that is not published, and check its shape.

    Raises `ValueError`, whose sentence begins with `owner`, as `make` does.
    """
    point = kind_of(kind)
    if point.is_made:
        _check_maker(point, owner, found)
        check_options(owner, found, options, also)
        try:
            found = found(**options)
        except (Exception, SystemExit) as error:
            # A refusal in words needs no class.
            problem = clean(str(error)) if isinstance(error, TypeError | ValueError) else _explain(error)
            raise ValueError(f"{owner}: {problem}") from error
    elif options:
        raise ValueError(f"{owner}: it takes no options, and was given {known(map(str, options))}")
    point.check(owner, found)
    return found


def _check_maker(kind: Kind, owner: str, found: Any) -> None:
    if kind.contract == "Check" and _required_options(kind, found)[:1] == ["artifact"]:
        raise ValueError(
            f"{owner}: it takes the artifact, so it is the check; publish a function that returns the check"
        )


def examine(plugin: Plugin) -> str:
    """Load a plug-in and check its shape; return what could not be checked and what to look at, else "".

    A plug-in that needs no options is made. An option that is named like a path and not declared as one is noted.
    Raises `ValueError` for a plug-in that cannot be loaded, made or used.
    """
    kind, found = kind_of(plugin.kind), plugin.load()
    owner = f"{kind.word} {plugin.name!r}"
    _check_maker(kind, owner, found)
    takes_options = kind.is_made and callable(found)
    needed = _required_options(kind, found) if takes_options else []
    notes = [f"it needs {known(needed)}; its shape is checked when it is made"] if needed else []
    if not needed:
        make_by(plugin.kind, owner, found)
    loose = undeclared_paths(found) if takes_options else []
    notes += [f"{option!r} is named like a path: {_DECLARE}" for option in loose]
    return "; ".join(notes)


_DECLARE: Final = "declare it as str | os.PathLike[str], or as Annotated[str, ...] if it is not a path"


def undeclared_paths(maker: Callable[..., Any]) -> list[str]:
    """Return the options of a plug-in's maker that are named like paths, and whose types declare none.

    Data that is not trusted may not give them. `Annotated` is a declaration too: `Annotated[str, "a pattern"]` is not a
    path, whatever its option is called.

    >>> from kairo_team import plugins
    >>> plugins.undeclared_paths(lambda path: None)
    ['path']
    """
    return loose_paths(maker)


def _required_options(kind: Kind, maker: Any) -> list[str]:
    """Return the required options of a maker; `*phrases` of a check is one."""
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    if kind.contract == "Check":
        # Without any phrase the check has no use.
        several.remove(inspect.Parameter.VAR_POSITIONAL)
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return []
    return [one.name for one in parameters if one.default is one.empty and one.kind not in several]


def resolve(where: str, kind: str, given: Any) -> Any:
    """Return a plug-in given as an object, or by a name that is made without options, once its shape is checked.

    Raises `ValueError`, whose sentence begins with `where`, for an object of the wrong shape, and for a name as `make`
    does.

    >>> from kairo_team import plugins
    >>> type(plugins.resolve("coordinator", "coordinator", "board")).__name__
    'TaskDispatchCoordinator'
    """
    if not isinstance(given, str):
        kind_of(kind).check(where, given)
        return given
    try:
        return make(kind, given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def check_options(owner: str, maker: Any, options: Mapping[str, Any], also: Iterable[str] = ()) -> None:
    """Raise `ValueError`, whose sentence begins with `owner`, for an unknown or a missing option of a maker."""
    if not callable(maker):
        raise ValueError(f"{owner}: a class or function that makes it must be published, not {maker!r:.200}")
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        strange = [option for option in options if option not in signature.parameters]
        problem = f"there is no option {strange[0]!r}" if strange else str(error)
        has = known({*signature.parameters, *also})
        raise ValueError(f"{owner}: {problem}; its options are {has}") from None


def installed(kind: str | None = None) -> tuple[Plugin, ...]:
    """Return the plug-ins of a kind, or of all: the built-in ones, then the published ones by name. Imports nothing.

    A plug-in whose name is taken has a `problem`. Packages in `unreadable()` are left out.

    >>> from kairo_team import plugins
    >>> [one.name for one in plugins.installed("permission-guard")]
    ['rules', 'side-effects']
    """
    kinds = {name: one for name, one in KINDS.items() if kind in (None, name)} or {str(kind): kind_of(str(kind))}
    everything, _ = _published({one.group: name for name, one in kinds.items()})
    return tuple(
        plugin
        for name in kinds
        for plugin in (*_built_in(name), *_with_problems(name, [one for one in everything if one.kind == name]))
    )


def shipped_kits() -> tuple[Plugin, ...]:
    """Return the modules with test classes of contract kits that packages ship, as `target`. Imports nothing."""
    return tuple(sorted(_published({KITS: "kit"})[0]))


def unreadable() -> tuple[str, ...]:
    """Return one sentence for each installed package whose entry points cannot be read."""
    return _published({})[1]


def locate(kind: str, name: str) -> Plugin:
    """Return the plug-in that a name means, not imported; raises `ValueError` as `find` does."""
    if not isinstance(name, str):
        raise ValueError(f"{kind_of(kind).what} is named by a string, not {name!r:.200}")
    if _built_in_target(kind, name) is not None:  # without reading what is installed
        return next(one for one in _built_in(kind) if _key(one.name) == _key(name))
    there = installed(kind)
    named = _named(there, name)
    if len(named) == 1:
        return named[0]
    word = kind_of(kind).word
    if named and len({one.distribution for one in named}) == 1:
        where = " and ".join(repr(one.target) for one in named)
        raise ValueError(f"{named[0].distribution} publishes the {word} {name!r} twice, {where}: ask its authors")
    if named:
        ways = " or ".join(f"{one.full_name!r} ({one.target})" for one in named)
        raise ValueError(f"several packages publish the {word} {name!r}: write {ways}")
    names = sorted({one.name for one in there})
    hint = did_you_mean(name, names, 2)
    broken = "".join(f"; {one}" for one in unreadable())
    raise ValueError(f"there is no {word} {name!r:.200}; {hint}there are {known(names)}{broken}")


def published(kind: str, name: str) -> bool:
    """Return whether a package publishes a plug-in of that name, or full name; imports nothing."""
    return any(one.distribution != OURS for one in _named(installed(kind), name))


def _named(there: Sequence[Plugin], name: str) -> list[Plugin]:
    key = _key(name)
    return [one for one in there if _key(one.name) == key] or [one for one in there if _key(one.full_name) == key]


def _key(name: str) -> str:
    """Return the common form of equivalent names: `group_chat` is `group-chat`."""
    return name.replace("_", "-")


def kind_of(kind: str) -> Kind:
    """Return the plug-in point of that name; `ValueError` lists the existing ones."""
    try:
        return KINDS[kind]
    except (KeyError, TypeError):
        hint = did_you_mean(str(kind), KINDS)
        raise ValueError(f"there is no plug-in point {kind!r:.200}; {hint}there are {', '.join(KINDS)}") from None


def _built_in(kind: str) -> list[Plugin]:
    return [
        Plugin(kind, name, target, OURS, version_of_library())
        for name, target in sorted(kind_of(kind).built_in.items())
    ]


def _with_problems(kind: str, published: Sequence[Plugin]) -> Iterator[Plugin]:
    """Yield the published plug-ins of a kind, by name, with the problems that can be seen without importing them."""
    for one in sorted(published):
        others = [other for other in published if _key(other.name) == _key(one.name) and other is not one]
        if any(other.distribution == one.distribution for other in others):
            yield one._replace(problem=f"{one.distribution} publishes the name twice")
        elif _built_in_target(kind, one.name) is not None:
            yield one._replace(problem=f"the name is built in: write {one.full_name!r} for this one")
        elif others:
            same = known(other.full_name for other in others)
            yield one._replace(problem=f"{same} has the same name: write {one.full_name!r} for this one")
        elif _TARGET.fullmatch(one.target) is None:
            yield one._replace(problem="an entry point is written 'module:attribute'")
        else:
            yield one


def _published(groups: Mapping[str, str]) -> tuple[list[Plugin], tuple[str, ...]]:
    """Return the plug-ins that packages publish in these groups, and sentences on packages that cannot be read."""
    metadata: Any = import_module("importlib.metadata")  # slow to import, and rarely needed
    plugins: list[Plugin] = []
    unread: list[str] = []
    seen: set[str] = set()
    for distribution in cast("Iterable[Distribution]", metadata.distributions()):
        try:
            # The description of a package is slow to read, and few packages publish a plug-in.
            points = [point for point in distribution.entry_points if point.group in groups]
            if groups and not points:
                continue
            name = str(distribution.metadata["Name"])
            key = re.sub(r"[-_.]+", "-", name).lower()  # as package indexes compare names (PEP 503)
            # If a distribution is found twice on the path, the first one counts, as when Python imports.
            if key in seen or metadata.distribution(name).locate_file("") != distribution.locate_file(""):
                continue
            seen.add(key)
            version = str(distribution.version)
            plugins += [Plugin(groups[point.group], point.name, point.value, name, version) for point in points]
        except Exception as error:  # noqa: BLE001 - the files of a package may hold anything
            name = "?"
            with suppress(Exception):
                name = str(distribution.metadata["Name"])
            unread.append(f"the entry points of {name!r} cannot be read: {_explain(error)}")
    return plugins, tuple(unread)


def _explain(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it ended the program (SystemExit) when it was imported or called"
    try:
        text = clean(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001 - it is code of a package
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text:.{_LONGEST}}" if text else type(error).__name__


def _check_methods(what: str, *methods: tuple[str, ...]) -> Callable[[str, Any], object]:
    """Return a check for an object with async methods, each with the names of its arguments."""

    def check(owner: str, given: Any) -> None:
        for method, *takes in methods:
            check_plug_in(owner, what, given, method, *takes)

    return check


def _check_attributes(what: str, *names: str) -> Callable[[str, Any], object]:
    """Return a check for an object with these methods, of any shape."""

    def check(owner: str, given: Any) -> None:
        check_instance(owner, what, given)
        lacks = [name for name in names if not callable(getattr(given, name, None))]
        if lacks:
            raise ValueError(f"{owner} must be {what} with {' and '.join(names)}, and {given!r:.200} lacks {lacks[0]}")

    return check


def _check_list(check: Callable[[str, Any], object], owner: str, given: Any) -> None:
    check(owner, [given])


def _check_model(owner: str, given: Any) -> None:
    check_plug_in(owner, "a chat model", given, "complete", "request")
    name = getattr(given, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{owner}: a chat model has a name, 'provider:model', and {given!r:.200} has {name!r:.80}")


def _check_check(owner: str, given: Any) -> None:
    check_instance(owner, "a check", given)
    if not callable(given):
        raise ValueError(f"{owner}: a check is a function of the artifact, not {given!r:.200}")


def _check_tool(owner: str, given: Any) -> None:
    check_instance(owner, "a tool", given)
    if not callable(given) and not callable(getattr(given, "call", None)):
        raise ValueError(f"{owner}: a tool is a function or made by kt.tool, not {given!r:.200}")


_AGENTS: Final = {
    "best-of": "kairo_team.coordinators:BestOf",
    "mini": "kairo_team.agents:MiniAgent",
    "team": "kairo_team.agents:TeamAgent",
}
_EVALUATORS: Final = {
    "judge": "kairo_team.evaluators:AgentEvaluationStrategy",
    "panel": "kairo_team.evaluators:PanelEvaluationStrategy",
    "simple": "kairo_team.evaluators:SimpleEvaluationStrategy",
}
_CONSTRAINTS: Final = {
    "cost-limit": "kairo_team.governance:CostLimit",
    "external-signal": "kairo_team.governance:ExternalSignal",
    "max-iterations": "kairo_team.governance:MaxIterations",
    "timeout": "kairo_team.governance:Timeout",
    "token-budget": "kairo_team.governance:TokenBudget",
    "warn-at": "kairo_team.governance:WarnAt",
}
_GUARDRAILS: Final = {
    "content-filter": "kairo_team.governance.policies:ContentFilter",
    "injection-screen": "kairo_team.governance.policies:InjectionScreen",
    "mcp-policy": "kairo_team.governance.policies:McpPolicy",
    "output-validator": "kairo_team.governance.policies:OutputValidator",
    "pii-redactor": "kairo_team.governance.policies:PiiRedactor",
    "tool-audit": "kairo_team.governance.policies:ToolAudit",
    "tool-loop": "kairo_team.governance.policies:ToolLoop",
}
_COORDINATORS: Final = {
    "board": "kairo_team.coordinators:TaskDispatchCoordinator",
    "expert": "kairo_team.coordinators:ExpertTeamCoordinator",
    "group-chat": "kairo_team.coordinators:GroupChatCoordinator",
    "handoff": "kairo_team.coordinators:HandoffCoordinator",
    "supervisor": "kairo_team.coordinators:SupervisorCoordinator",
}
_PLANNERS: Final = {
    "agent": "kairo_team.coordinators:AgentPlanner",
    "role": "kairo_team.coordinators:RolePlanner",
}
_GATES: Final = {
    "callback": "kairo_team.gates:CallbackGate",
    "console": "kairo_team.gates:ConsoleGate",
    "defer": "kairo_team.gates:DeferGate",
    "journal": "kairo_team.gates:JournalGate",
}
_TOOL_SOURCES: Final = {
    "mcp-http": "kairo_team.tools.mcp:McpServer.http",
    "mcp-stdio": "kairo_team.tools.mcp:McpServer.stdio",
}
_PERMISSION_GUARDS: Final = {
    "rules": "kairo_team.tools:RuleGuard",
    "side-effects": "kairo_team.tools:SideEffectGuard",
}
_JOURNALS: Final = {
    "memory": "kairo_team.testing:MemoryJournal",
    "sqlite": "kairo_team:SqliteJournal",
}


_PLAIN_CHECKS: Final = ("changed", "equals_reference", "json_valid", "not_blank", "python_parses")
"""Checks without options."""
_MAKERS_OF_CHECKS: Final = (
    *("avoids_tool", "calls_in_order", "calls_tool", "calls_with", "citations", "contains", "diff_applies", "equals"),
    *("forbidden", "forbidden_regex", "hands_over"),
    *("json_schema", "language", "markdown_outline", "max_chars", "max_tool_calls", "max_words"),
    *("max_dollars_used", "max_seconds_used", "max_tokens_used"),
    *("min_chars", "min_words", "numbers", "quotations", "regex"),
)
_CHECKS: Final = {
    **{name: f"kairo_team.evaluators.checks:{name}.itself" for name in _PLAIN_CHECKS},
    **{name: f"kairo_team.evaluators.checks:{name}" for name in _MAKERS_OF_CHECKS},
}
"""Those that the data of a rubric can name."""


def _kinds() -> Iterator[tuple[str, Kind]]:
    """Yield the plug-in points, by the word for one plug-in in a file or on the command line."""
    coordinator = _check_methods("a coordinator", ("execute", "request", "team"))
    planner = _check_methods("a planner", ("plan", "request", "team", "context"))
    guard = _check_methods("a permission guard", ("check", "tool", "arguments", "side_effect"))
    rows: list[tuple[str, str, str | None, Mapping[str, str], Callable[[str, Any], object]]] = [
        ("an agent", "Agent", "AgentTCK", _AGENTS, check_agent),
        ("a coordinator", "TeamCoordinator", "TeamCoordinatorTCK", _COORDINATORS, coordinator),
        ("a planner", "Planner", "PlannerTCK", _PLANNERS, planner),
        (
            "an evaluator",
            "EvaluationStrategy",
            "EvaluationStrategyTCK",
            _EVALUATORS,
            _check_methods("an evaluator", ("evaluate", "context")),
        ),
        (
            "a constraint",
            "ResourceConstraint",
            "ResourceConstraintTCK",
            _CONSTRAINTS,
            partial(_check_list, check_constraints),
        ),
        ("a guardrail", "GuardrailPolicy", "GuardrailPolicyTCK", _GUARDRAILS, partial(_check_list, check_guardrails)),
        ("a permission guard", "PermissionGuard", "PermissionGuardTCK", _PERMISSION_GUARDS, guard),
        ("a model", "ChatModel", "ChatModelTCK", {"local": "kairo_team.models.local:LocalModel"}, _check_model),
        ("a gate", "HumanGate", "HumanGateTCK", _GATES, _check_methods("a gate", ("decide", "question"))),
        ("a journal", "Journal", "JournalTCK", _JOURNALS, _check_attributes("a journal", "begin", "recover")),
        ("a tool source", "ToolSource", "ToolSourceTCK", _TOOL_SOURCES, _check_attributes("a tool source", "connect")),
    ]
    for what, contract, kit, built_in, check in rows:
        word = what.partition(" ")[2]
        group = f"kairo_team.{word.replace(' ', '_')}s"
        yield word.replace(" ", "-"), Kind(group, contract, kit, what, built_in, check)
    home = "kairo_team.evaluators"
    yield "check", Kind("kairo_team.checks", "Check", "CheckTCK", "a check", _CHECKS, _check_check, home=home)
    home = "kairo_team.tools"
    yield "tool", Kind("kairo_team.tools", "Tool", None, "a tool", {}, _check_tool, is_made=False, home=home)


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(dict(_kinds()))
"""The plug-in points, by the word for one plug-in in a file and on the command line, such as "tool-source"."""
