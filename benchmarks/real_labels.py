"""Real judges' answers against people's labels: tables of docs/calibration.md and docs/strategies.md.

    python -m benchmarks.real_labels

The folder `../shared/judge-data` of the repository, or the one that KAIRO_JUDGE_DATA names, has `llmbar.json` and
`pandalm.json`: people's choices between two answers (LLMBar, MIT; PandaLM, Apache-2.0) and the recorded choices of real
judges. A judge here is asked by the library as in a run, and gives the recorded answer: `kairo judge score FILE --judge
benchmarks/real_labels.py:gpt_4 --rubric benchmarks/real_labels.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    PanelEvaluationStrategy,
    Proportion,
    Rubric,
    calibrate,
    fit_weights,
    score_judge,
)
from kairo_team.evaluators.calibration.agreement import agreement
from kairo_team.evaluators.calibration.thresholds import Reviewed, Said, Side, choose, standing
from kairo_team.evaluators.judge_reply import is_decided, leading, share
from kairo_team.testing import ScriptedJudge, read_question
from kairo_team.testing.scripted_judge import CANNOT_TELL

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest

VARIABLE: Final = "KAIRO_JUDGE_DATA"
ALPHA: Final = 0.15
DELTA: Final = 0.1
REDRAWS: Final = 100
LABELS: Final = 300
"""Labels of one redraw."""
_ROOT: Final = Path(__file__).resolve().parent.parent
_TASK: Final = "Say whether the first of the two answers is the better one."
_SEED: Final = 1
rubric = Rubric([Criterion("first", "the first of the two answers is the better one", by="judge")])
WORDINGS: Final = (
    "Vanilla",
    "CoT",
    "Vanilla_NoRules",
    "Swap",
    "Swap_CoT",
    "Vanilla_1shot",
    "Vanilla_2shot",
    "Rating",
    "Rating_NoRules",
)
"""The prompts of LLMBar, in the order in which they are taken where a judge has only the first ones."""


def folder() -> Path | None:
    """Return the folder of the data; None where it is not there."""
    place = Path(os.environ.get(VARIABLE) or _ROOT.parent / "shared" / "judge-data")
    return place if (place / "llmbar.json").is_file() else None


@cache
def data(name: str) -> dict[str, Any]:
    """Return one of the files."""
    place = folder()
    if place is None:
        raise SystemExit(f"set {VARIABLE} to the folder with llmbar.json and pandalm.json")
    made: dict[str, Any] = json.loads(place.joinpath(f"{name}.json").read_text("utf-8"))
    return made


# ---------------------------------------------------------------- judges


def judges() -> dict[str, str]:
    """Return the names in the data of LLMBar's judges, by their names here."""
    return {name.lower().replace("-", "_"): name for name in data("llmbar")["judges"]}


def votes(judge: str, pair: int, wordings: int = len(WORDINGS)) -> tuple[int, int]:
    """Return how many of a judge's answers choose the first and the second; both orders of each wording count."""
    said = answers(judge, pair, wordings)
    return said.count(1), said.count(0)


def answers(judge: str, pair: int, wordings: int = len(WORDINGS)) -> list[int | None]:
    """Return a judge's answers on a pair: 1 chooses the first, 0 the second, None neither."""
    given = data("llmbar")["judges"][judge]
    there = [one for one in WORDINGS if f"{one} True" in given][:wordings]
    return [given[f"{wording} {order}"][pair] for wording in there for order in (True, False)]


class Recorded(ScriptedJudge):
    """A judge that gives the recorded answer: what most of its votes say, and how many as its confidence."""

    def __init__(self, judge: str, wordings: int = len(WORDINGS)) -> None:
        super().__init__(self._says, name=f"test:{judge}")
        self._judge, self._wordings = judge, wordings

    def votes_on(self, work: str) -> tuple[int, int]:
        """Return how many recorded answers on a pair choose the first and the second."""
        return votes(self._judge, int(work.removeprefix("pair ")), self._wordings)

    def _says(self, _: str, work: str) -> str:
        if not work.startswith("pair "):
            return "met"  # the library's own text
        first, second = self.votes_on(work)
        return CANNOT_TELL if first == second else "met" if first > second else "not met"

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply, with the share of the votes as its confidence."""
        work = read_question(request).work
        first, second = self.votes_on(work) if work.startswith("pair ") else (1, 0)
        return {**super().reply(request), "confidence": max(first, second) / max(first + second, 1)}


def __getattr__(name: str) -> Recorded:
    """Return a judge by its name, such as `gpt_4`; `gpt_4_x3` has the votes of its first three wordings."""
    judge, _, wordings = name.partition("_x")
    if name.startswith("_") or folder() is None or judge not in judges():
        raise AttributeError(f"there is no judge {name!r}")
    return Recorded(judges()[judge], int(wordings) if wordings else len(WORDINGS))


# ---------------------------------------------------------------- calibration


def labelled() -> list[LabelledArtifact]:
    """Return LLMBar's pairs: passed where people choose the first."""
    return [
        LabelledArtifact(f"pair {place}", _TASK, passed=label == 1)
        for place, label in enumerate(data("llmbar")["label"])
    ]


def halves() -> tuple[list[LabelledArtifact], list[LabelledArtifact]]:
    """Return a random half to calibrate on, and the other to report on."""
    pairs = labelled()
    Random(_SEED).shuffle(pairs)  # noqa: S311 - a choice, not a secret
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]


def command(*words: str) -> dict[str, Any]:
    """Run a command of `kairo judge` and return its document."""
    made = subprocess.run(  # noqa: S603 - this library's own command
        [sys.executable, "-m", "kairo_team", "judge", *words, "--json"], cwd=_ROOT, capture_output=True, check=False
    )
    document: dict[str, Any] = json.loads(made.stdout)
    return document


def scored(judge: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Calibrate a judge on one half and score it on the other, on the command line; return both documents."""
    given = ("--judge", f"benchmarks/real_labels.py:{judge}", "--rubric", "benchmarks/real_labels.py:rubric")
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("labels.jsonl", "others.jsonl", "certificates.json")]
        for file, half in zip(files, halves(), strict=False):
            lines = [{"artifact": one.artifact, "task": one.task, "passed": one.passed} for one in half]
            file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
        labels, others, certificates = map(str, files)
        alphas = ("--alpha", str(ALPHA), "--delta", str(DELTA))
        made = command("calibrate", labels, *given, *alphas, "--out", certificates)
        return made, command("score", others, *given, "--certificates", certificates)


def reviewed(judge: str) -> list[Reviewed]:
    """Return what a judge decides on each pair, and what people do."""
    made = __getattr__(judge)
    found: list[Reviewed] = []
    for one in labelled():
        first, second = made.votes_on(one.artifact)
        side: Side = "pass" if first > second else "revise"
        said: Said = ((side, max(first, second) / (first + second)),) if first != second else ()
        found.append(Reviewed(one.passed, said))
    return found


def promises(judge: str) -> tuple[int, int, float]:
    """Return in how many redraws of labels all promises are true of all pairs, and how many have a promise.

    The last is the mean share of all pairs that the judge then decides by itself.
    """
    return redrawn(reviewed(judge))


def redrawn(population: Sequence[Reviewed]) -> tuple[int, int, float]:
    """Return the same of what was decided on all pairs."""
    lots = Random(_SEED)  # noqa: S311 - a choice, not a secret
    kept = promised = decided = 0
    for _ in range(REDRAWS):
        drawn = lots.choices(population, k=LABELS)
        walks = choose(drawn, {"pass": ALPHA, "revise": ALPHA}, DELTA)
        thresholds: dict[Side, float] = {
            side: walk.chosen.threshold for (_, side), walk in walks.items() if walk.chosen
        }
        promised += bool(thresholds)
        decided += sum(standing(one.stages, thresholds) is not None for one in population)
        kept += all(_wrong(population, side, least) <= ALPHA for side, least in thresholds.items())
    return kept, promised, decided / (REDRAWS * len(population))


def _wrong(population: Iterable[Reviewed], side: Side, least: float) -> float:
    decided = [one for one in population if standing(one.stages, {side: least}) is not None]
    return sum(one.passed != (side == "pass") for one in decided) / len(decided) if decided else 0.0


ROWS: Final = ("gpt_4_x1", "gpt_4_x3", "gpt_4", "palm2", "falcon", "llama2", "chatgpt", "chatgpt_0301")
DECISIONS: Final = (
    "decides by itself",
    "wrong of these",
    "redraws in which all promises are true",
    "redraws with a promise",
    "decided by itself in a redraw",
)
"""Columns on what a calibrated judge decides without a person."""


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def draw_calibration() -> str:
    """Return the table of docs/calibration.md in Markdown."""
    lines = _head("judge", "agrees with people", "kappa", *DECISIONS)
    for judge in ROWS:
        _, score = scored(judge)
        report, under = score["report"], score["calibrated"]
        n = report["coverage"]["n"]
        right, false = _counts(under) if under else (0, 0)
        decided, wrong = Proportion(right + false, n), Proportion(false, right + false)
        kept, promised, mean = promises(judge)
        agreed = _proportion(report["decisions"]["agreed"])
        cells = (
            _name(judge),
            agreed,
            f"{report['kappa']:.2f}",
            decided,
            wrong if wrong.n else "none",
            kept,
            promised,
            f"{mean:.1%}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _counts(report: dict[str, Any]) -> tuple[int, int]:
    """Return how many decisions of a report people share, and how many they do not."""
    false = int(report["false_pass"]["k"]) + int(report["false_revise"]["k"])
    return int(report["coverage"]["k"]) - false, false


def _proportion(one: dict[str, Any]) -> Proportion:
    return Proportion(one["k"], one["n"])


def _name(judge: str) -> str:
    name, _, wordings = judge.partition("_x")
    many = f", {wordings} wording{'s' if wordings != '1' else ''}" if wordings else ", all wordings"
    return f"{judges()[name]}{many}"


# ---------------------------------------------------------------- pairs and panels


def draw_orders() -> str:
    """Return the table of what the order of two answers does, with one wording, in Markdown."""
    lines = _head("judge", "flips with the order", "right", "wrong where both orders agree")
    label = data("llmbar")["label"]
    for name in judges().values():
        answers = data("llmbar")["judges"][name]
        read = [
            (one, other, people)
            for one, other, people in zip(answers["Vanilla True"], answers["Vanilla False"], label, strict=True)
            if one is not None and other is not None
        ]
        same = [(one, people) for one, other, people in read if one == other]
        flips = Proportion(len(read) - len(same), len(read))
        right = Proportion(sum((one == 1) == (people == 1) for one, people in same), len(read))
        wrong = Proportion(sum((one == 1) != (people == 1) for one, people in same), len(same))
        lines.append(f"| {name} | {flips} | {right} | {wrong} |")
    return "\n".join(lines)


async def fitted_panel(panel: PanelEvaluationStrategy, some: Sequence[LabelledArtifact]) -> PanelEvaluationStrategy:
    """Return a panel with weights fitted on some pairs."""
    found = await fit_weights(panel, some)
    return PanelEvaluationStrategy(panel.judges, panel.rubric, found.quorum, weights=found.weights)


async def draw_panels() -> str:
    """Return the table of panels against the best judge, on the half that no weight was fitted on, in Markdown."""
    fitted, other = halves()
    panel = [Recorded(name) for name in judges().values()]
    equal = PanelEvaluationStrategy(panel, rubric, quorum=len(panel) // 2 + 1)
    weighted, few = [await fitted_panel(equal, some) for some in (fitted, fitted[:60])]
    lines = _head("who decides", "decided", "right of these")
    for name in judges().values():
        right = [_right(Recorded(name), one) for one in other]
        decided = [one for one in right if one is not None]
        lines.append(
            f"| {name} alone | {Proportion(len(decided), len(right))} | {Proportion(sum(decided), len(decided))} |"
        )
    for name, strategy in (
        ("all six, equal votes", equal),
        ("all six, weights fitted on the other half", weighted),
        ("all six, weights fitted on 60 of the other half", few),
    ):
        report = (await score_judge(strategy, other)).report
        lines.append(f"| {name} | {report.coverage} | {report.decisions.agreed} |")
    return "\n".join(lines)


class Voter(Recorded):
    """A judge that gives its recorded answers one after the other: each vote on a pair gets the next."""

    def __init__(self, judge: str) -> None:
        super().__init__(judge)
        self._given: Counter[str] = Counter()

    def votes_on(self, work: str) -> tuple[int, int]:
        """Return one vote for what the next answer chooses, in an order that is drawn for each pair."""
        said = drawn_answers(self._judge, work)
        now = said[self._given[work] % len(said)]
        return (now == 1, now == 0)

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply, and go on to the next answer."""
        made = super().reply(request)
        self._given[read_question(request).work] += 1
        return made


def drawn_answers(judge: str, work: str) -> list[int | None]:
    """Return a judge's answers on a pair, in an order that is drawn for it."""
    said = answers(judge, int(work.removeprefix("pair ")))
    Random(work).shuffle(said)  # noqa: S311 - a choice, not a secret
    return said


def voted(judge: str, number: int) -> list[Reviewed]:
    """Return what a judge decides on each pair with so many votes, and what people do."""
    found: list[Reviewed] = []
    for one in labelled():
        given = list[bool | None]()
        for answer in drawn_answers(judge, one.artifact):
            given.append(None if answer is None else answer == 1)
            if is_decided(given, number):
                break
        leads, most = leading(given)
        side: Side = "pass" if most else "revise"
        said: Said = ((side, share(given, number)),) if leads and most is not None else ()
        found.append(Reviewed(one.passed, said))
    return found


async def draw_votes() -> str:
    """Return the table of what more votes of GPT-4 gain, on the half that it was not calibrated on, in Markdown."""
    fitted, other = halves()
    lines = _head("votes at most", "questions for one pair", "agrees with people", *DECISIONS)
    for number in (1, 3, 5, 9, 17):
        made = await calibrate(
            AgentEvaluationStrategy(Voter("GPT-4"), rubric, votes=number), fitted, ALPHA, DELTA, concurrency=1
        )
        judge = Voter("GPT-4")
        score = await score_judge(
            AgentEvaluationStrategy(judge, rubric, votes=number), other, made.certificates, concurrency=1
        )
        under = score.calibrated
        decided = Proportion(0, len(other)) if under is None else under.coverage
        right = 0 if under is None else under.decisions.agreed.k
        wrong = Proportion(decided.k - right, decided.k) if decided.k else "none"
        asked = f"{len(judge.calls) / len(other):.1f}"
        kept, promised, mean = redrawn(voted("GPT-4", number))
        redraws = f"{kept} | {promised} | {mean:.1%}"
        lines.append(f"| {number} | {asked} | {score.report.decisions.agreed} | {decided} | {wrong} | {redraws} |")
    return "\n".join(lines)


def _right(judge: Recorded, one: LabelledArtifact) -> bool | None:
    first, second = judge.votes_on(one.artifact)
    return None if first == second else (first > second) == one.passed


def draw_people() -> str:
    """Return the table of agreement between three people and two judges on PandaLM's pairs, in Markdown."""
    pandalm = data("pandalm")
    people = [list(one) for one in zip(*pandalm["people"], strict=True)]
    most = [max(sorted(set(three)), key=three.count) if len(set(three)) < 3 else None for three in pandalm["people"]]  # noqa: PLR2004 - all differ
    lines = _head("compared", "agree", "kappa")
    pairs: Iterator[tuple[str, Any, Any]] = (
        (f"person {one + 1} and person {other + 1}", people[one], people[other])
        for one, other in combinations(range(3), 2)
    )
    for name, one, other in (
        *pairs,
        *((f"{name} and most people", answers, most) for name, answers in pandalm["judges"].items()),
    ):
        there = [(str(a), str(b)) for a, b in zip(other, one, strict=True) if a is not None and b is not None]
        found = agreement("", ("0", "1", "2"), there)
        lines.append(f"| {name} | {found.agreed} | {found.kappa:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(draw_calibration(), draw_orders(), anyio.run(draw_panels), anyio.run(draw_votes), draw_people(), sep="\n\n")
