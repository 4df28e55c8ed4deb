"""`kairo judge`: labelled examples in; a table, certificates and a picture out; bad input is one sentence."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kairo_team.evaluators.calibration.certificates import read_certificates
from kairo_team.views.judge_svg import AgreementPanel, RiskCurve, draw_agreement, draw_risk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "calibration.md"
EXAMPLE = "examples/judge_calibration.py"
LABELLED = "examples/judge_calibration_data/labelled.jsonl"
BY_EXAMPLE = ("--judge", f"{EXAMPLE}:judge", "--rubric", EXAMPLE)
Kairo = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


@pytest.mark.exhaustive
def test_the_transcript_in_the_docs_is_what_the_command_prints(kairo: Kairo, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    transcripts = re.findall(
        r"^```\n\$ kairo judge (calibrate|score) (.*?[^\\])\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    assert [name for name, _, _ in transcripts] == ["calibrate", "score"]
    for name, line, printed in transcripts:
        words = line.replace("\\\n", " ").split()
        arguments = [str(tmp_path / word) if word.endswith((".json", ".svg")) else word for word in words]
        said = kairo("judge", name, *arguments)
        assert (said.code, said.err) == (0, "")
        assert trimmed(said.out) == trimmed(printed)
    for picture in ("risk", "score"):
        drawn = (tmp_path / f"{picture}.svg").read_text()
        assert drawn == (ROOT / "docs" / f"calibration-{picture}.svg").read_text()
    assert [one.outcome for one in read_certificates((tmp_path / "certificates.json").read_text())] == [
        "pass",
        "revise",
    ]


def test_the_labelled_examples_are_those_that_the_example_makes() -> None:
    made = runpy.run_path(str(ROOT / EXAMPLE))["examples"]()
    assert [json.loads(line) for line in (ROOT / LABELLED).read_text().splitlines()] == list(made)


@pytest.mark.exhaustive
def test_the_json_document_holds_certificates_curves_and_report(kairo_json: Kairo) -> None:
    said = kairo_json("judge", "calibrate", LABELLED, *BY_EXAMPLE, "--alpha-revise", "none", "--json")
    document = said.document
    assert (said.code, document["exit_code"], said.err) == (0, 0, "")
    assert [(one["outcome"], one["delta"]) for one in document["certificates"]] == [("pass", 0.1)]
    assert {curve["attempt"] for curve in document["curves"]} == {"1", "2"}
    assert document["report"]["false_pass"]["n"] > 0
    assert document["usage"]["tokens"] > 0


@pytest.mark.exhaustive
def test_votes_are_asked_for_and_certified(kairo: Kairo, tmp_path: Path) -> None:
    place = tmp_path / "certificates.json"
    made = kairo("judge", "calibrate", LABELLED, *BY_EXAMPLE, "--votes", "3", "--out", place)
    assert (made.code, made.err) == (0, "")
    found = read_certificates(place.read_text())
    assert {one.threshold for one in found} == {1.0}, "the example's judge does not waver"
    assert {one.subject.parameters["stages"][0]["votes"][0] for one in found} == {3}
    given = ("judge", "score", LABELLED, *BY_EXAMPLE, "--certificates", place)
    assert "it was made for another parameters" in kairo(*given).out
    assert "it was made for another" not in kairo(*given, "--votes", 3).out


def test_no_votes_are_refused(kairo: Kairo) -> None:
    said = kairo("judge", "score", LABELLED, *BY_EXAMPLE, "--votes", "0")
    assert said.code == 2
    assert "--votes" in said.err


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """The first twenty of the labelled examples."""
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join((ROOT / LABELLED).read_text().splitlines()[:20]) + "\n\n")
    return few


def test_where_nothing_can_be_promised_the_exit_code_says_so_and_the_file_holds_nothing(
    kairo: Kairo, tmp_path: Path, few: Path
) -> None:
    out = tmp_path / "certificates.json"
    said = kairo("judge", "calibrate", few, *BY_EXAMPLE, "--out", out)
    assert said.code == 4
    assert "No certificate: all is left to a human" in said.out
    assert "label more" in said.out
    assert read_certificates(out.read_text()) == []


@pytest.mark.exhaustive
def test_two_judges_are_a_cascade(kairo_json: Kairo) -> None:
    judges = ("--judge", f"{EXAMPLE}:judge", "--judge", f"{EXAMPLE}:judge", "--rubric", f"{EXAMPLE}:rubric")
    document = kairo_json("judge", "calibrate", LABELLED, *judges, "--alpha-revise", "none", "--json").document
    assert len(document["certificates"][0]["subject"]["parameters"]["stages"]) == 2


@pytest.mark.exhaustive
def test_score_says_why_certificates_do_not_count(
    kairo: Kairo, tmp_path: Path, team_file: Callable[..., Path], few: Path
) -> None:
    out = tmp_path / "certificates.json"
    assert kairo("judge", "calibrate", LABELLED, *BY_EXAMPLE, "--out", out).code == 0
    other = team_file(
        "from kairo_team.evaluators import Criterion, Rubric\nr = Rubric([Criterion('plain', 'x', by='judge')])\n"
    )
    said = kairo("judge", "score", few, "--judge", f"{EXAMPLE}:judge", "--rubric", other, "--certificates", out)
    assert said.code == 0
    assert "it was made for another rubric and another prompt" in said.out
    assert re.search(r"Under its certificates\n +decides by itself +0 of 20", said.out)


def test_a_picture_is_not_drawn_over_what_is_read(kairo: Kairo) -> None:
    said = kairo("judge", "score", LABELLED, *BY_EXAMPLE, "--picture", EXAMPLE)
    assert (said.code, "--picture" in said.err, "is a file that is read here" in said.err) == (2, True, True)


def test_scores_are_a_document_too(kairo_json: Kairo, few: Path) -> None:
    said = kairo_json("judge", "score", few, *BY_EXAMPLE, "--json")
    assert (said.code, said.document["calibrated"], said.document["why_not"]) == (0, None, [])
    assert said.document["report"]["coverage"]["k"] == 20


LEVELS = """
import re
from kairo_team.evaluators import Criterion, Rubric
from tests.evaluators.judge_rig import Judging

rubric = Rubric([Criterion("tone", "the tone is right", by="judge", kind="graded", levels=("poor", "fair", "good"))])

class Reading(Judging):
    def reply(self, request):
        self.says = {"tone": re.search("poor|fair|good", request.messages[1].text)[0]}
        return super().reply(request)

judge = Reading({}).model
"""


def test_score_prints_and_draws_each_criterion(kairo: Kairo, tmp_path: Path, team_file: Callable[..., Path]) -> None:
    file, drawn = team_file(LEVELS), tmp_path / "score.svg"
    rows = [("poor", "poor", 8), ("fair", "fair", 6), ("good", "good", 5), ("fair", "good", 2), ("poor", "good", 1)]
    lines = [
        {"artifact": f"{says} {human} {n}", "task": "t", "passed": human != "poor", "levels": {"tone": human}}
        for human, says, many in rows
        for n in range(many)
    ]
    given = file_with(tmp_path, map(json.dumps, lines))
    said = kairo("judge", "score", given, "--judge", f"{file}:judge", "--rubric", file, "--picture", drawn)
    assert (said.code, said.err) == (0, "")
    assert "tone       19 of 22, 86.4% (65.1% to 97.1%)  poor: 9 of 22, 40.9% (20.7% to 63.6%)" in said.out
    assert re.search(r"tone: the human says .*\n +poor +fair +good +no answer\n +poor +8 +0 +1 +0\n", said.out)
    root = ET.fromstring(drawn.read_text())  # noqa: S314 - our own text
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "title"]
    assert titles == ["Decisions", "tone"]


# ---------------------------------------------------------------- bad input


def file_with(tmp_path: Path, lines: Iterable[str]) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(lines))
    return path


GOOD = '{"artifact": "a", "task": "t", "passed": true}'
BAD_LABELS = {
    "": "holds no examples",
    "nonsense": "line 1: it is not JSON",
    "[1]": "line 1: it is not an object",
    '{"artifact": "a", "task": "t"}': "line 1: it has no 'passed'",
    '{"artifact": "a", "task": "t", "passed": "yes"}': "line 1: LabelledArtifact.passed must be True or False",
    '{"artifact": "a", "task": "t", "passed": true, "attempt": 0}': "line 1: LabelledArtifact.attempt must be",
    '{"artifact": "a", "task": " ", "passed": true}': "line 1: LabelledArtifact.task must not be blank",
    '{"artifact": "a", "task": "t", "passed": true, "score": 1}': "line 1: it has 'score'",
    f"{GOOD}\n\n{GOOD}": "line 3: it is the same artifact as line 1",
    GOOD + "\n" + GOOD.replace("true", "false"): "line 2: it is the same artifact as line 1",
}


@pytest.mark.parametrize("text", BAD_LABELS)
def test_a_file_of_labels_that_cannot_be_read_is_refused_in_a_sentence(kairo: Kairo, tmp_path: Path, text: str) -> None:
    said = kairo("judge", "score", file_with(tmp_path, [text]), *BY_EXAMPLE)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert BAD_LABELS[text] in said.err


UNFIT = """
from kairo_team.evaluators import Criterion, Rubric
from tests.evaluators.test_judge_question import Flatters

unfit = Flatters()
rubric = Rubric([Criterion("good", "it does the task", by="judge")])
"""


@pytest.mark.parametrize("command", ["score", "calibrate"])
def test_third_o60_an_unfit_judge_is_said_to_be_unfit_once(
    kairo: Kairo, tmp_path: Path, team_file: Callable[..., Path], command: str
) -> None:
    labels = file_with(tmp_path, [GOOD, GOOD.replace('"a"', '"b"')])
    file = team_file(UNFIT)
    said = kairo("judge", command, labels, "--judge", f"{file}:unfit", "--rubric", f"{file}:rubric")
    assert said.out.count("it is not fit to judge, name a larger model") == 1, said.out
    assert said.out.splitlines()[-1].startswith("No answer, most often: the judge ")


MANY = """
from kairo_team.evaluators import Criterion, Rubric
a = Rubric([Criterion("x", "y", by="judge")])
b = a
c = Rubric([Criterion("z", "y", check=bool)])
"""
BAD = {
    "no file": (("nowhere.jsonl", *BY_EXAMPLE), "there is no file"),
    "a binary file": (("BINARY", *BY_EXAMPLE), "is not UTF-8"),
    "no rubric file": ((LABELLED, "--judge", "a:b", "--rubric", "nowhere.py"), "builds a Rubric, or of data in"),
    "no rubric in it": ((LABELLED, "--judge", "a:b", "--rubric", "examples/map_reduce.py"), "builds no Rubric"),
    "several rubrics": ((LABELLED, "--judge", "a:b", "--rubric", "MANY"), "several rubrics"),
    "no such rubric": ((LABELLED, "--judge", "a:b", "--rubric", "MANY:d"), "no rubric 'd'"),
    "nobody is asked": ((LABELLED, "--judge", "a:b", "--rubric", "MANY:c"), "no criterion of the rubric asks"),
    "no such model": ((LABELLED, "--judge", "nobody:x", "--rubric", EXAMPLE), "nobody"),
    "no such judge": ((LABELLED, "--judge", f"{EXAMPLE}:nobody", "--rubric", EXAMPLE), "has no 'nobody'"),
    "no judge at all": ((LABELLED, "--judge", f"{EXAMPLE}:LONG", "--rubric", EXAMPLE), "must be a model's name"),
    "alpha": ((LABELLED, *BY_EXAMPLE, "--alpha", "2"), "alpha must be a number above 0"),
    "alpha for REVISE": ((LABELLED, *BY_EXAMPLE, "--alpha-revise", "much"), "--alpha-revise must be"),
    "delta": ((LABELLED, *BY_EXAMPLE, "--delta", "0"), "delta must be a number above 0"),
    "budget": ((LABELLED, *BY_EXAMPLE, "--budget", "words=3"), "--budget limits"),
    "a small budget": ((LABELLED, *BY_EXAMPLE, "--budget", "tokens=3000"), "give more with --budget"),
    "hardly a budget": ((LABELLED, *BY_EXAMPLE, "--budget", "tokens=3"), "give more with --budget"),
    "repeats": ((LABELLED, *BY_EXAMPLE, "--repeats", "0"), "--repeats"),
    "no judge": ((LABELLED, "--rubric", EXAMPLE), "--judge"),
    "out in no directory": ((LABELLED, *BY_EXAMPLE, "--out", "nowhere/c.json"), "there is no directory"),
    "out is a directory": ((LABELLED, *BY_EXAMPLE, "--out", "docs"), "is a directory"),
    "out is an input": ((LABELLED, *BY_EXAMPLE, "--out", LABELLED), "is a file that is read here"),
    "svg is an input": ((LABELLED, *BY_EXAMPLE, "--svg", EXAMPLE), "is a file that is read here"),
    "out is the judge": ((LABELLED, *BY_EXAMPLE, "--out", EXAMPLE), "is a file that is read here"),
    "out cannot be written": (("FEW", *BY_EXAMPLE, "--out", "/proc/c.json"), "cannot be written"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(
    kairo: Kairo, tmp_path: Path, team_file: Callable[..., Path], few: Path, name: str
) -> None:
    arguments, complaint = BAD[name]
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    places = {"BINARY": str(tmp_path / "binary.jsonl"), "MANY": str(team_file(MANY)), "FEW": str(few)}
    said = kairo("judge", "calibrate", *(re.sub("BINARY|MANY|FEW", lambda m: places[m[0]], one) for one in arguments))
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert complaint in said.err


@pytest.mark.parametrize("text", ["", "{}", '{"certificates": [{}]}'])
def test_certificates_that_are_none_are_refused(kairo: Kairo, tmp_path: Path, text: str) -> None:
    place = tmp_path / "c.json"
    place.write_text(text)
    said = kairo("judge", "score", LABELLED, *BY_EXAMPLE, "--certificates", place)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "certificates" in said.err
    assert kairo("judge", "score", LABELLED, *BY_EXAMPLE, "--certificates", tmp_path / "no.json").code == 2


@pytest.mark.parametrize("words", [(), ("praise",), ("calibrate",), ("score", LABELLED)])
def test_half_a_command_is_answered_with_a_sentence(kairo: Kairo, words: tuple[str, ...]) -> None:
    said = kairo("judge", *words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "Usage:" not in said.err


def test_a_refusal_goes_into_the_document_too(kairo_json: Kairo) -> None:
    said = kairo_json("judge", "score", "nowhere.jsonl", *BY_EXAMPLE, "--json")
    assert (said.code, said.document["exit_code"], said.document["status"]) == (2, 2, "refused")


# ---------------------------------------------------------------- the picture


def test_the_picture_marks_what_was_chosen_and_says_where_nothing_was() -> None:
    points = [(0.2, 0.0, 0.06), (0.5, 0.04, 0.09), (0.9, 0.3, 0.4)]
    picture = draw_risk([RiskCurve("PASS & co", 0.1, points, 0.5), RiskCurve("REVISE", 0.1, [], None)])
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "PASS & co" in texts
    assert texts.count("no threshold keeps the promise") == 1
    assert len([one for one in root.iter() if one.get("class") == "chosen"]) == 1
    assert len([one for one in root.iter() if one.get("class") == "risk"]) == 4


def test_nothing_of_the_agreement_lies_outside_of_its_picture() -> None:
    levels = ("worse than anything", "fair", "good")
    for panels in (1, 3):
        panel = AgreementPanel("tone & <b>", levels, ((9, 0, 0), (0, 0, 9), (0, 9, 0)), (0, 5, 0), (1.0, 0.0, 1.0), 1.0)
        empty = AgreementPanel("none", ("a", "b"), ((0, 0), (0, 0)), (0, 0), None, None)
        root = ET.fromstring(draw_agreement([panel, empty] * panels))  # noqa: S314 - our own text
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        assert "worse than…" in [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        for part in root.iter("{http://www.w3.org/2000/svg}g"):
            x, y = map(float, re.findall(r"[\d.]+", part.get("transform", "")))
            for one in part:
                left, top = (float(one.get(f"c{name}", one.get(name, 0))) for name in ("x", "y"))
                assert 0 <= x + left <= width
                assert 0 <= y + top <= height
                assert x + left + float(one.get("width", 0)) <= width


def test_nothing_in_the_picture_lies_outside_of_it() -> None:
    for number in (1, 2, 3, 5):
        picture = draw_risk([RiskCurve("PASS", 0.9, [(1.0, 1.0, 1.0), (1.0, 0.0, 1.0)], 1.0)] * number)
        root = ET.fromstring(picture)  # noqa: S314 - our own text
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        for panel in root.iter("{http://www.w3.org/2000/svg}g"):
            x, y = map(float, re.findall(r"[\d.]+", panel.get("transform", "")))
            for dot in panel.iter("{http://www.w3.org/2000/svg}circle"):
                assert 0 <= x + float(dot.get("cx", 0)) <= width
                assert 0 <= y + float(dot.get("cy", 0)) <= height
