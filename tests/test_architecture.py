"""The rooms, and who may enter which: the imports point one way, and no file outgrows its room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kairo_team"

# A room is a folder, or the vocabulary: the package's own modules but `api`, the door. It imports from rooms
# of floors above its own in this list, and from the rooms before it on its own floor. Imports for type checkers count.
# `data/teams` is a room of its own: the files of `data` know nothing of teams.
FLOORS = [
    ["_util"],
    ["vocabulary"],
    ["governance", "data"],
    ["models", "tools", "prompts"],
    ["engine", "api"],
    ["agents", "durable"],
    ["evaluators", "coordinators"],
    ["cluster", "evals", "data/teams"],
    ["testing"],
    ["tck"],
    ["views", "web_console", "serve", "cli"],
    ["", "examples"],
]
ORDER = {room: (level, place) for level, rooms in enumerate(FLOORS) for place, room in enumerate(rooms)}
APART = {"data", "durable", "models", "tools", "prompts", "testing"}
"""Rooms that know no other on their floor."""
NEVER = {
    "evaluators": {"agents"},
    "api": {"testing"},
    "cli": {"testing"},
    "": {"tck"},
    "examples": {"tck"},
}
MODULES = {
    "_util": """child_processes child_watch clock context_values counts database_url drawn frozen guesses late_pydantic
        lazy_imports masking mistakes narrowing open_scopes plugin_shapes reply_json terminal threads
        trace_context version""",
    "vocabulary": """addresses artifacts budget clauses conditions constraints contracts errors events files gates
        guardrails human messages output_types permissions plugin_calls plugin_options plugins recorded results tasks
        team verdicts""",
    "governance": """cancel_scope constraint_chain constraint_limits governor guardrails halts holds ledger plug_ins
        policies pricing slices""",
    "models": """address call_keys error_bodies governed_model limits local local_server natives
        openai_compatible prompt_bounds provider_errors provider_messages providers readings resolver retries
        tool_calls""",
    "models/address": "chat http messages parts responses served",
    "tools": """arguments circuit commands globs guards made_calls mcp mcp_config mcp_schema mcp_transport
        paths permissions pipeline pydantic_toolsets result shell_words signature skills sources tool
        tool_server""",
    "prompts": "bounds filters overrides quoting",
    "engine": "live plan records run tasks work",
    "engine/live": "enforced_end event_bus function_agent task_pool timers",
    "engine/records": """digests earlier_calls journal plan_records questions recovery run_handle run_scope
        suspension""",
    "engine/tasks": "dispatcher member_budgets ready_tasks task_budgets task_run",
    "engine/work": "constraints member_model run_arguments run_services runtime steering work_context",
    "engine/plan": "grown_tasks growth planning preflight",
    "engine/run": "attempts ending lone_agent team_run",
    "agents": """dead_connections foreign_files langgraph langgraph_attempt langgraph_models
        langgraph_tools langgraph_views langgraph_watch mini mini_compaction openai_agents
        openai_models openai_run openai_tools openai_views program pydantic_ai
        pydantic_ai_hooks pydantic_ai_messages team_agent wrapped""",
    "durable": """accounts codec connection database event_pages formats forks journal kept_files line
        memory owners postgres postgres_database processes recovery sql_journal sql_run_journal
        value_classes windows""",
    "cluster": """attempt_host cluster coverage dbos_delivery delivery facts fatal_units health mailbox
        monitor procrastinate_delivery queues remote_attempt service units wire worker""",
    "evaluators": """agent_judge artifact_view attacks calibration canaries check_calls checks claims combined criterion
        fingerprint judge_injection judge_question judge_texts
        judge_reply judged judging look_alikes pair_report pairwise panel quotes review rubric
        rubric_data score_range transcripts tried wired""",
    "evaluators/calibration": """agreement calibrated calibration certificates confidence_bounds judge_report
        labelled thresholds weights""",
    "evaluators/attacks": "corpus trial",
    "coordinators": """agent_planner best_of expert_team failure_policy group_chat handoff moderators planners
        proposals review_rounds reviewers supervision supervisor task_dispatch turns""",
    "api": "",
    "views": """eval_junit eval_page eval_progress eval_table graph_chart graph_frames graph_layout graph_mermaid
        graph_svg journal_metrics json_lines judge_svg lines live live_notebook notebook open_tasks
        other_journals plain progress recorded_report rendered report_calls report_graph report_html
        report_page report_parts report_tasks report_text run_costs run_notes run_record run_story run_waits
        set_aside standing telemetry telemetry_content telemetry_metrics telemetry_names telemetry_spans
        text""",
    "web_console": "access address console made_files open_questions pages run_page runtime_source serving sources "
    "streams task_tree",
    "serve": """a2a_routes ag_ui_routes asgi asked ends guard mcp_server openai_routes people posts serving""",
    "data": "files mistakes reading teams",
    "data/teams": "hints loading shapes",
    "evals": "dataset eval_result eval_run recorded_runs",
    "cli": """account_commands app budgets cluster_commands commands compare console_command databases
        defaults demo_command desk eval_command exit_codes init_command interrupts job
        journal_commands journals judge judge_attack judge_compare judge_inputs judge_report judge_try
        kit_parts kit_runs loading metrics_command named_journals numbers options outputs plugins_command queue_commands
        refusal report report_command run_commands run_table schema_command secret_arguments serve_command sources
        streams task_view top_command upkeep_commands""",
    "testing": "clocks postgres_server record_replay recorder scripted scripted_judge",
}
"""Every module of each room; policies, checks, kits and examples are one file each and not listed."""
ENGINE_IN_ORDER = {
    "live": "timers enforced_end task_pool function_agent event_bus",
    "records": "journal plan_records run_scope questions digests earlier_calls suspension run_handle recovery",
    "tasks": "ready_tasks member_budgets task_run task_budgets dispatcher",
    "work": "steering constraints run_arguments runtime run_services member_model work_context",
    "plan": "grown_tasks preflight planning growth",
    "run": "attempts ending lone_agent team_run",
}
"""The rooms of the engine and their modules: each imports only from those before it, and for type checkers too."""
ENGINE_ORDER: list[str] = [f"{room}.{name}" for room, names in ENGINE_IN_ORDER.items() for name in names.split()]
ENGINE_PAIRS = {
    (
        "work.member_model",
        "work.work_context",
    ): "a context makes its member's models, and they record their calls in it",
}
"""Modules of the engine that know each other, the earlier one first, and why."""
KNOWN_CIRCLES = {
    ("contracts", "vocabulary"): "a contract names the values it takes, for type checkers; members are plug-ins",
    ("errors", "results"): "the error of a failed run has its result",
    ("evaluators.rubric", "evaluators.tried"): "`Rubric.try_on` reviews by a judge, who is given a rubric",
    ("governance.ledger", "governance.halts"): "a node has its tree, and the tree what is open at each node",
    ("governance.halts", "governance"): "the tree has what waits, holds a scope open or borrows at each node",
    **{(f"engine.{one}", f"engine.{other}"): reason for (one, other), reason in ENGINE_PAIRS.items()},
}
"""Imports that close a circle: a module, the module or room that it names, and why. No other circle is allowed."""
ON_ASYNCIO = {
    "cluster/procrastinate_delivery.py": "procrastinate's workers run on asyncio, in a thread of their own",
}
"""Modules that know one event loop, and why."""
UPWARD = {
    ("contracts.py", "governance"): ({"Governor"}, "a member works under its governor, which users call"),
    ("contracts.py", "tools"): ({"GovernedTool", "Tool", "Toolbox"}, "a member is given its tools, which users call"),
    ("contracts.py", "engine"): ({"Runtime"}, "a team inside a task runs on the runtime of the run around it"),
    ("team.py", "engine"): ({"Runtime"}, "a team may be bound to a runtime"),
    ("team.py", "tools"): ({"ToolPermissions"}, "a team's tools have permissions"),
}
"""The arrows that go up: a file, the room that it may name for type checkers or inside a function, which names, why."""
TYPE_CHECKS = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
MOST_EXEMPTIONS = 5
MAX_LINES = 800
"""A subject stays whole in one file."""


class Import(NamedTuple):
    """One imported name, where it stands, and whether that is inside a function or for type checkers only."""

    target: str
    line: int
    inside: bool
    typed: bool = False


def rooms_of_the_package() -> list[Path]:
    return [PACKAGE, PACKAGE / "coordinators", PACKAGE / "evaluators", PACKAGE / "examples", PACKAGE / "tck"]


def sources() -> list[Path]:
    """The library's files, each once; `rglob` does not follow the links, so they are walked by name."""
    return sorted({path for room in rooms_of_the_package() for path in room.rglob("*.py")})


def imports(node: ast.AST, *, inside: bool = False, typed: bool = False) -> Iterator[Import]:
    """Every import, those inside functions and those for type checkers too."""
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.Import(names=names):
            yield from (Import(alias.name, node.lineno, inside, typed) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            assert level == 0, f"line {node.lineno}: relative import"
            yield from (Import(f"{module}.{alias.name}", node.lineno, inside, typed) for alias in names)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(function).endswith(("import_module", "__import__")):
                yield Import(name, node.lineno, inside)
        case ast.If(test=test, body=body, orelse=orelse) if ast.unparse(test) in TYPE_CHECKS:
            yield from (one for child in body for one in imports(child, inside=inside, typed=True))
            children = list(orelse)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = True
        case _:
            pass
    for child in children:
        yield from imports(child, inside=inside, typed=typed)


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Every import of a file."""
    return tuple(imports(ast.parse(path.read_text(encoding="utf-8"))))


def room_of(module: str) -> str:
    """The room of a module of the package, by its dotted path below it."""
    if module.startswith("data.teams"):
        return "data/teams"
    first = module.partition(".")[0]
    if first in ORDER:
        return first
    return "vocabulary" if first in MODULES["vocabulary"].split() else ""


def home_of(target: str) -> str:
    """The room an imported name of the package lies in."""
    return room_of(target.removeprefix("kairo_team").removeprefix("."))


def forbidden(file: str, found: Import) -> str | None:
    """Why this file may not import that, or None."""
    if found.target.partition(".")[0] != "kairo_team":
        return None
    here = "" if file == "__init__.py" else room_of(file.removesuffix(".py").replace("/", "."))
    there = home_of(found.target)
    if here == there:
        return None
    names, _reason = UPWARD.get((file, there), (set[str](), ""))
    if (found.inside or found.typed) and found.target.rpartition(".")[2] in names:
        return None
    aside = ORDER[there][0] == ORDER[here][0] and bool({here, there} & APART)
    if ORDER[there] > ORDER[here] or aside or there in NEVER.get(here, ()):
        return f"kairo_team/{file}:{found.line} may not import {found.target}"
    return None


def test_every_module_is_listed_in_its_room() -> None:
    there = {
        room: {one.stem for one in PACKAGE.joinpath("" if room == "vocabulary" else room).glob("*.py")}
        | {one.parent.name for one in PACKAGE.joinpath("" if room == "vocabulary" else room).glob("*/__init__.py")}
        for room in MODULES
        if room != "api"
    }
    there["vocabulary"] -= {*ORDER, "api"}
    assert {room: names - {"__init__", "__main__"} for room, names in there.items()} == {
        room: set(names.split()) for room, names in MODULES.items() if room != "api"
    }


def test_every_exemption_is_used() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), home_of(one.target), one.target.rpartition(".")[2])
        for path in sources()
        for one in imports_of(path)
        if one.inside or one.typed
    }
    allowed = {(file, room, name) for (file, room), (names, _reason) in UPWARD.items() for name in names}
    assert allowed <= found
    assert len(UPWARD) <= MOST_EXEMPTIONS


def test_imports_point_one_way() -> None:
    wrong = [
        reason
        for path in sources()
        for found in imports_of(path)
        if (reason := forbidden(path.relative_to(PACKAGE).as_posix(), found)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def engine_module(target: str) -> str:
    """The module of the engine that an imported name of the package lies in, or ""."""
    inside = target.removeprefix("kairo_team.engine.")
    return next((one for one in ENGINE_ORDER if f"{inside}.".startswith(f"{one}.")), "") if inside != target else ""


def test_modules_of_the_engine_are_in_one_order() -> None:
    files = {path.relative_to(PACKAGE / "engine"): path for path in sorted((PACKAGE / "engine").rglob("*.py"))}
    modules = {file.with_suffix("").as_posix().replace("/", "."): path for file, path in files.items()}
    assert {name for name in modules if not name.endswith("__init__")} == {*ENGINE_ORDER}
    assert len(ENGINE_ORDER) == len({*ENGINE_ORDER})
    up = {
        (here, there)
        for here, path in modules.items()
        for found in imports_of(path)
        if (there := engine_module(found.target)) and there != here
        if here not in ENGINE_ORDER or ENGINE_ORDER.index(there) > ENGINE_ORDER.index(here)
    }
    assert up == {*ENGINE_PAIRS}


@cache
def module_graph() -> nx.DiGraph[str]:
    """Every module of the package but the `__init__`s, with an edge to each module that it imports in any way."""
    files = {path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path for path in sources()}
    modules = {name: path for name, path in files.items() if path.name != "__init__.py"}
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(modules)
    for here, path in modules.items():
        for found in imports_of(path):
            there = found.target.removeprefix("kairo_team.")
            while there and there not in modules:
                there = there.rpartition(".")[0]
            if there and there != here and found.target.startswith("kairo_team."):
                graph.add_edge(here, there)
    return graph


def test_no_modules_of_a_room_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checkers count too."""
    graph = nx.DiGraph((here, there) for here, there in module_graph().edges if room_of(here) == room_of(there))
    circles = [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    closing = {
        known: {(here, there) for circle in circles for here, there in graph.subgraph(circle).edges if here == known[0]}
        & {edge for edge in graph.edges if known[1] in (edge[1], room_of(edge[1]))}
        for known in KNOWN_CIRCLES
    }
    assert all(closing.values()), "an import of KNOWN_CIRCLES closes no circle"
    graph.remove_edges_from(edge for edges in closing.values() for edge in edges)
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_nothing_but_the_test_doubles_knows_one_event_loop() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found.line}"
        for path in sources()
        if path.relative_to(PACKAGE).parts[0] != "testing"
        if path.relative_to(PACKAGE).as_posix() not in ON_ASYNCIO
        for found in imports_of(path)
        if found.target.partition(".")[0] in {"asyncio", "trio"}
    ]
    assert not wrong, f"use anyio in {wrong}"


def test_what_a_replay_does_is_known_to_the_records_alone() -> None:
    engine = [path for path in sources() if PACKAGE / "engine" in path.parents and path.parent.name != "records"]
    code = {path: path.read_text(encoding="utf-8") for path in engine}
    knowing = [path.name for path in engine if re.search("replay", code[path], re.IGNORECASE)]
    assert engine
    assert not knowing, f"ask PlanRecords for what follows from the records in {knowing}"


def test_no_file_outgrows_its_room() -> None:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {path.relative_to(ROOT): count for path, count in counts.items() if count > MAX_LINES} == {}


@pytest.mark.parametrize(
    ("file", "text", "allowed"),
    [
        ("budget.py", "from kairo_team.errors import HaltError", True),
        ("budget.py", "from kairo_team.governance import Governor", False),
        ("budget.py", "from kairo_team import governance", False),
        ("budget.py", "import kairo_team", False),
        ("budget.py", "if TYPE_CHECKING:\n    from kairo_team.governance.governor import Governor", False),
        ("contracts.py", "if TYPE_CHECKING:\n    from kairo_team.governance.governor import Governor", True),
        ("contracts.py", "if TYPE_CHECKING:\n    from kairo_team.governance.ledger import Ledger", False),
        ("contracts.py", "from kairo_team.governance.governor import Governor", False),
        ("contracts.py", "if not TYPE_CHECKING:\n    from kairo_team.governance.governor import Governor", False),
        ("_util/frozen.py", "from kairo_team.budget import Budget", False),
        (
            "governance/governor.py",
            "if TYPE_CHECKING:\n    from kairo_team.engine.work.steering import Steering",
            False,
        ),
        ("tools/tool.py", "def late():\n    from kairo_team.agents import mini", False),
        ("tools/tool.py", "importlib.import_module('kairo_team.agents.mini')", False),
        ("tools/tool.py", "from kairo_team.models import Fallback", False),
        ("engine/tasks/ready_tasks.py", "from kairo_team.tools import Tool", True),
        ("engine/tasks/ready_tasks.py", "from kairo_team.agents import MiniAgent", False),
        ("results.py", "def _repr_html_(self):\n    from kairo_team.views.notebook import show_result", False),
        ("agents/team_agent.py", "from kairo_team.api import run", True),
        ("engine/run/ending.py", "async def run():\n    from kairo_team.api import run", False),
        ("agents/mini.py", "from kairo_team.a_new_module import name", False),
        ("agents/mini.py", "from kairo_team.engine.run.team_run import TeamRun", True),
        ("engine/work/runtime.py", "from kairo_team.evaluators import Rubric", False),
        ("coordinators/expert_team.py", "from kairo_team.evaluators import Rubric", True),
        ("evaluators/checks/text.py", "from kairo_team.coordinators import planners", False),
        ("evaluators/checks/text.py", "from kairo_team.agents import MiniAgent", False),
        ("api.py", "from kairo_team.coordinators import ExpertTeamCoordinator", False),
        ("api.py", "from kairo_team.testing import ScriptedModel", False),
        ("__init__.py", "from kairo_team.api import run as run", True),
        ("cli/report.py", "from kairo_team.views.text import escape", True),
        ("views/text.py", "from kairo_team.cli import main", False),
        ("tck/kit.py", "from kairo_team.testing.clocks import virtual_time", True),
        ("tck/evaluation.py", "from kairo_team.evaluators import Rubric", True),
        ("tck/kit.py", "from kairo_team.cli import main", False),
        ("cli/kit_parts.py", "from kairo_team.tck import AgentTCK", True),
        ("testing/scripted.py", "from kairo_team.tck import run_kit", False),
        ("evaluators/rubric.py", "from kairo_team.tck import run_kit", False),
        ("examples/map_reduce.py", "from kairo_team.tck import run_kit", False),
        ("__init__.py", "from kairo_team.tck import run_kit as run_kit", False),
    ],
)
def test_the_arrows_hold_for(file: str, text: str, allowed: bool) -> None:
    assert all(forbidden(file, found) is None for found in imports(ast.parse(text))) is allowed
