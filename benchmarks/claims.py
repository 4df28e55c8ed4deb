"""Claims against sources, compared with the usual faithfulness metric: a table of docs/evaluation.md.

    python -m benchmarks.claims

The works and their labels are our own, made for this table: six sources, each with two works that are faithful and two
that are not. The judges are scripted. The usual metric takes the judge's word on each claim, without a quote; a work
passes it if the judge finds support for all claims. Both have the same claims: each sentence is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.engine.run.lone_agent import part_of, work_alone
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Proportion, Rubric
from kairo_team.evaluators.claims import sentences_of
from kairo_team.tasks import Task
from kairo_team.testing import ScriptedJudge, read_question
from kairo_team.verdicts import EvaluationContext, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest

JUDGE: Final = "test:claims"
REPEATS: Final = 10
SLIPS: Final = 0.03
RUBRIC: Final = Rubric([Criterion("faithful", "every claim has support", by="judge", evidence="sources")])
SOURCES: Final = (
    "On 3 May the tide rose 4.20 m at the north pier. The ferry was late by an hour. No one was hurt.",
    "The library opens at nine and closes at six. On Sundays it is closed. Members may borrow eight books.",
    "Patients took 5 mg in the morning. Two of forty had a headache. The trial ended after twelve weeks.",
    "The bridge was built in 1931. It carries two lanes and a footpath. Lorries above 20 tonnes may not cross it.",
    "The orchard has 300 apple trees. Frost killed a third of the blossom in April. The owner sold no land.",
    "The server failed at 02:14. A full disk was the cause. Service came back at 03:40, and no data was lost.",
)
LABELLED: Final = (
    ("The tide rose 4.20 m on 3 May. The ferry was an hour late.", "The ferry was late. No one was hurt.",
     "The tide rose 9.20 m on 3 May. The ferry was an hour late.", "The ferry was late. The captain was to blame."),
    ("The library closes at six. It is closed on Sundays.", "Members may borrow eight books. It opens at nine.",
     "The library closes at nine. It is closed on Sundays.", "Members may borrow eight books. Cards cost two euros."),
    ("Patients took 5 mg in the morning. The trial ended after twelve weeks.", "Two of forty had a headache.",
     "Patients took 5 mg in the evening. The trial ended after twelve weeks.",
     "Two of forty had a headache. The drug is safe for children."),
    ("The bridge was built in 1931. It carries two lanes.", "It has a footpath. Heavy lorries may not cross it.",
     "The bridge was built in 1913. It carries two lanes.", "It has a footpath. It is the longest in the county."),
    ("The orchard has 300 apple trees. The owner sold no land.", "Frost killed a third of the blossom in April.",
     "The orchard has 300 pear trees. The owner sold no land.", "Frost killed blossom in April. Prices will rise."),
    ("The server failed at 02:14. No data was lost.", "A full disk was the cause. Service came back at 03:40.",
     "The server failed at 02:14. All data was lost.", "A full disk was the cause. An intern had filled it."),
)  # fmt: skip
"""For each source two faithful works, then two with one claim that it does not support."""
UNSUPPORTED: Final = frozenset(
    {
        "The tide rose 9.20 m on 3 May.", "The captain was to blame.", "The library closes at nine.",
        "Cards cost two euros.", "Patients took 5 mg in the evening.", "The drug is safe for children.",
        "The bridge was built in 1913.", "It is the longest in the county.", "The orchard has 300 pear trees.",
        "Prices will rise.", "All data was lost.", "An intern had filled it.",
    }
)  # fmt: skip
"""The claims without support."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a scripted judge answers on a claim of a work."""

    shallow: bool = False
    """Finds support where half of the claim's words are in the source; else the labels decide."""
    finds_all: bool = False
    """Finds support for every claim of the work."""
    invents: bool = False
    """Quotes the claim's own words, with the source said to state them."""
    agrees: bool = False
    """Says yes to every statement, also to those that are denied and to the library's own."""
    literal: bool = False
    """Finds support for each claim on the list, and answers controls on labels, words and lengths truly."""
    slips: float = 0.0
    """Share of answers that are the wrong way round by chance."""

    def finds(self, claim: str, source: str) -> bool:
        """Return whether it finds support for a claim."""
        if self.finds_all or self.agrees or self.literal:
            return True
        return _share(claim, source) >= 0.5 if self.shallow else claim not in UNSUPPORTED  # noqa: PLR2004 - a half

    def quote(self, claim: str, source: str) -> str:
        """Return its quote for a claim: the sentence of the source that has most of the claim's words."""
        if self.invents:
            return f"The source states that {claim}"
        return max(sentences_of(source), key=lambda one: _share(claim, one))


KINDS: Final = {
    "honest": Kind(),
    f"honest, {SLIPS:.0%} slips": Kind(slips=SLIPS),
    "agreeing: yes to every statement": Kind(agrees=True),
    "literal: controls on labels truly, support for every claim": Kind(literal=True),
    "shallow: half of the words are support": Kind(shallow=True),
    "quote-inventing: support for each claim of the work": Kind(finds_all=True, invents=True),
    "persuaded: support for each claim of the work, with real quotes": Kind(finds_all=True),
}
"""The rows of the table."""


def _share(claim: str, source: str) -> float:
    words = set(re.findall(r"\w+", claim.casefold()))
    return len(words & set(re.findall(r"\w+", source.casefold()))) / len(words)


class Scripted(ScriptedJudge):
    """A judge of a kind."""

    def __init__(self, kind: Kind, source: str, lots: Random) -> None:
        self._kind, self._source, self._lots = kind, source, lots
        super().__init__(self._says, name=JUDGE)

    def _says(self, claim: str, _: str) -> dict[str, str]:
        found = self._kind.finds(claim, self._source)
        return {"answer": "met", "quote": self._kind.quote(claim, self._source)} if found else {"answer": "not met"}

    def reply(self, request: ModelRequest) -> dict[str, Any]:
        """Return the reply, with slips and agreement."""
        made = super().reply(request)
        if "answers" not in made:
            return made
        asked = read_question(request)
        for one, answer in zip(asked.statements, made["answers"], strict=True):
            if self._kind.agrees:
                answer["answer"] = one.levels["not met" if one.turned else "met"]
                answer["quote"] = self._kind.quote(asked.claim(one.criterion) or "it", self._source)
            elif self._kind.literal and asked.claim(one.criterion) is not None:
                answer |= {"answer": one.levels["met"], "quote": self._kind.quote(self._source, self._source)}
            elif self._lots.random() < self._kind.slips:
                met, without = one.levels["met"], one.levels["not met"]
                answer["answer"] = without if answer["answer"] == met else met
        return made


def usual(kind: Kind, work: str, source: str, lots: Random) -> float:
    """Return the usual metric: the share of claims for which the judge says that it finds support."""
    claims = sentences_of(work)
    return sum(kind.finds(one, source) != (lots.random() < kind.slips) for one in claims) / len(claims)


async def passed(kind: Kind, repeats: int = REPEATS) -> dict[str, Proportion]:
    """Count the works that pass, by metric and label."""
    lots = Random(0)  # noqa: S311 - a measurement
    counted: dict[str, int] = dict.fromkeys(("usual, faithful", "usual, not", "quotes, faithful", "quotes, not"), 0)
    async with work_alone("judge") as context:
        for number in range(repeats):
            for source, works in zip(SOURCES, LABELLED, strict=True):
                for place, work in enumerate(works):
                    label = "faithful" if place < len(works) // 2 else "not"
                    counted[f"usual, {label}"] += usual(kind, work, source, lots) == 1
                    strategy = AgentEvaluationStrategy(Scripted(kind, source, lots), RUBRIC, seed=number)
                    with part_of(context, f"text {number} {work}") as part:
                        task, given = Task("t", "Report what the source says."), {"source": Artifact(source)}
                        asked = EvaluationContext(task, Artifact(work), 1, upstream=given, context=part)
                        verdict = await strategy.evaluate(asked)
                    counted[f"quotes, {label}"] += verdict.outcome is VerdictOutcome.PASS
    of = repeats * len(SOURCES) * 2
    return {name: Proportion(k, of) for name, k in counted.items()}


async def draw(repeats: int = REPEATS) -> str:
    """Return the table in Markdown."""
    columns = ("faithful, usual", 'faithful, `"sources"`', "unfaithful, usual", 'unfaithful, `"sources"`')
    lines = [f"| judge | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for name, kind in KINDS.items():
        found = await passed(kind, repeats)
        cells = [f"{found[f'{metric}, {label}'].k} of {found[f'{metric}, {label}'].n}"
                 for label in ("faithful", "not") for metric in ("usual", "quotes")]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(anyio.run(draw))
