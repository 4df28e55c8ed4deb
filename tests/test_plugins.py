"""Plug-ins by name, of every plug-in point: found, listed, made and checked; packages are imported when asked for."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import plugins
from kairo_team.coordinators import (
    ExpertTeamCoordinator,
    HandoffCoordinator,
    SupervisorCoordinator,
    TaskDispatchCoordinator,
)
from kairo_team.governance import Timeout
from kairo_team.models.resolver import ModelResolver
from tests import plugin_packages
from tests.plugin_packages import Install

install = plugin_packages.install

EVERYTHING = """
import kairo_team as kt
from kairo_team.coordinators import RolePlanner, TaskDispatchCoordinator
from kairo_team.gates import DeferGate
from kairo_team.governance import GuardrailDecision, Timeout
from kairo_team.testing import MemoryJournal
from kairo_team.tools import SideEffectGuard

class Agent:
    def __init__(self, *, says="done"):
        self.says = says
    async def run(self, assignment, context):
        return self.says

class Judge:
    async def evaluate(self, context):
        return kt.EvaluationVerdict.passed(1.0)

class Rail:
    async def evaluate(self, context):
        return GuardrailDecision.allow()

class Model:
    def __init__(self, name):
        self.name = name
    async def complete(self, request):
        return kt.ModelResponse(f"from {self.name}", usage=kt.Usage(1, 1))

class Source:
    name = "files"
    def connect(self):
        raise OSError("not here")

def coordinator(): return TaskDispatchCoordinator()
def planner(): return RolePlanner()
def gate(): return DeferGate()
def constraint(seconds=5): return Timeout(seconds)
def guard(): return SideEffectGuard("plan")
def journal(): return MemoryJournal()
def check(): return lambda artifact: True

def look_up(word: str) -> str:
    "Look a word up."
    return word
"""
TARGETS = {
    "agent": "Agent",
    "coordinator": "coordinator",
    "planner": "planner",
    "evaluator": "Judge",
    "constraint": "constraint",
    "guardrail": "Rail",
    "permission-guard": "guard",
    "model": "Model",
    "gate": "gate",
    "journal": "journal",
    "tool-source": "Source",
    "check": "check",
    "tool": "look_up",
}
WRONG = "nothing = lambda *arguments, **options: None\nclass Empty: pass\nempty = Empty()"


async def good(assignment: kt.Assignment) -> str:
    return "made"


def points(module: str, targets: dict[str, str], name: str = "acme") -> dict[str, dict[str, str]]:
    return {kind: {name: f"{module}:{target}"} for kind, target in targets.items()}


# ---------------------------------------------------------------- every plug-in point


def test_the_table_of_this_test_has_every_plug_in_point() -> None:
    assert list(plugins.KINDS) == list(TARGETS)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", plugins.KINDS)
def test_a_published_plug_in_of_every_point_is_found_made_and_listed(kind: str, install: Install) -> None:
    install("acme-all", points("acme_all", TARGETS), EVERYTHING)
    (listed,) = [one for one in plugins.installed(kind) if one.name == "acme"]
    assert listed == plugins.Plugin(kind, "acme", f"acme_all:{TARGETS[kind]}", "acme-all", "1.0")
    assert "acme_all" not in sys.modules, "to list them imports nothing"
    made = plugins.make(kind, "acme", {"name": "acme:large"} if kind == "model" else {})
    found = plugins.find(kind, "acme@acme-all")
    assert found is getattr(sys.modules["acme_all"], TARGETS[kind])
    assert made is found if kind == "tool" else made is not None
    assert plugins.resolve("here", kind, made) is made


@pytest.mark.parametrize("kind", plugins.KINDS)
@pytest.mark.parametrize("target", ["nothing", "Empty"])
def test_what_has_not_the_shape_of_its_point_is_refused_when_it_is_made(
    kind: str, target: str, install: Install
) -> None:
    target = {"nothing": "empty", "Empty": "Empty"}[target] if kind == "tool" else target
    install("acme-wrong", points("acme_wrong", {kind: target}), WRONG)
    owner = f"{plugins.KINDS[kind].word} 'acme'"
    with pytest.raises(ValueError, match=f"^{owner}") as refused:
        plugins.make(kind, "acme")
    assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(ValueError, match=r"^Team\.thing"):
        plugins.resolve("Team.thing", kind, 5)


@pytest.mark.sampled
@pytest.mark.parametrize("one", plugins.installed(), ids=lambda one: f"{one.kind} {one.name}")
def test_every_built_in_name_leads_to_what_makes_it(one: plugins.Plugin) -> None:
    if one.distribution == plugins.OURS:
        assert callable(plugins.find(one.kind, one.name))
        assert plugins.find(one.kind, one.full_name) == one.load()


def test_every_point_has_the_contract_and_the_kit_it_names() -> None:
    from kairo_team import tck

    for kind in plugins.KINDS.values():
        assert kind.kit is None or kind.kit in tck.__all__
        assert hasattr(import_module(kind.home), kind.contract)
    kits = {name for name in tck.__all__ if name.endswith("TCK")}
    engines = {"ContractTCK", "DeliveryTCK"}  # engines are chosen by name, and are no plug-ins yet
    assert {kind.kit for kind in plugins.KINDS.values()} - {None} == kits - engines


@pytest.mark.parametrize("page", ["plug-ins.md", "extending.md"])
def test_the_pages_list_every_plug_in_point(page: str) -> None:
    text = (Path(__file__).parents[1] / "docs" / page).read_text(encoding="utf-8")
    rows = [re.findall(r"`([\w.-]+)`", line) for line in text.splitlines() if line.startswith("| ")]
    if page == "plug-ins.md":
        assert [row[0] for row in rows if row] == list(plugins.KINDS)
    else:
        groups = {row[1]: row[0] for row in rows if len(row) == 2 and row[0].startswith("kairo_team.")}
        assert groups == {kind: point.group for kind, point in plugins.KINDS.items()}


# ---------------------------------------------------------------- what cannot be had


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "coordinator",
            "exprt",
            r"^there is no coordinator 'exprt'; did you mean 'expert'\? there are .*'board', 'exp",
        ),
        ("gate", "zzz", "^there is no gate 'zzz'; there are 'callback', 'console', 'defer', 'journal'$"),
        (
            "coordinators",
            "expert",
            r"^there is no plug-in point 'coordinators'; did you mean 'coordinator'\? there are ",
        ),
        ("", "expert", "^there is no plug-in point ''; there are agent, coordinator"),
        ("coordinator", "", "^there is no coordinator ''; there are"),
        ("tool", "x", "^there is no tool 'x'; there are none$"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_and_all_there_are(kind: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plugins.find(kind, name)


def test_a_name_or_a_point_is_a_string() -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match=r"^a coordinator is named by a string, not None$"):
        plugins.find("coordinator", nothing)
    with pytest.raises(ValueError, match=r"^there is no plug-in point None"):
        plugins.find(nothing, "expert")
    with pytest.raises(ValueError, match=r"^there is no plug-in point \[\]"):
        plugins.find([], "expert")  # type: ignore[arg-type]  # what an untyped caller may hand in


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("raise RuntimeError('no key')", ":X", r"'acme_bad:X' \(acme-bad 1\.0\): RuntimeError: no key$"),
        ("import sys\nsys.exit(3)", ":X", r"it ended the program \(SystemExit\) when it was imported or called$"),
        ("def broken(:", ":X", "SyntaxError: "),
        ("import there_is_no_such_module", ":X", "ModuleNotFoundError: No module named 'there_is_no_such_module'$"),
        ("raise ValueError('one\\ntwo ' + 'x' * 1000)", ":X", "ValueError: one two x{200,300}$"),
        ("class E(Exception):\n  def __str__(self): raise OSError\nraise E", ":X", "E: its message cannot be read$"),
        ("raise KeyError", ":X", "KeyError$"),
        ("", ":X", "has no attribute 'X'$"),
        ("", "", "an entry point is written 'module:attribute'$"),
        ("", ":X Y", "an entry point is written 'module:attribute'$"),
        ("", ":X:Y", "an entry point is written 'module:attribute'$"),
    ],
)
def test_a_package_that_cannot_be_imported_is_an_error_for_who_asks_for_it_alone(
    source: str, target: str, message: str, install: Install
) -> None:
    install("acme-bad", {"gate": {"acme": f"acme_bad{target}", "fine": "acme_bad:Y"}}, source)
    assert plugins.make("coordinator", "board")
    assert [one.name for one in plugins.installed("gate")][-2:] == ["acme", "fine"]
    assert "acme_bad" not in sys.modules
    with pytest.raises(ValueError, match=r"^gate 'acme' cannot be loaded from 'acme_bad") as refused:
        plugins.find("gate", "acme")
    refused.match(message)


def test_a_missing_module_names_the_package_that_lacks_it(install: Install) -> None:
    install("acme-gone", {"gate": {"acme": "acme_gone.inside:X"}})
    with pytest.raises(ValueError, match=r"\(acme-gone 1\.0\): ModuleNotFoundError: No module named 'acme_gone'$"):
        plugins.find("gate", "acme")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("make", {"colour": 1}, "^gate 'acme': there is no option 'colour'; its options are 'of'$"),
        ("make", {}, "^gate 'acme': missing a required argument: 'of'; its options are 'of'$"),
        ("make", {"of": 1}, "^gate 'acme': 1 is too little$"),
        ("make", {"of": 2}, "^gate 'acme': RuntimeError: no line$"),
        ("make", {"of": 3}, r"^gate 'acme': it ended the program \(SystemExit\)"),
        ("number", {}, "^gate 'acme': a class or function that makes it must be published, not 5$"),
        ("Plain", {}, r"^gate 'acme': Plain\.decide is not an async function: write async def decide\(question\)$"),
        ("Narrow", {}, r"^gate 'acme': Narrow\.decide takes \(\), and is called as decide\(question\)$"),
    ],
)
def test_what_is_wrong_with_the_making_is_said(
    target: str, options: dict[str, Any], message: str, install: Install
) -> None:
    source = """
import sys
number = 5
def make(of):
    if of == 1: raise ValueError("1 is too little")
    if of == 2: raise RuntimeError("no line")
    sys.exit(1)
class Plain:
    def decide(self, question): return None
class Narrow:
    async def decide(self): return None
"""
    install("acme-odd", {"gate": {"acme": f"acme_odd:{target}"}}, source)
    with pytest.raises(ValueError, match=message):
        plugins.make("gate", "acme", options)


def test_a_tool_takes_no_options(install: Install) -> None:
    install("acme-tool", {"tool": {"look-up": "acme_tool:look_up"}}, EVERYTHING)
    with pytest.raises(ValueError, match=r"^tool 'look-up': it takes no options, and was given 'word'$"):
        plugins.make("tool", "look-up", {"word": "x"})


# ---------------------------------------------------------------- one name, several packages


def test_a_name_of_two_packages_is_refused_and_each_has_a_name_of_its_own(install: Install) -> None:
    install("acme-one", points("acme_one", {"gate": "gate"}), EVERYTHING)
    install("acme-two", points("acme_two", {"gate": "gate"}), EVERYTHING)
    message = r"^several packages publish the gate 'acme': write 'acme@acme-one' \(acme_one:gate\) or 'acme@acme-two' "
    with pytest.raises(ValueError, match=message):
        plugins.find("gate", "acme")
    assert "acme_one" not in sys.modules
    assert plugins.find("gate", "acme@acme-two").__module__ == "acme_two"
    one, two = [one for one in plugins.installed("gate") if one.name == "acme"]
    assert one.problem == "'acme@acme-two' has the same name: write 'acme@acme-one' for this one"
    assert two.problem == "'acme@acme-one' has the same name: write 'acme@acme-two' for this one"


def test_a_built_in_name_stays_built_in(install: Install) -> None:
    install("acme-all", points("acme_all", {"coordinator": "coordinator"}, name="expert"), EVERYTHING)
    assert plugins.find("coordinator", "expert") is ExpertTeamCoordinator
    assert plugins.find("coordinator", "expert@kairo-team") is ExpertTeamCoordinator
    assert type(plugins.make("coordinator", "expert@acme-all")) is TaskDispatchCoordinator
    problems = [one.problem for one in plugins.installed("coordinator") if one.name == "expert"]
    assert problems == [None, "the name is built in: write 'expert@acme-all' for this one"]


def test_an_underscore_counts_as_a_hyphen(install: Install) -> None:
    assert plugins.find("constraint", "max_iterations") is plugins.find("constraint", "max-iterations")
    install("acme-all", points("acme_all", {"gate": "gate"}, name="pager_duty"), EVERYTHING)
    assert plugins.find("gate", "pager-duty") is plugins.find("gate", "pager_duty@acme_all")
    install("acme-two", points("acme_two", {"gate": "gate"}, name="pager-duty"), EVERYTHING)
    with pytest.raises(ValueError, match="several packages publish the gate 'pager_duty'"):
        plugins.find("gate", "pager_duty")


def test_a_package_that_publishes_a_name_twice_is_refused(install: Install) -> None:
    info = install("acme-all", {}, EVERYTHING)
    (info / "entry_points.txt").write_text("[kairo_team.gates]\nacme = acme_all:gate\nacme = acme_all:journal\n")
    assert [one.problem for one in plugins.installed("gate") if one.name == "acme"] == [
        "acme-all publishes the name twice"
    ] * 2
    with pytest.raises(ValueError, match=r"^acme-all publishes the gate 'acme' twice, .*: ask its authors$"):
        plugins.find("gate", "acme")


def test_of_a_distribution_that_is_on_the_path_twice_the_first_one_counts(install: Install) -> None:
    install("Acme_All", points("other", {"gate": "gate"}), version="2.0")
    install("acme-all", points("acme_all", {"gate": "gate"}), EVERYTHING, version="1.0", site="earlier")
    assert len([one for one in plugins.installed("gate") if one.name == "acme"]) == 1
    assert callable(plugins.find("gate", "acme"))


# "@", "-" and "_" are what names are joined and compared by; "board" is built in.
NAMES = st.one_of(st.text("ab-_@", min_size=1, max_size=4), st.just("board"))
PACKAGES = st.lists(st.tuples(NAMES, st.sampled_from(["one", "two", "b"])), max_size=6)


@given(PACKAGES)
def test_a_plug_in_has_no_problem_exactly_when_its_name_alone_finds_it(found: list[tuple[str, str]]) -> None:
    there = [plugins.Plugin("coordinator", name, "m:x", package, "1") for name, package in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "_published", lambda groups: (there if groups else [], ()))
        listed = [one for one in plugins.installed("coordinator") if one.distribution != plugins.OURS]
        for one in listed:
            assert (one.problem is None) == (found_by(one.name) == one)
            if one.problem is not None and " write " in one.problem and "@" not in one.name:
                taken = [other for other in listed if plugins._key(other.name) == plugins._key(one.full_name)]
                assert taken or found_by(one.full_name) == one, "the name that the problem tells to write"
    assert len(listed) == len(there)


def found_by(name: str) -> plugins.Plugin | None:
    try:
        return plugins.locate("coordinator", name)
    except ValueError:
        return None


# ---------------------------------------------------------------- hostile metadata


def test_metadata_that_cannot_be_read_is_named_and_hides_no_other_package(install: Install) -> None:
    install("acme-all", points("acme_all", {"gate": "gate"}), EVERYTHING)
    (install("acme-bytes", {}) / "entry_points.txt").write_bytes(b"[kairo_team.gates]\nx = \xff\xfe\n")
    assert callable(plugins.find("gate", "acme"))
    (sentence,) = plugins.unreadable()
    assert sentence.startswith("the entry points of 'acme-bytes' cannot be read: UnicodeDecodeError: ")
    with pytest.raises(ValueError, match=r"there is no gate 'x'; .*; the entry points of 'acme-bytes' cannot be read"):
        plugins.find("gate", "x")


def test_a_name_with_control_characters_stays_on_its_line(install: Install) -> None:
    install("acme-odd", {"gate": {"red\x1b[31m": "acme_odd:X", "né": "acme_odd:X"}}, "raise ValueError('\\x1b[2Jx')")
    with pytest.raises(ValueError, match="there is no gate 'x'") as refused:
        plugins.find("gate", "x")
    assert "\x1b" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot be loaded") as refused:
        plugins.find("gate", "red\x1b[31m")
    assert "\x1b" not in str(refused.value)


# ---------------------------------------------------------------- models


async def test_a_model_of_a_published_provider_is_found_by_its_name(install: Install) -> None:
    install("acme-models", points("acme_models", {"model": "Model"}), EVERYTHING)
    result = await kt.run(kt.Team("desk", [kt.Member("clerk", kt.MiniAgent("acme:large"))]), "Write it.")
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "from acme:large")


def test_a_provider_that_is_known_already_stays(install: Install) -> None:
    """A package cannot take the calls of another provider by its name; by its full name it is found."""
    install("acme-models", points("acme_models", {"model": "Model"}, name="openai"), EVERYTHING)
    with pytest.raises(kt.KairoError, match="openai:gpt-5-mini"):
        ModelResolver().resolve("openai:gpt-5-mini")  # there is no key
    assert ModelResolver().resolve("openai@acme-models:gpt-5-mini").name == "openai@acme-models:gpt-5-mini"


def test_a_model_that_cannot_be_made_is_unavailable(install: Install) -> None:
    install("acme-models", {"model": {"acme": "acme_models:nothing", "broken": "acme_models:x"}}, WRONG)
    for name in ("acme:large", "broken:large"):
        with pytest.raises(kt.KairoError, match=f"model '{name}'.*model '{name.partition(':')[0]}'"):
            ModelResolver().resolve(name)
    with pytest.raises(kt.KairoError, match=r"'acne' is unknown; did you mean 'acme'\? there are 'acme', "):
        ModelResolver().resolve("acne:large")


# ---------------------------------------------------------------- coordinators of a run


def team(**fields: Any) -> kt.Team:
    return kt.Team("desk", [kt.Member("clerk", good)], **fields)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("expert", ExpertTeamCoordinator),
        ("board", TaskDispatchCoordinator),
        ("handoff", HandoffCoordinator),
        ("supervisor", SupervisorCoordinator),
    ],
)
async def test_a_run_takes_its_coordinator_by_name(name: str, kind: type) -> None:
    assert type(team(coordinator=name).coordinator) is kind
    for run in (await kt.run(team(), "g", coordinator=name), await kt.run(team(coordinator=name), "g")):
        assert run.status is kt.TeamStatus.COMPLETED
    assert kt.check(team(), "g", coordinator=name).ok
    async with kt.Runtime() as runtime:
        live = await runtime.start(team(), "g", coordinator=name)
        assert (await live.result()).status is kt.TeamStatus.COMPLETED


async def test_a_published_coordinator_runs_a_team(install: Install) -> None:
    install("acme-all", points("acme_all", {"coordinator": "coordinator"}), EVERYTHING)
    assert (await kt.run(team(), "g", coordinator="acme")).status is kt.TeamStatus.COMPLETED


def test_an_unknown_coordinator_is_refused_where_it_is_named() -> None:
    with pytest.raises(ValueError, match=r"^coordinator: there is no coordinator 'bord'; did you mean 'board'\?"):
        kt.run_sync(team(), "g", coordinator="bord")
    with pytest.raises(ValueError, match=r"^Team\.coordinator: there is no coordinator 'bord'"):
        team(coordinator="bord")
    with pytest.raises(ValueError, match=r"^TeamAgent: coordinator: there is no coordinator 'bord'"):
        from kairo_team.agents import TeamAgent

        TeamAgent(team(), coordinator="bord")


def test_constraints_and_guardrails_of_a_configuration_are_the_same_plug_ins() -> None:
    from kairo_team.governance import ConstraintChain

    assert ConstraintChain.from_config([{"name": "timeout", "seconds": 5}]).constraints == (
        plugins.make("constraint", "timeout", {"seconds": 5}),
    )
    assert isinstance(plugins.make("constraint", "timeout", {"seconds": 5}), Timeout)
