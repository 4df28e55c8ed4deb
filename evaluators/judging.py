"""Ask a judge: build its messages, and repeat the question where that is allowed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kairo_team._util.frozen import EMPTY
from kairo_team._util.plugin_shapes import check_instance
from kairo_team.artifacts import Artifact
from kairo_team.errors import FailedControl, HaltError, InsufficientBudget, InvalidJudgement
from kairo_team.evaluators.artifact_view import as_data
from kairo_team.evaluators.canaries import Canaries, read_canaries
from kairo_team.evaluators.criterion import Criterion
from kairo_team.evaluators.judge_injection import JUDGE_SIGNS, Signs, read_signs, talks_to_judge
from kairo_team.evaluators.judge_question import Question, question_for
from kairo_team.evaluators.judge_reply import Judgement, are_decided, counted, read_judgement
from kairo_team.evaluators.judge_texts import WORK, JudgeTexts, files_given, of_conversation, text_of, texts_of
from kairo_team.evaluators.rubric import checked_votes
from kairo_team.files import Offered, offered_to, unique
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.prompts.quoting import fence, mark_of
from kairo_team.results import AgentOutput, AgentStatus
from kairo_team.tasks import Assignment, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kairo_team.contracts import Agent, ChatModel, MemberContext
    from kairo_team.files import File
    from kairo_team.verdicts import EvaluationContext

R = TypeVar("R")
_OWN_TASK: Final = Task("judge", "Say what pulls the sea.")
_OWN_TEXT: Final = (
    "The moon pulls the sea, and twice a day the water rises. Then the water falls again, on every coast."
)
_OWN_CRITERION: Final = Criterion("own", "it speaks of the sea", by="judge")


@dataclass(frozen=True)
class AskingOptions:
    """Options for asking the judges of a strategy."""

    settings: Mapping[str, Any]
    """Sampling settings."""
    trusted: bool = False
    """Whether the texts are trusted: then the question has no controls, and asks nothing both ways round."""
    signs: Signs = field(default_factory=lambda: JUDGE_SIGNS)
    """Signs of text that talks to its judge; empty: none are looked for."""
    canaries: Canaries = EMPTY
    """The user's own canaries, in addition to the built-in ones."""
    seed: int | None = None
    """Seed of the random marks; None: drawn for each call, and recorded."""
    votes: int = 1
    """How often a judge is asked at most; with 1 its own confidence counts, with more the share of votes."""


def asking_options(
    settings: Mapping[str, Any] | None,
    *,
    trusted: bool,
    signs: Mapping[str, str | re.Pattern[str]] | None,
    canaries: Mapping[str, str | re.Pattern[str]],
    seed: int | None,
    votes: int,
) -> AskingOptions:
    """Check the options of a strategy; `signs` are regular expressions by name, None takes the built-in ones."""
    if not isinstance(trusted, bool):
        raise ValueError(f"trusted must be True or False, not {trusted!r}")
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"settings are sampling settings by name, such as {{'temperature': 0}}, not {settings!r:.80}")
    if seed is not None and type(seed) is not int:
        raise ValueError(f"seed must be a whole number or None, not {seed!r}")
    found = JUDGE_SIGNS if signs is None else read_signs(signs)
    # 0: the same work should get the same answer.
    sampling, several = {"temperature": 0.0, **(settings or {})}, checked_votes("votes", votes)
    return AskingOptions(sampling, trusted, found, read_canaries(canaries), seed, several)


def check_judge(judge: Any) -> None:
    """Raise `ValueError` for anything but a model's name, a chat model or an agent."""
    check_instance("the judge", "a judge", judge)
    if not isinstance(judge, str) and not any(callable(getattr(judge, name, None)) for name in ("complete", "run")):
        raise ValueError(f"the judge must be a model's name, a chat model or an agent, not {judge!r}")


def called(judge: Any) -> str:
    """Return a judge's name for a sentence; a `repr` may show an address or a state, which differs between reviews."""
    return f"the judge {judge if isinstance(judge, str) else getattr(judge, 'name', judge)!r}"


LATE: Final = "a judge that is late each time is not fit to judge: name a faster model, or give a longer timeout"


class Judge:
    """Asks one judge about one artifact: a model by its name, a chat model, or an agent."""

    def __init__(
        self,
        judge: str | ChatModel | Agent,
        context: EvaluationContext,
        options: AskingOptions,
        *,
        is_conversation: bool = False,
    ) -> None:
        """Prepare the texts; `is_conversation`: the artifact of the context is the member's conversation."""
        if context.context is None:
            raise ValueError(
                "a judge needs the governed models of a run, and EvaluationContext.context is None outside a run"
            )
        self._judge, self._is_conversation = judge, is_conversation
        self._context = context
        self._member: MemberContext = context.context
        self._model = _asked_as_model(judge, context)
        self._options = options
        self._settings = dict(options.settings)  # a copy: `max_tokens` is taken out
        self._max_tokens: int | None = self._settings.pop("max_tokens", None)
        self._files: dict[str, Sequence[File]] = {
            "The work has these files": context.artifact.files,
            "The work could use these files": files_given(context),
        }
        self._suspicious = self._signs()
        self._vote = 1
        self._again = 0
        """How often the vote has asked again."""

    async def ask(self, criteria: Sequence[Criterion]) -> Judgement:
        """Ask about some criteria, all with the same `on`.

        After a reply that cannot be read it asks once more, and then raises `InvalidJudgement`. After a reply that was
        cut off at its limit it raises at once, because the same limit would cut off the next.

        Raises `FailedControl` where the judge answers controls wrongly; see `ask_about_work` for one wrong answer.
        Where no sign in a text explains it, it asks once about a text of the library's own: a judge that is wrong there
        too is not fit to judge.
        """
        if criteria[0].on == "transcript" and not self._is_conversation:
            about = of_conversation(self._context)
            return await Judge(self._judge, about, self._options, is_conversation=True).ask(criteria)
        try:
            return await self.ask_about_work(criteria)
        except FailedControl:
            # A sign explains the wrong answers, and saves this call.
            if self._suspicious or await self.answers_of_itself():
                raise
        raise FailedControl(fit=False)

    async def answers_of_itself(self) -> bool:
        """Return whether the judge answers the controls on the library's own text correctly."""
        about = replace(self._context, task=_OWN_TASK, artifact=Artifact(_OWN_TEXT), goal="", upstream={}, files=())
        try:
            await self._ask_about_own(about)
        except (FailedControl, InvalidJudgement):
            return False
        except (HaltError, InsufficientBudget):
            return True  # without an answer, the work gets no excuse
        return True

    async def _ask_about_own(self, about: EvaluationContext) -> None:
        # One vote tests the controls.
        await Judge(self._judge, about, replace(self._options, votes=1)).ask_about_work([_OWN_CRITERION])

    async def ask_about_work(self, criteria: Sequence[Criterion]) -> Judgement:
        """Ask about some criteria until the votes are decided; a vote that cannot be paid is not asked."""
        given, votes, unpaid = [await self._vote_on(criteria, 1)], self._options.votes, ""
        while not unpaid and not are_decided(given, criteria, votes):
            try:
                given.append(await self._vote_on(criteria, len(given) + 1))
            except (HaltError, InsufficientBudget) as short:
                unpaid = str(short)
        return given[0] if votes == 1 else counted(given, criteria, votes, unpaid)

    async def _vote_on(self, criteria: Sequence[Criterion], number: int) -> Judgement:
        """Give one vote: ask about some criteria, and once more where one answer may be a slip.

        A contradiction and one wrong control that nothing explains may be slips. The second question has new marks and
        controls, and asks again only about what was contradicted: a text that guesses is not given the whole again. If
        the one wrong control is in the second question, a third has controls alone.
        """
        self._vote, self._again = number, 0
        first = await self._asked(criteria)
        if not first.asks_again:
            return first
        self._again = 1
        second = await self._asked(self._doubtful(criteria, first), last=first.slipped)
        found = first.joined(second)
        if not second.slipped:
            return found
        self._again = 2
        return found.joined(await self._asked([], last=True))

    def _doubtful(self, criteria: Sequence[Criterion], first: Judgement) -> Sequence[Criterion]:
        """Return the criteria of a second question; without any, it has controls alone."""
        return [criterion for criterion in criteria if criterion.id in first.contradicted]

    async def _asked(self, criteria: Sequence[Criterion], *, last: bool = False) -> Judgement:
        """Ask one question, and read the answers."""
        texts = self._texts(criteria)
        question = await self._question(criteria, texts)
        messages = self._messages(question, texts)
        read = partial(self._read, question=question, texts=texts, last=last)
        return await self._read_reply(messages, question.token, question.schema(), read)

    async def _read_reply(
        self, messages: Sequence[Message], token: str, schema: dict[str, Any], read: Callable[[ModelResponse], R]
    ) -> R:
        """Ask for a reply and read it; ask once more after one that cannot be read."""
        reply = await self._reply(messages, schema)
        try:
            return read(reply)
        except InvalidJudgement as invalid:
            if reply.finish_reason == "length":
                raise
            again = self._member.render("judge_again", problem=str(invalid), token=token)
        said = [Message.assistant(reply.text, native=reply.native), Message.user(again)]
        return read(await self._reply([*messages, *said], schema))

    def _texts(self, criteria: Sequence[Criterion]) -> JudgeTexts:
        return texts_of(self._context, criteria)

    async def _question(self, criteria: Sequence[Criterion], given: JudgeTexts) -> Question:
        """Make the question. A resumed review makes the same question, so that recorded answers are used."""
        asked = [f"{one.id} {one.text} {one.levels}" for one in criteria]
        shown = [text for one in criteria for text in (*one.level_texts.values(), *map(repr, one.examples))]
        texts = "\n".join([*asked, *shown, given.all, *self._file_lines(given)])
        drawn = await self._draw(texts)
        task, own = self._context.task.description, self._options.canaries
        trusted, again = self._options.trusted, self._vote > 1
        size = given.work.size
        return question_for(criteria, size, texts, drawn, task=task, canaries=own, trusted=trusted, reworded=again)

    async def _draw(self, texts: str) -> str:
        """Return the seed for the marks of a question about these texts, another for each vote and question."""
        seed, name = self._options.seed, f"judge:{getattr(self._model, 'name', '')}:{mark_of(texts)}"
        again = f"{f':vote {self._vote}' if self._vote > 1 else ''}{':again' * self._again}"
        if seed is not None:
            return f"{seed}{again}"
        # A resumed review finds its recorded answers.
        drawn: str = await self._member.recorded(f"{name}{again}", secrets.token_hex)
        return drawn

    async def _reply(self, messages: Sequence[Message], schema: dict[str, Any]) -> ModelResponse:
        request = ModelRequest(messages, (), schema, self._max_tokens, self._settings)
        reply: ModelResponse = await self._model.complete(request)
        return reply

    def _read(self, reply: ModelResponse, question: Question, texts: JudgeTexts, *, last: bool) -> Judgement:
        return read_judgement(reply, question, self._suspicious, texts.cut_for, last=last)

    def _signs(self) -> str | None:
        """Return how the work, including a part that is not shown, or an upstream text seems to talk to the judge."""
        signs, context = self._options.signs, self._context
        found = talks_to_judge(context.artifact.text, signs)
        if found is not None:
            return found
        others = {f"the result of {task_id!r}": given.text for task_id, given in context.upstream.items()}
        files = {file: text_of(file) or "" for given in self._files.values() for file in given}
        others["a file"] = "\n".join(f"{file}\n{text}" for file, text in files.items())
        through = ((where, talks_to_judge(text, signs)) for where, text in others.items())
        return next((f"{how}, in {where}" for where, how in through if how), None)

    def _offered(self, texts: JudgeTexts) -> dict[str, Offered]:
        """Return what the judge gets of files: texts in its prompt, where they are fenced, others if it takes them."""
        found: dict[str, Offered] = {}
        for what, files in self._files.items():
            seen, lines = _taken_by(self._model, (file for file in files if file not in texts.files))
            written = [f"{file}: {texts.files[file]}" for file in files if file in texts.files]
            found[what] = Offered(seen, (*lines, *written))
        return found

    def _file_lines(self, texts: JudgeTexts) -> list[str]:
        return [line for files in self._offered(texts).values() for line in files.lines]

    def _messages(self, question: Question, texts: JudgeTexts) -> list[Message]:
        """Return three messages: instructions, the artifact alone, and the other texts with the question."""
        render, view, token = self._member.render, texts.work, question.token
        values = {"token": token, "cannot_tell": question.unknown}
        cut = [name for name in texts.cut if name != WORK]
        seen = {"hidden": view.hidden, "whole": view.whole, "cut": cut, "plain": bool(view.plain)}
        ask = render("judge_ask", shown=self._shown(question, texts), question=question, **seen, **values)
        of_work, given = self._offered(texts).values()
        about = {"conversation": self._is_conversation, "files": any(self._files.values())}
        return [
            Message.system(render("judge", question=question, **about, **values)),
            # A message of its own: it cannot pass for instructions.
            Message.user(view.fenced(token, question.label), of_work.seen),
            Message.user(ask, [file for file in given.seen if file not in of_work.seen]),  # each file once
        ]

    def _shown(self, question: Question, texts: JudgeTexts) -> dict[str, Any]:
        """Return the texts shown with the artifact, each fenced, because their author is unknown."""
        token = question.token
        asked = [(one, one.criterion) for one in question.statements if one.criterion is not None and not one.turned]
        return {
            "task": fence(texts.task, token),
            "goal": fence(texts.goal, token) if texts.goal else "",
            "upstream": {task_id: fence(text, token) for task_id, text in texts.upstream.items()},
            "reference": fence(texts.reference, token) if texts.reference else "",
            "files": {
                what: fence(as_data("\n".join(one.lines)), token)
                for what, one in self._offered(texts).items()
                if one.lines
            },
            "examples": [
                {
                    "id": statement.id,
                    "mark": statement.mark_of(one.level),
                    "reason": one.reason,
                    "text": fence(texts.examples[criterion.id, place], token),
                }
                for statement, criterion in asked
                for place, one in enumerate(criterion.examples)
            ],
        }


def files_not_shown(judge: str | ChatModel | Agent, context: EvaluationContext) -> list[File]:
    """Return the files of a work, and those it was made from, that a judge does not take."""
    files = [file for file in (*context.artifact.files, *files_given(context)) if text_of(file) is None]
    seen = _taken_by(_asked_as_model(judge, context), files).seen if files else ()
    return [file for file in unique(files) if file not in seen]


def _taken_by(model: Any, files: Iterable[File]) -> Offered:
    """Return what a model takes of files; one that says nothing about files takes none."""
    return offered_to(getattr(model, "file_problem", None), files)


def _asked_as_model(judge: Any, context: EvaluationContext) -> Any:
    """Return a judge as a governed model."""
    if not isinstance(judge, str) and not callable(getattr(judge, "complete", None)):
        return _AgentAsModel(judge, context)
    assert context.context is not None, "checked before"
    return context.context.model(judge)


class _AgentAsModel:
    """Asks an agent like a chat model; the agent gets the review's governed models."""

    def __init__(self, agent: Any, context: EvaluationContext) -> None:
        self._agent = agent
        self._context = context

    def file_problem(self, file: File) -> str | None:
        """Return why the agent does not take a file; None if it does, or says nothing about files."""
        ask: Any = getattr(self._agent, "file_problem", None)
        runtime = None if self._context.context is None else self._context.context.runtime
        return None if runtime is None or ask is None else ask(file, runtime.models)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Give the agent the whole conversation as one task; an output that is not completed counts as cut off."""
        text = "\n\n".join(message.text for message in request.messages)
        assignment = Assignment(Task("judge", text), text, {}, {}, {}, files=unique(request.files))
        made: Any = await self._agent.run(assignment, self._context.context)
        cut_off = isinstance(made, AgentOutput) and made.status is not AgentStatus.COMPLETED
        return ModelResponse(
            made if isinstance(made, str) else made.text, finish_reason="length" if cut_off else "stop"
        )
