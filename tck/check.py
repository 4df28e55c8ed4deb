"""The kit of `Check`: the answers of one check, its digest, and its name in the data of a rubric."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from kairo_team import plugins
from kairo_team.artifacts import Artifact
from kairo_team.evaluators import Check, Criterion, Rubric
from kairo_team.tasks import Task
from kairo_team.tck.calls import another_moment, at_once, check_cancels, no_examples, said_elsewhere, skip_unless
from kairo_team.tck.kit import ContractTCK, clause, make_it
from kairo_team.verdicts import UNKNOWN, EvaluationContext

_STRANGE: Final = (
    "",
    " \n\t ",
    "\0",
    "\u200b\u2066\ufeff",
    "\U0001f30a\U0001f319",
    "```\n",
    '{"a": [1, {"b": null}]}',
    "-1e999 [ ] ( { < & ' \" \\ %s {0} ${x}",
    "word " * 20_000,
    "a" * 100_000,
)
"""Texts that few checks are written for."""
_FAULTS: Final = ("the check of criterion", "the check returned")
"""How a reason begins if the check raised, was cut off, or returned something else than an answer."""


class CheckTCK(ContractTCK):
    """The contract kit of checks: override `make_check`, and give `good_artifacts` and `bad_artifacts`."""

    contract: ClassVar[type] = Check
    _items = dict.fromkeys(("good_artifacts", "bad_artifacts"), ((str, Artifact), "a text or an Artifact"))

    good_artifacts: ClassVar[Sequence[str | Artifact]] = ()
    """Artifacts that meet the criterion."""
    bad_artifacts: ClassVar[Sequence[str | Artifact]] = ()
    """Artifacts that do not meet it."""
    task: ClassVar[Task] = Task("kit", "Write it.")
    """The task of the artifacts."""
    upstream: ClassVar[Mapping[str, str | Artifact]] = {}
    """The artifacts that the task used, by task id."""
    levels: ClassVar[Sequence[str]] = ("not met", "met")
    """The levels of the criterion, worst first."""
    deterministic: ClassVar[bool] = True
    """Whether the answer follows from the artifact and the context alone. False: it asks a service, or the clock."""
    cannot_crash: ClassVar[bool] = False
    """Whether nothing in the check can fail. False: `make_crashing_check` is required."""
    can_wait: ClassVar[bool] = False
    """Whether it is async and waits for something outside: then `make_waiting_check` is required."""
    has_digest: ClassVar[bool] = True
    """Whether its state can be read. False: its criteria have `Criterion(version=...)`."""
    published: ClassVar[str | None] = None
    """The name that the package publishes it under; None: it is not published."""
    options: ClassVar[Mapping[str, Any]] = {}
    """The options, as data, with which the published check decides as `make_check` does."""

    @classmethod
    def make_check(cls) -> Check:
        """Make the check, a fresh one each time."""
        raise make_it(cls, "make_check(cls)")

    @classmethod
    def make_crashing_check(cls) -> Check:
        """Make one that cannot decide, because a service, a file or a library fails."""
        raise make_it(cls, "make_crashing_check(cls), or say cannot_crash = True")

    @classmethod
    def make_waiting_check(cls) -> Check:
        """Make one that waits for something that never comes."""
        raise make_it(cls, "make_waiting_check(cls), or say can_wait = False")

    # ------------------------------------------------------------------ answers

    @clause("C1")
    async def test_c01_it_answers_for_every_text(self) -> None:
        """Each text gets an answer, also one that was cut short, and none makes it raise."""
        rubric = self._rubric(self.make_check())
        texts = [*_STRANGE, *(_text(one) for one in (*self.good_artifacts, *self.bad_artifacts))]
        for text in texts:
            for partial in (False, True):
                _, reason = await self._ask(rubric, Artifact(text, partial=partial))
                assert not reason.startswith(_FAULTS), f"for {text!r:.60} {reason}"

    @clause("C2", needs="deterministic")
    async def test_c02_the_same_artifact_gets_the_same_answer(self) -> None:
        """Again, in another order, many at once, and a day later."""
        artifacts = self._examples()
        rubric = self._rubric(self.make_check())
        first = [await self._ask(rubric, one) for one in artifacts]
        again = [await self._ask(rubric, one) for one in reversed(artifacts)][::-1]
        together = await at_once([lambda one=one: self._ask(rubric, one) for one in artifacts * 3])  # type: ignore[misc]
        with another_moment(1):
            later = [await self._ask(rubric, one) for one in artifacts]
        for how, answers in (("again", again), ("at once", together[: len(first)]), ("a day later", later)):
            for artifact, before, now in zip(artifacts, first, answers, strict=True):
                assert now == before, f"asked {how} about {_text(artifact)!r:.60}: {now}, and before {before}"

    @clause("C2", needs="deterministic")
    async def test_c02_another_process_gets_the_same_answer(self) -> None:
        """Under another hash seed, where sets have another order."""
        here = await self.answers()
        there, _ = self._elsewhere()
        assert there == here, f"in another process, where hash() and sets differ, it answered {there}, and here {here}"

    @clause("C3")
    async def test_c03_good_artifacts_meet_it_and_bad_ones_do_not(self) -> None:
        """Each of the kit's examples."""
        if not self.good_artifacts:
            no_examples(type(self), "good_artifacts", "at least one artifact that meets the criterion")
        if not self.bad_artifacts:
            no_examples(type(self), "bad_artifacts", "at least one artifact that does not meet it")
        rubric = self._rubric(self.make_check())
        for artifact in self.good_artifacts:
            level, reason = await self._ask(rubric, artifact)
            assert level == self.levels[-1], f"{_text(artifact)!r:.80} is good, and it answered {level!r}: {reason}"
        for artifact in self.bad_artifacts:
            level, reason = await self._ask(rubric, artifact)
            assert level not in (UNKNOWN, self.levels[-1]), f"{_text(artifact)!r:.80} is bad, and it answered {level!r}"

    @clause("C4")
    async def test_c04_what_it_cannot_decide_is_neither_met_nor_a_fault(self) -> None:
        """A service that is down says nothing about the artifact."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        rubric = self._rubric(self.make_crashing_check())
        for artifact in self._examples():
            level, reason = await self._ask(rubric, artifact)
            assert level == UNKNOWN, f"it could not decide, and answered {level!r} ({reason}): raise, or Answer(None)"

    # ------------------------------------------------------------------ digest and name

    @clause("C5", needs="has_digest")
    async def test_c05_two_that_are_made_alike_have_one_digest(self) -> None:
        """In this process and in another one."""
        made = [self._rubric(self.make_check()) for _ in range(2)]
        assert made[0].digest is not None, f"has_digest is True, and {made[0].no_digest}"
        assert made[0].digest == made[1].digest, "two checks that were made alike have different digests"
        _, there = self._elsewhere()
        assert there == self.digest(), "in another process its digest differs: it has the order of a set, an id, a time"

    @clause("C6", needs="published")
    async def test_c06_by_its_name_it_decides_the_same(self) -> None:
        """A rubric's data names it, and gets the same name back."""
        assert self.published is not None, "the test needs a name"
        check: Any = {self.published: dict(self.options)} if self.options else self.published
        data = {"criteria": [{"id": "kit", "text": "the kit's criterion", "check": check, "levels": [*self.levels]}]}
        named, made = Rubric.from_data(data, trusted=True), self._rubric(self.make_check())
        for artifact in self._examples():
            said, wanted = await self._ask(named, artifact), await self._ask(made, artifact)
            assert said == wanted, f"{check!r} answered {said} about {_text(artifact)!r:.60}, and make_check {wanted}"
        assert named.to_data()["criteria"][0]["check"] == check, f"`to_data` gave {named.to_data()['criteria'][0]}"

    @clause("C6", needs="published")
    async def test_c06_its_options_that_are_paths_are_declared(self) -> None:
        """Data that is not trusted may give no other."""
        assert self.published is not None, "the test needs a name"
        loose = plugins.undeclared_paths(plugins.find("check", self.published))
        assert not loose, f"{loose[0]!r} is named like a path: declare it as str | os.PathLike[str]"

    # ------------------------------------------------------------------ cancellation

    @clause("C7", needs="can_wait")
    async def test_c07_cancellation_passes_through(self) -> None:
        """A check that waits ends with the run."""
        rubric, artifact = self._rubric(self.make_waiting_check()), self._examples()[0]
        await check_cancels("the check", lambda: self._ask(rubric, artifact))

    # ------------------------------------------------------------------ shared

    @classmethod
    async def answers(cls) -> str:
        """Return the level and the reason of each example."""
        rubric = cls._rubric(cls.make_check())
        return repr([await cls._ask(rubric, one) for one in cls._examples()])

    @classmethod
    def digest(cls) -> str:
        """Return the digest of a rubric of the check alone."""
        return repr(cls._rubric(cls.make_check()).digest)

    def _elsewhere(self) -> tuple[str, str]:
        """Return the answers and the digest of another process: one process serves both tests."""
        code = (
            "import anyio, json; loop, options = kit.backend(kit.backends[0]); "
            "answers = anyio.run(kit.answers, backend=loop, backend_options=options) if kit.deterministic else ''; "
            "print(json.dumps([answers, kit.digest() if kit.has_digest else '']))"
        )
        answers, digest = json.loads(said_elsewhere(type(self).__module__, type(self).__qualname__, code))
        return answers, digest

    @classmethod
    def _rubric(cls, check: Check) -> Rubric:
        criterion = Criterion("kit", "the kit's criterion", check, levels=tuple(cls.levels))
        return Rubric([criterion])

    @classmethod
    def _examples(cls) -> list[str | Artifact]:
        return [*cls.good_artifacts, *cls.bad_artifacts] or [*_STRANGE]

    @classmethod
    async def _ask(cls, rubric: Rubric, artifact: str | Artifact) -> tuple[str, str]:
        """Return the level that the check gave, and its reason or what it found."""
        whole = Artifact(artifact) if isinstance(artifact, str) else artifact
        upstream = {name: Artifact(one) if isinstance(one, str) else one for name, one in cls.upstream.items()}
        verdict = await rubric.evaluate(EvaluationContext(cls.task, whole, 1, upstream=upstream))
        (result,) = verdict.criteria
        return str(result.level), result.reason or "; ".join(one.observed for one in verdict.findings)


def _text(artifact: str | Artifact) -> str:
    return artifact if isinstance(artifact, str) else artifact.text
