"""Evaluators by name: published by packages, one of which is installed here; imported when named and not before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.evaluators import Rubric, load_evaluator
from kairo_team.testing import ScriptedAgent
from tests.governance import conftest

published = conftest.published
pytestmark = pytest.mark.anyio

GROUP = "kairo_team.evaluators"
PLUGIN = """
from kairo_team import EvaluationVerdict

class Strict:
    def __init__(self, *, score: float = 1.0) -> None:
        self.score = score

    async def evaluate(self, context):
        return EvaluationVerdict.passed(self.score)

def nothing():
    return None

def strict_class():
    return Strict

def picky(*, of: str):
    raise TypeError(f"{of} is not to be had")
"""

HEAD = "row,substance,unit,least,most,day"
TABLE = f"{HEAD}\nT-1,Fictamide,mg,10,50,120\nT-2,Fictamide,mg,40,80,160\nT-3,Exemplol,ug,100,400,400\n"
GOOD = "Fictamide: 40 mg, 2 a day [T-1]\nExemplol: 200 ug, 2 a day [T-3]"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A dose table."""
    path = tmp_path / "doses.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


async def review(evaluator: EvaluationStrategy, text: str) -> kt.EvaluationVerdict:
    return await evaluator.evaluate(kt.EvaluationContext(kt.Task("note", "Write it."), kt.Artifact(text), 1))


# ---------------------------------------------------------------- by name


async def test_a_published_evaluator_is_made_by_name_with_its_options(published: Callable[..., None]) -> None:
    published("one", "evaluators_one", strict="Strict")
    verdict = await review(load_evaluator("strict", score=0.5), "a text")
    assert (verdict.outcome, verdict.score) == (kt.VerdictOutcome.PASS, 0.5)
    assert load_evaluator("strict") is not load_evaluator("strict"), "each call makes one of its own"


def test_nothing_is_imported_but_what_is_named(published: Callable[..., None]) -> None:
    published("one", "evaluators_named", strict="Strict")
    published("two", "evaluators_unnamed", other="Strict")
    load_evaluator("strict")
    assert "evaluators_named" in sys.modules
    assert "evaluators_unnamed" not in sys.modules


@pytest.mark.smoke
def test_the_library_alone_imports_nothing_that_is_published() -> None:
    code = "import sys, kairo_team, kairo_team.evaluators; sys.exit('clinical_dose' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "strikt",
            {},
            r"no evaluator 'strikt'; did you mean 'strict'\? there are .*'clinical-dose'.*'strict'",
        ),
        ("strict", {"scores": 1}, r"evaluator 'strict': there is no option 'scores'; its options are 'score'$"),
        ("picky", {}, r"evaluator 'picky': missing a required argument: 'of'; its options are 'of'$"),
        ("picky", {"of": "cheese"}, r"^evaluator 'picky': cheese is not to be had$"),
        (
            "broken",
            {},
            r"'broken' cannot be loaded from 'missing_module:Strict' \(three 1\.0\): ModuleNotFoundError",
        ),
        (
            "absent",
            {},
            r"'absent' cannot be loaded from 'evaluators_two:Absent' \(two 1\.0\): .*no attribute",
        ),
        ("nothing", {}, r"evaluator 'nothing' must have an async evaluate\(context\), not None"),
        ("strict-class", {}, r"evaluator 'strict-class': Strict is a class, not an evaluator"),
    ],
)
def test_what_cannot_be_had_is_said(
    name: str, options: dict[str, Any], message: str, published: Callable[..., None], tmp_path: Path
) -> None:
    known = {"picky": "picky", "absent": "Absent", "nothing": "nothing", "strict_class": "strict_class"}
    published("two", "evaluators_two", strict="Strict", **known)
    published("three", "evaluators_three")
    (tmp_path / "three-1.0.dist-info/entry_points.txt").write_text(f"[{GROUP}]\nbroken = missing_module:Strict\n")
    with pytest.raises(ValueError, match=message):
        load_evaluator(name, **options)


def test_a_name_published_twice_is_refused_with_both_places(published: Callable[..., None]) -> None:
    published("one", "evaluators_first", same="Strict")
    published("two", "evaluators_second", same="Strict")
    with pytest.raises(ValueError, match=r"'same': write 'same@one' \(evaluators_first:Strict\) or 'same@two' \(eval"):
        load_evaluator("same")


# ---------------------------------------------------------------- the package that is installed here


@pytest.mark.smoke
@pytest.mark.real_time
async def test_an_installed_package_reviews_a_team_by_its_name(table: Path) -> None:
    asked: list[str] = []

    def sign(question: kt.HumanRequest) -> bool:
        asked.append(question.subject)
        return True

    writer = ScriptedAgent(["Fictamide: 400 mg, 2 a day [T-1]", GOOD])
    team = kt.Team(
        "ward",
        [kt.Member("writer", writer)],
        coordinator=ExpertTeamCoordinator(),
        evaluators={"dose": load_evaluator("clinical-dose", table=table)},
        runtime=kt.Runtime(gate=kt.CallbackGate(sign)),
    )
    plan = kt.TaskGraph([kt.Task("note", "Write the dose note.", member="writer", evaluator="dose")])
    result = await kt.run(team, kt.TeamExecutionRequest("Dose them.", plan=plan))
    assert result.status is kt.TeamStatus.COMPLETED
    assert asked == [GOOD]
    told = [(finding.criterion, finding.status) for finding in writer.calls[1].findings]
    assert told == [("dose", "open"), ("day", "open")]
    assert len(writer.calls[1].met) == 2, "the form, and that it is cited: neither was ever a defect"
    verdict = result["note"].verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.feedback) == (kt.VerdictOutcome.PASS, "a person approved it")
    writer.assert_complete()


@pytest.mark.sampled
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (GOOD, {}),
        (f"\n{GOOD}\n\n", {}),
        ("Fictamide: 10 mg, 12 a day [T-1]", {}),
        ("", {"form": "the note has no dose", "cited": "cites 0 sources"}),
        ("Fictamide: 40, 3 a day [T-1]", {"form": "line 1: write"}),
        (f"{GOOD}\nThe rest as usual.", {"form": "line 3: write"}),
        ("Fictamide: 4.0 mg, 1 a day [T-1]", {"form": "line 1: write"}),
        ("Fictamide: 40 mg, 1 a day", {"form": "line 1: write", "cited": "cites 0 sources"}),
        ("Fictamide: 40 mg, 1 a day [T-9]", {"cited": "no source is called 'T-9'", "dose": "is no row"}),
        ("Fictamide: 900 mg, 1 a day [T-1,T-2]", {"dose": "[T-1,T-2] is no row"}),
        ("Exemplol: 40 mg, 1 a day [T-1]", {"dose": "[T-1] is for Fictamide, not for Exemplol"}),
        ("Exemplol: 200 mg, 1 a day [T-3]", {"dose": "[T-3] is in ug, not in mg"}),
        ("Fictamide: 9 mg, 1 a day [T-1]", {"dose": "9 mg is not within 10 to 50 mg"}),
        ("Fictamide: 51 mg, 1 a day [T-1]", {"dose": "51 mg is not within 10 to 50 mg"}),
        ("Fictamide: 40 mg, 0 a day [T-1]", {"dose": "0 a day"}),
        ("Fictamide: 40 mg, 4 a day [T-1]", {"day": "Fictamide: 160 a day, at most 120"}),
        (
            "Fictamide: 40 mg, 2 a day [T-1]\nFictamide: 80 mg, 1 a day [T-2]",
            {"day": "Fictamide: 160 a day, at most 120"},
        ),
    ],
)
async def test_a_note_that_breaks_a_rule_goes_back_and_no_other_passes_alone(
    text: str, wrong: dict[str, str], table: Path
) -> None:
    verdict = await review(load_evaluator("clinical-dose", table=table), text)
    found = {finding.criterion: finding.observed for finding in verdict.findings}
    assert found.keys() == wrong.keys()
    assert [part for criterion, part in wrong.items() if part not in found[criterion]] == []
    expected = kt.VerdictOutcome.REVISE if wrong else kt.VerdictOutcome.ESCALATE
    assert verdict.outcome is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have the columns row,substance,unit,least,most,day"),
        ("row,most\nT-1,5", r"must have the columns .*, not \['row', 'most'\]"),
        (HEAD, "the dose table doses.csv has no rows"),
        (f"{HEAD}\nT-1,F,mg,1,2", "line 2: it must have 6 cells, not 5"),
        (f"{HEAD}\nT-1,F,mg,1,2,3,4", "line 2: it must have 6 cells"),
        (f"{HEAD}\n,F,mg,1,2,3", "line 2: a row needs a name that no other has, not ''"),
        (f"{HEAD}\nT-1,F,mg,1,2,3\nT-1,F,mg,1,2,3", "line 3: a row needs a name that no other has, not 'T-1'"),
        (f"{HEAD}\nT-1,F,,1,2,3", "line 2: the substance and the unit must not be blank"),
        (f"{HEAD}\nT-1,F,mg,0.5,2,3", "line 2: least, most and day are whole numbers"),
        (f"{HEAD}\nT-1,F,mg,3,2,3", "line 2: 0 < least <= most <= day does not hold for 3, 2, 3"),
        (f"{HEAD}\nT-1,F,mg,1,2,3\nT-2,F,ug,1,2,3", "has 'F' in two units, 'mg' and 'ug'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_when_the_evaluator_is_made(
    text: str, message: str, table: Path
) -> None:
    table.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^evaluator 'clinical-dose': .*{message}"):
        load_evaluator("clinical-dose", table=table)


def test_its_options_are_checked(table: Path) -> None:
    with pytest.raises(ValueError, match="'clinical-dose': missing a required argument: 'table'; its options are"):
        load_evaluator("clinical-dose")
    with pytest.raises(ValueError, match="'clinical-dose': there is no option 'strict'; its options are 'table'"):
        load_evaluator("clinical-dose", table=table, strict=True)
    with pytest.raises(ValueError, match=r"'clinical-dose': the dose table none\.csv cannot be read"):
        load_evaluator("clinical-dose", table=table.with_name("none.csv"))


def test_a_digest_changes_with_the_table_and_every_criterion_names_its_rule(table: Path) -> None:
    rubric = load_evaluator("clinical-dose", table=table)
    again = load_evaluator("clinical-dose", table=table)
    table.write_text(TABLE.replace("120", "121"), encoding="utf-8")
    other = load_evaluator("clinical-dose", table=table)
    assert isinstance(rubric, Rubric)
    assert isinstance(again, Rubric)
    assert isinstance(other, Rubric)
    assert rubric.digest == again.digest != other.digest
    assert [criterion.text[-7:] for criterion in rubric.criteria] == [f"(house rule HR-{n})"[-7:] for n in range(1, 6)]
