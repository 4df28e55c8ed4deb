"""`kairo plugins` and `--coordinator`: what is listed, what is found wrong, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kairo_team import plugins
from kairo_team.errors import MissingExtra
from tests import plugin_packages
from tests.plugin_packages import Install

install = plugin_packages.install
TeamFile = Callable[..., Path]

GATES = """
from kairo_team.gates import DeferGate

def good(): return DeferGate()
def of(table): return DeferGate()
class Wrong: pass
"""
TEAM = """
async def good(assignment): return "fine"
team = kt.Team("duo", [kt.Member("a", good)])
plan = kt.TaskGraph([kt.Task("first", "x")])
"""
OWN = """
from kairo_team.coordinators import TaskDispatchCoordinator

class Acme(TaskDispatchCoordinator):
    async def execute(self, request, team):
        print("by acme")
        return await super().execute(request, team)
"""


# ---------------------------------------------------------------- kairo plugins


def test_every_plug_in_point_is_listed_with_its_contract_its_kit_and_its_group(kairo: Any) -> None:
    said = kairo("plugins")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    for kind, point in plugins.KINDS.items():
        head = f"{kind}: contract {point.contract}{point.mark}, kit {point.kit or '-'}, entry points {point.group}"
        first = lines[lines.index(head) + 1]
        assert first.split()[0] == next(iter([*sorted(point.built_in), "none"]))
    assert lines[-1] == "How to publish one, and to test it with its kit of kairo_team.tck: docs/extending.md"


def test_what_a_contract_promises_stands_beside_its_name(kairo: Any) -> None:
    assert "gate: contract HumanGate 1.5 (experimental), kit HumanGateTCK" in kairo("plugins", "gate").out
    assert "tool: contract Tool, kit -, entry" in kairo("plugins", "tool").out, "a tool has no protocol"


def test_one_plug_in_point_alone_with_the_packages_that_publish_it(kairo: Any, install: Install) -> None:
    install("acme-gates", {"gate": {"acme": "acme_gates:good", "pager-duty": "acme_gates:of"}}, GATES)
    assert kairo("plugins", "gate").out.splitlines() == [
        "gate: contract HumanGate 1.5 (experimental), kit HumanGateTCK, entry points kairo_team.gates",
        "  callback    built in        kairo_team.gates:CallbackGate",
        "  console     built in        kairo_team.gates:ConsoleGate",
        "  defer       built in        kairo_team.gates:DeferGate",
        "  journal     built in        kairo_team.gates:JournalGate",
        "  acme        acme-gates 1.0  acme_gates:good",
        "  pager-duty  acme-gates 1.0  acme_gates:of",
        "How to publish one, and to test it with its kit of kairo_team.tck: docs/extending.md",
    ]
    assert "acme_gates" not in sys.modules


def test_a_plug_in_point_that_is_none_is_refused(kairo: Any) -> None:
    said = kairo("plugins", "gates")
    assert said.code == 2
    assert said.err.startswith("kairo: there is no plug-in point 'gates'; did you mean 'gate'? there are agent, ")


def test_check_makes_what_needs_no_options_and_names_what_is_wrong(kairo: Any, install: Install) -> None:
    targets = {"good": "acme_gates:good", "of": "acme_gates:of", "wrong": "acme_gates:Wrong", "gone": "acme_gone:X"}
    install("acme-gates", {"gate": targets}, GATES)
    (install("acme-bytes", {}) / "entry_points.txt").write_bytes(b"\xff")
    said = kairo("plugins", "gate", "--check")
    assert said.code == 8
    lines = said.out.splitlines()
    own = lines[lines.index("  good      acme-gates 1.0  acme_gates:good") - 2 :]
    assert own[:7] == [
        "  gone      acme-gates 1.0  acme_gone:X",
        own[1],
        "  good      acme-gates 1.0  acme_gates:good",
        "  of        acme-gates 1.0  acme_gates:of",
        "    note: it needs 'table'; its shape is checked when it is made",
        "  wrong     acme-gates 1.0  acme_gates:Wrong",
        own[6],
    ]
    assert own[1].startswith("    problem: gate 'gone' cannot be loaded from 'acme_gone:X' (acme-gates 1.0): ModuleNot")
    assert own[6].startswith("    problem: gate 'wrong' must have an async decide(question), not <acme_gates.Wrong ")
    assert own[7].startswith("problem: the entry points of 'acme-bytes' cannot be read: UnicodeDecodeError")
    assert said.err == "kairo: 8 plug-ins checked: 3 problems\n"


def test_what_is_built_in_is_sound(kairo: Any) -> None:
    said = kairo("plugins", "--check")
    assert (said.code, "problem" in said.out) == (0, False)
    assert said.err.endswith(" plug-ins checked: nothing is wrong\n")


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_name_of_two_packages_is_listed_twice_with_how_each_is_named(
    options: tuple[str, ...], kairo: Any, install: Install
) -> None:
    install("acme-one", {"gate": {"acme": "acme_one:good"}}, GATES)
    install("acme-two", {"gate": {"acme": "acme_two:good"}}, GATES)
    said = kairo("plugins", "gate", *options)
    assert said.code == (8 if options else 0)
    assert "  acme      acme-one 1.0  acme_one:good\n    problem: 'acme@acme-two' has the same name: " in said.out
    assert "  acme      acme-two 1.0  acme_two:good\n    problem: 'acme@acme-one' has the same name: " in said.out


def test_hostile_names_and_packages_command_no_terminal(kairo: Any, install: Install) -> None:
    source = "print('\\x1b[2Jloading')\nimport sys\nsys.exit('\\x1b[2J')"
    install("acme-odd", {"gate": {"red\x1b[31m": "acme_odd:X"}}, source)
    said = kairo("plugins", "gate")
    assert "\x1b" not in said.out
    assert "  red?[31m  acme-odd 1.0  acme_odd:X" in said.out
    said = kairo("plugins", "gate", "--check")
    assert said.code == 8
    assert "it ended the program (SystemExit) when it was imported or called" in said.out
    assert "\x1b" not in said.out.replace("\x1b[2Jloading", ""), "what the package itself prints is its own"


def test_the_document_has_every_field(kairo_json: Any, install: Install) -> None:
    install("acme-gates", {"gate": {"acme": "acme_gates:Wrong", "of": "acme_gates:of"}}, f"print('hello')\n{GATES}")
    said = kairo_json("plugins", "gate", "--check", "--json")
    assert said.code == said.document["exit_code"] == 8
    assert said.document["points"] == [
        {
            "kind": "gate",
            "contract": "HumanGate",
            "version": "1.5",
            "stability": "experimental",
            "kit": "HumanGateTCK",
            "group": "kairo_team.gates",
        }
    ]
    first, *_, wrong, of = said.document["plugins"]
    assert (first["name"], first["distribution"], first["built_in"]) == ("callback", "kairo-team", True)
    problem = wrong.pop("problem")
    assert problem.startswith("gate 'acme' must have an async decide(question)")
    assert wrong == {
        "kind": "gate",
        "name": "acme",
        "full_name": "acme@acme-gates",
        "distribution": "acme-gates",
        "version": "1.0",
        "target": "acme_gates:Wrong",
        "built_in": False,
        "note": None,
    }
    assert (of["problem"], of["note"]) == (None, "it needs 'table'; its shape is checked when it is made")
    assert said.document["unreadable"] == []
    assert "hello" in said.err


def test_an_interrupt_names_what_was_imported(kairo: Any, install: Install) -> None:
    install("acme-slow", {"gate": {"slow": "acme_slow:X"}}, "raise KeyboardInterrupt")
    said = kairo("plugins", "gate", "--check")
    assert said.code == 130
    assert said.err.splitlines()[0] == "kairo: interrupted while slow@acme-slow was imported from acme_slow:X"


@pytest.mark.smoke
def test_the_installed_program_lists_its_plug_ins(program: Any) -> None:
    said = program("plugins", "coordinator", "--json")
    assert said.code == 0
    assert {"board", "expert"} <= {one["name"] for one in json.loads(said.out)["plugins"]}


# ---------------------------------------------------------------- --coordinator


def test_a_job_takes_a_coordinator_by_name(kairo: Any, team_file: TeamFile, install: Install) -> None:
    install("acme-all", {"coordinator": {"acme": "acme_all:Acme"}}, OWN)
    file = team_file(TEAM)
    assert "by acme" in kairo("run", file, "--coordinator", "acme").out
    assert "by acme" not in kairo("run", file, "--coordinator", "board").out
    assert kairo("check", file, "--coordinator", "expert").code == 0
    assert kairo("graph", file, "--coordinator", "board", "--svg", file.with_suffix(".svg")).code == 0


@pytest.mark.real_time
def test_the_coordinator_of_the_command_line_is_used_again(
    kairo: Any, team_file: TeamFile, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cli.journal_team import ASKS

    monkeypatch.setenv("KAIRO_JOURNAL", str(tmp_path / "runs.db"))
    info = install("acme-all", {"coordinator": {"acme": "acme_all:Acme"}}, OWN.replace("super()", "team.coordinator"))
    file = team_file(ASKS)
    assert kairo("run", file, "--run-id", "r-0001", "--coordinator", "acme").code == 7
    assert kairo("answer", "r-0001", "approve").code == 0
    (info / "entry_points.txt").write_text("")
    said = kairo("resume", "r-0001")
    assert said.code == 2
    assert said.err.startswith(
        "kairo: run r-0001 began with a --coordinator: there is no coordinator 'acme'; there are"
    )
    (info / "entry_points.txt").write_text("[kairo_team.coordinators]\nacme = acme_all:Acme\n")
    said = kairo("resume", "r-0001")
    assert (said.code, "by acme" in said.out) == (0, True)


@pytest.mark.parametrize("command", ["run", "check", "graph"])
def test_an_unknown_coordinator_is_refused(command: str, kairo: Any, team_file: TeamFile) -> None:
    said = kairo(command, team_file(TEAM), "--coordinator", "bord")
    assert said.code == 2
    assert said.err.startswith(
        "kairo: --coordinator: there is no coordinator 'bord'; did you mean 'board'? there are 'board', 'expert'"
    )


def test_the_schemas_are_listed(kairo: Any) -> None:
    said = kairo("schema")
    assert (said.code, said.err) == (0, "")
    assert "kairo schema rubric" in said.out.splitlines()


# ---------------------------------------------------------------- kairo plugins KIND --kit


def test_a_kit_is_listed_with_its_factories_capabilities_and_clauses(kairo: Any) -> None:
    said = kairo("plugins", "tool-source", "--kit")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == (
        "tool-source: contract ToolSource 1.8 (experimental), kit ToolSourceTCK, entry points kairo_team.tool_sources"
    )
    place = lines.index("    make_failing_source(cls) -> ToolSource")
    assert lines[place + 1].startswith("      needed, or say can_fail = False. Make a source that cannot be connected")
    place = lines.index("    shows_open: bool = False")
    assert lines[place + 1].startswith("      Whether `count_open` counts")
    assert "    virtual_time: bool = True" in lines
    assert [line.split(".")[0].strip() for line in lines if line.startswith("    C")] == [f"C{n}" for n in range(1, 9)]


def test_every_kit_is_listed_and_what_has_none_says_so(kairo: Any) -> None:
    said = kairo("plugins", "--kit")
    assert said.code == 0
    heads = [line.partition(":")[0] for line in said.out.splitlines() if not line.startswith(" ")]
    assert heads == list(plugins.KINDS)
    assert said.out.endswith("  no kit: it is tested like any function\n")


def test_the_document_of_a_kit_has_all_of_it(kairo_json: Any) -> None:
    (gate,) = kairo_json("plugins", "gate", "--kit", "--json").document["points"]
    assert gate["asks"]["factories"] == [
        {
            "signature": "make_gate(cls, person: Person) -> HumanGate",
            "what": "Make a gate that asks this person. A fresh one each time.",
            "instead": None,
            "has_default": False,
        }
    ]
    assert {one["name"] for one in gate["asks"]["capabilities"]} == {
        *("asks", "actions", "silence"),
        *("virtual_time", "backends"),
    }
    assert list(gate["asks"]["clauses"]) == ["C1", "C2", "C3", "C4", "C5"]


def test_the_document_of_what_has_no_kit_says_so(kairo_json: Any) -> None:
    (tool,) = kairo_json("plugins", "tool", "--kit", "--json").document["points"]
    assert tool["asks"] is None


def test_a_kit_without_its_extra_is_refused_with_what_to_install(kairo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kit: Any) -> Any:
        raise MissingExtra("kairo_team.tck (without pytest)", "tck")

    monkeypatch.setattr("kairo_team.cli.kit_parts.parts_of_kit", missing)
    said = kairo("plugins", "gate", "--kit")
    assert said.code == 2
    assert said.err.startswith("kairo: --kit: kairo_team.tck (without pytest) needs the extra 'tck'")
