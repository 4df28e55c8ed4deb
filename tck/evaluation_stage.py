"""The base of the evaluation kit's tests: the factories, the capabilities, and one review as in a run."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, Usage
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.engine.work.runtime import Runtime
from kairo_team.messages import Message, ModelRequest
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.tck.paid_model import PaidModel
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest
from kairo_team.testing.scripted_judge import AskedQuestion, Said, ScriptedJudge, read_question
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

GOAL: Final = "Do the work."
_QUOTED: Final = 120
"""Characters of an artifact that the kit's judge quotes."""

ArtifactOrText = str | Artifact
"""An artifact, or its text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of one review."""

    returned: Any
    """The result of `evaluate`; None if it raised."""
    error: Exception | None
    spent: Usage
    """What the run paid."""
    artifact: Artifact
    before: str
    """The whole input except the models, as text."""
    after: str
    cancelled: bool
    """Whether a cancellation passed through."""

    @property
    def verdict(self) -> EvaluationVerdict:
        """The verdict; fails without one."""
        about = f"asked about {self.artifact.text!r:.80} it"
        assert self.error is None, f"{about} raised {self.error!r}, and nothing had failed around it"
        assert isinstance(self.returned, EvaluationVerdict), f"{about} returned {self.returned!r:.200}, not a verdict"
        return self.returned


class EvaluationStage(ContractTCK):
    """The factories and capabilities of the evaluation kit."""

    contract: ClassVar[type] = EvaluationStrategy

    good_artifacts: ClassVar[Sequence[ArtifactOrText]] = ()
    """Artifacts without a fault."""
    bad_artifacts: ClassVar[Sequence[ArtifactOrText]] = ()
    """Artifacts that must not pass, each with just one fault that the strategy looks for."""
    task: ClassVar[Task] = Task("kit", GOAL)
    """The task of the artifacts."""
    upstream: ClassVar[Mapping[str, ArtifactOrText]] = {}
    """The artifacts that the task used, by task id."""

    deterministic: ClassVar[bool] = False
    """Whether the same input gets an equal verdict, by code alone or by a judge that answers the same."""
    can_pass: ClassVar[bool] = True
    """Whether good artifacts pass. False: a person, or another strategy, has the last word on everything."""
    cannot_crash: ClassVar[bool] = False
    """Whether nothing in the strategy can fail. False: `make_crashing_strategy` is required."""
    can_hang: ClassVar[bool] = False
    """Whether it waits for something outside, such as a judge: then `make_hanging_strategy` is required."""
    has_parts: ClassVar[bool] = False
    """Whether it has parts whose order must not matter: then `make_reordered` is required."""
    asks_a_judge: ClassVar[bool] = False
    """Whether it asks a model: then `make_judged_strategy` is required, and also `write_judgement` unless its questions
    are like those of `AgentEvaluationStrategy`."""
    judge_calls: ClassVar[int] = 2
    """Most calls for one artifact if the judge never makes sense: two for each judge of each stage."""
    guards_its_judge: ClassVar[bool] = False
    """Whether it asks judges like `AgentEvaluationStrategy`: with controls, both ways round, under random marks."""
    suspects_injections: ClassVar[bool] = True
    """Whether an artifact that addresses its judge fails, even if the judge obeys it."""

    @classmethod
    def make_strategy(cls) -> EvaluationStrategy:
        """Make the strategy, a fresh one each time; by default with the kit's honest judge, if it asks a judge."""
        if cls.asks_a_judge:
            return cls.make_judged_strategy(cls.honest_judge())
        raise make_it(cls, "make_strategy(cls)")

    @classmethod
    def make_crashing_strategy(cls, error: Exception) -> EvaluationStrategy:
        """Make one whose dependency, such as a service, a file or a model, raises this error."""
        if cls.asks_a_judge:
            return cls.make_judged_strategy(PaidModel(_raising(error)))
        raise make_it(cls, "make_crashing_strategy(cls, error), or say cannot_crash = True")

    @classmethod
    def make_hanging_strategy(cls) -> EvaluationStrategy:
        """Make one that waits for something that never comes."""
        if cls.asks_a_judge:
            return cls.make_judged_strategy(PaidModel(_silent))
        raise make_it(cls, "make_hanging_strategy(cls), or say can_hang = False,")

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        """Make one with this judge in place of each of its judges."""
        raise make_it(cls, "make_judged_strategy(cls, judge), or say asks_a_judge = False,")

    @classmethod
    def make_reordered(cls) -> Iterable[EvaluationStrategy]:
        """Make the strategy several times, with the parts in another order each time."""
        raise make_it(cls, "make_reordered(cls), or say has_parts = False,")

    @classmethod
    def write_judgement(cls, request: ModelRequest, *, met: bool | None, quote: str) -> str:
        """Write a judge's reply to this request: all is met, nothing is, or (None) it cannot decide."""
        try:
            read_question(request)
        except ValueError:
            raise make_it(cls, "write_judgement(cls, request, *, met, quote)") from None
        wrong = "" if met else "it is not as it should be"
        says = {"answer": "cannot tell" if met is None else "met" if met else "not met"}
        says |= {"quote": quote if met else "", "observed": wrong}
        return ScriptedJudge(default=says, confidence=1.0).write(request)

    @classmethod
    def transcript_of(cls, artifact: Artifact) -> Sequence[Message]:
        """Return the conversation that an artifact came from; override it for criteria about the conversation."""
        return ()

    # ------------------------------------------------------------------ judges

    @classmethod
    def honest_judge(cls) -> PaidModel:
        """Make a judge that passes the kit's good artifacts and fails all others."""
        return PaidModel(cls.honestly)

    @classmethod
    def honestly(cls, request: ModelRequest) -> str:
        """Answer as an honest judge."""
        prompt = "\n".join(message.text for message in request.messages)
        known = [one for one in (*cls.good(), *cls.bad()) if _stands_in(one.text, prompt)]
        # The longest, because one artifact may be a part of another.
        seen = max(known, key=lambda one: len(one.text), default=Artifact(""))
        return cls.write_judgement(request, met=seen in cls.good(), quote=_first_words(seen.text))

    @classmethod
    def always(cls, met: bool | None, about: Artifact) -> PaidModel:
        """Make a judge that answers the same to every artifact."""
        return PaidModel(lambda request: cls.write_judgement(request, met=met, quote=_first_words(about.text)))

    @classmethod
    def obeying(cls, about: Artifact) -> PaidModel:
        """Make a judge that says that all is met, also of the controls of a guarded question."""
        return PaidModel(BlindJudge().write) if cls.guards_its_judge else cls.always(True, about)

    # ------------------------------------------------------------------ reviews

    @classmethod
    def good(cls) -> list[Artifact]:
        """Return the good artifacts; fail without any."""
        return _artifacts(cls, "good_artifacts", cls.good_artifacts)

    @classmethod
    def bad(cls) -> list[Artifact]:
        """Return the bad artifacts; fail without any."""
        return _artifacts(cls, "bad_artifacts", cls.bad_artifacts)

    @classmethod
    async def ask(
        cls,
        strategy: EvaluationStrategy,
        artifact: Artifact,
        prior: Sequence[EvaluationVerdict] = (),
        *,
        budget: Budget | None = None,
        models: Mapping[str, ChatModel] | None = None,
        governed: bool = True,
        upstream: Mapping[str, ArtifactOrText] | None = None,
        cancelled_after: float | None = None,
    ) -> Asked:
        """Review an artifact as in a run with `models` by name and `budget`.

        `upstream` are texts that replace the kit's; `cancelled_after` is in seconds.
        """
        given = cls.upstream if upstream is None else upstream
        async with _run(budget, models) as run:
            work = run.context("evaluate") if governed and getattr(strategy, "models", None) != () else None
            made_from = {name: _artifact(one) for name, one in given.items()}
            context = EvaluationContext(
                cls.task,
                artifact,
                len(prior) + 1,
                list(prior),
                GOAL,
                made_from,
                run.config,
                work,
                transcript=cls.transcript_of(artifact),
            )
            return await _ask(strategy, context, lambda: run.governor.usage, cancelled_after)
        raise AssertionError("unreachable: the block returns")

    @classmethod
    async def verdict(
        cls, strategy: EvaluationStrategy, artifact: Artifact, prior: Sequence[EvaluationVerdict] = ()
    ) -> EvaluationVerdict:
        """Review an artifact; fail unless there is a verdict, and return it."""
        return (await cls.ask(strategy, artifact, prior)).verdict


class BlindJudge(ScriptedJudge):
    """A judge that says the same of everything, controls included."""

    def said(self, asked: AskedQuestion, text: str) -> Said:
        return self.default


@asynccontextmanager
async def _run(budget: Budget | None, models: Mapping[str, ChatModel] | None) -> AsyncGenerator[TeamRun]:
    request = TeamExecutionRequest(GOAL, config=TeamConfig(budget=budget or Budget()))
    team = Team("kit", [Member("writer", _unused_agent)], runtime=Runtime(models={"*": refusing(), **(models or {})}))
    async with TeamRun.open(request, team) as run:
        yield run


async def _ask(
    strategy: EvaluationStrategy,
    context: EvaluationContext,
    usage: Callable[[], Usage],
    cancelled_after: float | None,
) -> Asked:
    before, returned, failure = _written(context), None, None
    scope = anyio.CancelScope()
    scope.deadline = math.inf if cancelled_after is None else anyio.current_time() + cancelled_after
    try:
        with scope:
            returned = await strategy.evaluate(context)
    except Exception as error:  # noqa: BLE001 - a run that is open would take it for its own
        failure = error
    return Asked(returned, failure, usage(), context.artifact, before, _written(context), scope.cancelled_caught)


def _written(context: EvaluationContext) -> str:
    return repr(replace(context, context=None))


def is_about_rounds(verdict: EvaluationVerdict) -> bool:
    """Return whether the verdict's cause is one that only the run can know."""
    return verdict.cause in {Cause.ROUNDS_EXHAUSTED, Cause.NO_PROGRESS, Cause.CYCLE}


def _artifacts(kit: type[ContractTCK], name: str, given: Sequence[ArtifactOrText]) -> list[Artifact]:
    if not given or isinstance(given, str):
        raise NotImplementedError(f"{kit.__name__}.{name} must be a list of at least one artifact, not {given!r}")
    return [_artifact(one) for one in given]


def _artifact(given: ArtifactOrText) -> Artifact:
    return Artifact(given) if isinstance(given, str) else given


def _stands_in(text: str, prompt: str) -> bool:
    # Questions quote a text as it is or as JSON.
    return any(form in prompt for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]))


def _first_words(text: str) -> str:
    return next((line.strip()[:_QUOTED] for line in text.splitlines() if line.strip()), "")


def refusing() -> PaidModel:
    """Make the model that replaces every model asked by name: the kit never calls a real one."""
    return PaidModel(_raising(AssertionError("the kit has no model of that name; it gives evaluators its own judge")))


def _raising(error: Exception) -> Callable[[ModelRequest], str]:
    def answer(_: ModelRequest) -> str:
        raise error

    return answer


async def _silent(_: ModelRequest) -> str:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


async def _unused_agent(_: Assignment) -> str:
    raise AssertionError("the kit's runs have no tasks")
