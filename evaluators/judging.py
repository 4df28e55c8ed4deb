"""Ask a judge: build its messages, and repeat the question where that is allowed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.artifacts import Artifact
from kairo_team.errors import FailedControl, HaltError, InsufficientBudget, InvalidJudgement
from kairo_team.evaluators.artifact_view import MAX_SHOWN, as_data, view_of
from kairo_team.evaluators.criterion import Criterion
from kairo_team.evaluators.judge_injection import JUDGE_SIGNS, Signs, read_signs, talks_to_judge
from kairo_team.evaluators.judge_question import Question, question_for
from kairo_team.evaluators.judge_reply import Judgement, read_judgement
from kairo_team.evaluators.transcripts import as_artifact
from kairo_team.files import Offered, offered_to, unique
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.prompts.quoting import cap, fence, mark_of
from kairo_team.results import AgentOutput, AgentStatus
from kairo_team.tasks import Assignment, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kairo_team.contracts import Agent, ChatModel, MemberContext
    from kairo_team.files import File
    from kairo_team.verdicts import EvaluationContext


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
    seed: int | None = None
    """Seed of the random marks; None: drawn for each call, and recorded."""


def asking_options(
    settings: Mapping[str, Any] | None,
    *,
    trusted: bool,
    signs: Mapping[str, str | re.Pattern[str]] | None,
    seed: int | None,
) -> AskingOptions:
    """Check the options of a strategy; `signs` are regular expressions by name, None takes the built-in ones."""
    if not isinstance(trusted, bool):
        raise ValueError(f"trusted must be True or False, not {trusted!r}")
    if seed is not None and type(seed) is not int:
        raise ValueError(f"seed must be a whole number or None, not {seed!r}")
    found = JUDGE_SIGNS if signs is None else read_signs(signs)
    return AskingOptions({"temperature": 0.0, **(settings or {})}, trusted, found, seed)


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
        self._settings = dict(options.settings)
        self._max_tokens: int | None = self._settings.pop("max_tokens", None)
        self._view = view_of(context.artifact)
        asked_for, goal = context.task.description, context.goal
        self._task = as_data(cap(asked_for))
        self._goal = as_data(cap(goal)) if goal and goal != asked_for else ""
        self._reference = as_data(cap(context.task.reference or ""))
        self._upstream = {task_id: as_data(cap(given.text)) for task_id, given in context.upstream.items()}
        self._files = {
            "The work has these files": self._offered(context.artifact.files),
            "The work could use these files": self._offered(_given(context)),
        }
        self._suspicious = self._signs()

    async def ask(self, criteria: Sequence[Criterion]) -> Judgement:
        """Ask about some criteria, all with the same `on`.

        After a reply that cannot be read it asks once more, and then raises `InvalidJudgement`. After a reply that was
        cut off at its limit it raises at once, because the same limit would cut off the next.

        Raises `FailedControl` where the judge answers a control wrongly. It does not ask about the work again, because
        a second question would be a second chance for a text that guesses. Where no sign in a text explains the wrong
        answer, it asks once about a text of the library's own: a judge that is wrong there too is not fit to judge.
        """
        if criteria[0].on == "transcript" and not self._is_conversation:
            return await self._of_conversation().ask(criteria)
        try:
            return await self.ask_about_work(criteria)
        except FailedControl:
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
        await Judge(self._judge, about, self._options).ask_about_work([_OWN_CRITERION])

    async def ask_about_work(self, criteria: Sequence[Criterion]) -> Judgement:
        """Ask about some criteria; ask once more after a reply that cannot be read."""
        question = await self._question(criteria)
        messages = self._messages(question)
        reply = await self._reply(messages, question)
        try:
            return self._read(reply, question)
        except InvalidJudgement as invalid:
            if reply.finish_reason == "length":
                raise
            again = self._member.render("judge_again", problem=str(invalid), token=question.token)
        reply = await self._reply(
            [*messages, Message.assistant(reply.text, native=reply.native), Message.user(again)], question
        )
        return self._read(reply, question)

    def _of_conversation(self) -> Judge:
        """Return the same judge for the member's conversation."""
        about = replace(self._context, artifact=as_artifact(self._context.transcript))
        return Judge(self._judge, about, self._options, is_conversation=True)

    async def _question(self, criteria: Sequence[Criterion]) -> Question:
        """Make the question. A resumed review makes the same question, so that recorded answers are used."""
        asked = [f"{one.id} {one.text} {one.levels}" for one in criteria]
        shown = [text for one in criteria for text in (*one.level_texts.values(), *map(repr, one.examples))]
        given = [self._view.text, self._view.plain, self._task, self._goal, self._reference, *self._upstream.values()]
        texts = "\n".join([*asked, *shown, *given, *self._file_lines])
        drawn = await self._draw(texts)
        return question_for(criteria, self._view.size, texts, drawn, trusted=self._options.trusted)

    async def _draw(self, texts: str) -> str:
        """Return the seed for the marks of a question about these texts."""
        seed, name = self._options.seed, f"judge:{getattr(self._model, 'name', '')}:{mark_of(texts)}"
        return str(await self._member.recorded(name, secrets.token_hex) if seed is None else seed)

    async def _reply(self, messages: Sequence[Message], question: Question) -> ModelResponse:
        request = ModelRequest(messages, (), question.schema(), self._max_tokens, self._settings)
        reply: ModelResponse = await self._model.complete(request)
        return reply

    def _read(self, reply: ModelResponse, question: Question) -> Judgement:
        return read_judgement(reply, question, self._suspicious, whole=self._view.whole)

    def _signs(self) -> str | None:
        """Return how the work, including a part that is not shown, or an upstream text seems to talk to the judge."""
        signs, context = self._options.signs, self._context
        found = talks_to_judge(context.artifact.text, signs)
        if found is not None:
            return found
        others = {f"the result of {task_id!r}": given.text for task_id, given in context.upstream.items()}
        others["a file"] = "\n".join(self._file_lines)
        through = ((where, talks_to_judge(text, signs)) for where, text in others.items())
        return next((f"{how}, in {where}" for where, how in through if how), None)

    def _offered(self, files: Iterable[File]) -> Offered:
        """Return what the judge gets of files: texts in its prompt, where they are fenced, others if it takes them."""
        texts = {file: text for file in files if (text := _text_of(file)) is not None}
        seen, lines = _taken_by(self._model, (file for file in files if file not in texts))
        return Offered(seen, (*lines, *(f"{file}: {cap(text, MAX_SHOWN)}" for file, text in texts.items())))

    @property
    def _file_lines(self) -> list[str]:
        return [line for files in self._files.values() for line in files.lines]

    def _messages(self, question: Question) -> list[Message]:
        """Return three messages: instructions, the artifact alone, and the other texts with the question."""
        render, view, token = self._member.render, self._view, question.token
        values = {"token": token, "cannot_tell": question.unknown}
        seen = {"hidden": view.hidden, "whole": view.whole, "plain": bool(view.plain)}
        ask = render("judge_ask", shown=self._shown(question), question=question, **seen, **values)
        of_work, given = self._files.values()
        about = {"conversation": self._is_conversation, "files": bool(self._file_lines)}
        return [
            Message.system(render("judge", question=question, **about, **values)),
            Message.user(view.fenced(token, question.label), of_work.seen),
            Message.user(ask, [file for file in given.seen if file not in of_work.seen]),
        ]

    def _shown(self, question: Question) -> dict[str, Any]:
        """Return the texts shown with the artifact, each fenced, because their author is unknown."""
        token = question.token
        asked = [(one, one.criterion) for one in question.statements if one.criterion is not None and not one.turned]
        compared = self._context.task.reference is not None and any(criterion.reference for _, criterion in asked)
        return {
            "task": fence(self._task, token),
            "goal": fence(self._goal, token) if self._goal else "",
            "upstream": {task_id: fence(text, token) for task_id, text in self._upstream.items()},
            "reference": fence(self._reference, token) if compared else "",
            "files": {
                what: fence(as_data("\n".join(one.lines)), token) for what, one in self._files.items() if one.lines
            },
            "examples": [
                {
                    "id": statement.id,
                    "mark": statement.mark_of(one.level),
                    "reason": one.reason,
                    "text": fence(as_data(cap(one.text)), token),
                }
                for statement, criterion in asked
                for one in criterion.examples
            ],
        }


def files_not_shown(judge: str | ChatModel | Agent, context: EvaluationContext) -> list[File]:
    """Return the files of a work, and those it was made from, that a judge does not take."""
    files = [file for file in (*context.artifact.files, *_given(context)) if _text_of(file) is None]
    seen = _taken_by(_asked_as_model(judge, context), files).seen if files else ()
    return [file for file in unique(files) if file not in seen]


def _taken_by(model: Any, files: Iterable[File]) -> Offered:
    """Return what a model takes of files; one that says nothing about files takes none."""
    return offered_to(getattr(model, "file_problem", None), files)


def _given(context: EvaluationContext) -> tuple[File, ...]:
    """Return the files that the member of a work was given."""
    return unique([*context.files, *(file for one in context.upstream.values() for file in one.files)])


def _text_of(file: File) -> str | None:
    """Return the text of a file that is one; None for any other."""
    try:
        return file.data.decode() if file.is_text and file.data is not None else None
    except UnicodeDecodeError:
        return None


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
