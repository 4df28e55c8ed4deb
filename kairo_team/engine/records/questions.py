"""Questions of one run to people: asked through its gate, recorded, and tied to their subject."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.masking import masked
from kairo_team.engine.records.plan_records import MISSING
from kairo_team.errors import NoQuestion
from kairo_team.events import HumanDecided, HumanRequested
from kairo_team.human import HumanDecision, HumanRequest, check_answer, check_same
from kairo_team.plugin_calls import failure_of, shown

if TYPE_CHECKING:
    from kairo_team.contracts import HumanGate
    from kairo_team.engine.records.run_scope import RunScope

_logger = logging.getLogger("kairo_team")


_MOST_SHOWN: Final = 3
"""How many open questions the sentence of a waiting task shows."""

WITHDRAWN: Final = "withdrawn:"
"""Key prefix of the step that says why a question needs no answer any more; the question's key follows."""


def _about(question: HumanRequest) -> tuple[str, str, str | None, int]:
    return question.run_id, question.kind, question.task_id, question.attempt


class Decided(NamedTuple):
    """A recorded step: the decision on a question. It is valid only for the subject of that question."""

    digest: str
    decision: HumanDecision | None
    """None: no answer came."""


class Inbox:
    """The open questions of one run, and the answers that wait for the run to resume."""

    def __init__(self) -> None:
        self._open: dict[str, HumanRequest] = {}
        self._answers: dict[str, tuple[str, HumanDecision]] = {}
        """Digest of the subject and decision, by question id."""
        self.withdrawn: dict[str, str] = {}
        """Why a question needs no answer any more, by question id."""
        self._changing = threading.Lock()
        """Held while an answer is given or taken: people answer in other threads than the run's."""

    @property
    def open(self) -> Mapping[str, HumanRequest]:
        """Questions without an answer, by id: the oldest first, and after them those that were deferred here."""
        # A copy is read, because people answer in other threads.
        return MappingProxyType({key: one for key, one in dict(self._open).items() if key not in self._answers})

    @property
    def has_answers(self) -> bool:
        """Whether there is an answer that the run has not taken yet."""
        return bool(self._answers)

    def __contains__(self, question_id: object) -> bool:
        return question_id in self._open

    def keep_open(self, question: HumanRequest) -> None:
        """Keep a deferred question open."""
        with self._changing:
            self._open[question.id] = question
            self.withdrawn.pop(question.id, None)

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Keep an answer; refuse a different second one. A deferred question moves to the end."""
        with self._changing:
            question = self._open.get(question_id)
            if question is None:
                raise NoQuestion(question_id, self.open, self.withdrawn.get(question_id))
            check_answer(question_id, decision)
            check_same(question_id, self._answers.get(question_id, ("", None))[1], decision)
            if decision.action == "defer":
                # In one step: others read without the lock.
                self._open = {
                    **{key: one for key, one in self._open.items() if key != question_id},
                    question_id: question,
                }
            else:
                self._answers[question_id] = (question.digest, decision)

    @property
    def kept(self) -> Sequence[HumanRequest]:
        """Questions whose answer the run has not taken, whether there is one or not."""
        return tuple(self._open.values())

    def withdraw(self, question_id: str, why: str) -> None:
        """Drop a question that needs no answer any more, with its answer if there is one."""
        with self._changing:
            self.withdrawn[question_id] = why
            self._open.pop(question_id, None)
            self._answers.pop(question_id, None)

    def is_answered(self, question: HumanRequest) -> bool:
        """Return whether there is an answer to exactly this question, or to another one of the same attempt."""
        return any(
            self._answers.get(one.id, ("",))[0] == one.digest for one in (question, *self._put_off_together(question))
        )

    def waits_for(self, question: HumanRequest) -> str:
        """Say what a task waits for: this question, or all that wait with it and have no answer."""
        texts = [one.text for one in self._put_off_together(question) if one.id not in self._answers] or [question.text]
        more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
        return f"waits for a person: {'; '.join(texts[:_MOST_SHOWN])}{more}"

    def _put_off_together(self, question: HumanRequest) -> Sequence[HumanRequest]:
        """Return the questions that an attempt put off together: about the calls of one reply."""
        about = _about(question)
        return [one for one in dict(self._open).values() if _about(one) == about]

    def take(self, question: HumanRequest) -> HumanDecision | None:
        """Return the answer to exactly this question; an answer is void once the question's subject has changed."""
        with self._changing:
            digest, decision = self._answers.pop(question.id, ("", None))
            self._open.pop(question.id, None)
        return decision if digest == question.digest else None


class Questions:
    """Asks the questions of one run."""

    def __init__(self, scope: RunScope, gate: HumanGate | None, inbox: Inbox) -> None:
        """Take the run's gate; None: no person can be asked."""
        self._run_id = scope.request.run_id
        self.gate = gate
        self.inbox = inbox
        self._journal = scope.journal
        self._kept = scope.kept
        self._supervisor = scope.supervisor
        self._emit = scope.emit
        self._asking: dict[str, HumanRequest] = {}
        """Questions that the gate has not answered yet, by id."""

    @property
    def can_ask(self) -> bool:
        """Whether there is a gate, or an answer that the run has not taken."""
        return self.gate is not None or self.inbox.has_answers

    async def ask(self, key: str, asked: HumanRequest) -> HumanDecision | None:
        """Return a person's decision and record it, unless it defers; None without a gate or an answer."""
        question = self.identified(asked, key)
        recorded: Any = self._journal.get(key, MISSING)
        if isinstance(recorded, Decided) and recorded.digest == question.digest:
            return recorded.decision
        decision = self.inbox.take(question)
        if decision is None:
            if self.gate is None:
                return None
            self._emit(HumanRequested, question.task_id, question.member, question)
            # No `finally` removes it: after a cancellation, `withdraw` finds the question here and closes it.
            self._asking[question.id] = question
            decision = await self._decide(self.gate, question)
            self._asking.pop(question.id, None)
        if decision is not None and decision.action == "defer":
            self.inbox.keep_open(question)
            if self._kept is not None:
                self._kept.keep_open(question)
        else:
            self._journal.put(key, Decided(question.digest, decision))
            if self._kept is not None:
                self._kept.close_question(question.id)
        answer = ("silent", "", "") if decision is None else (decision.action, decision.feedback, decision.by)
        self._emit(HumanDecided, question.task_id, question.member, question.id, *answer)
        return decision

    def withdraw_of_task(self, task_id: str, why: str | None) -> None:
        """Withdraw the open questions of a task that ends."""
        self.withdraw(f"task {task_id!r} has ended{f': {why}' if why else ''}", task_id)

    def withdraw(self, why: str, task_id: str | None = None, attempt: int | None = None) -> None:
        """Withdraw open questions: of one attempt's tool calls, of a whole task, or all.

        `why` says what has ended: a late answer is refused with that.
        """
        if not self._asking and not self.inbox.kept:  # nearly always
            return
        # An interrupted run resumes later and needs all its answers.
        if self._kept is not None and self._kept.interrupted:
            return
        for question in {one.id: one for one in (*self.inbox.kept, *self._asking.values())}.values():
            of_attempt = attempt is None or (question.kind == "tool" and question.attempt == attempt)
            if task_id is not None and not (question.task_id == task_id and of_attempt):
                continue
            self._asking.pop(question.id, None)
            self.inbox.withdraw(question.id, why)
            self._journal.put(f"{WITHDRAWN}{question.id.removeprefix(f'{self._run_id}:')}", why)
            if self._kept is not None:
                self._kept.close_question(question.id)
            self._emit(HumanDecided, question.task_id, question.member, question.id, "withdrawn", why, "")

    def identified(self, asked: HumanRequest, key: str) -> HumanRequest:
        """Return the question as everyone sees it: with its id, the run's id, and without secrets."""
        return replace(masked(asked), id=f"{self._run_id}:{key}", run_id=self._run_id)

    async def _decide(self, gate: HumanGate, question: HumanRequest) -> HumanDecision | None:
        """Ask the gate; a failed gate counts as no answer."""
        name = type(gate).__name__
        try:
            decision: Any = await self._supervisor.run(gate.decide(question), name)
        except BaseException as raised:
            if failure_of(raised) is None:
                raise
            _logger.warning("the gate %s failed on %r: it counts as silence", name, question.id, exc_info=True)
            return None
        if decision is not None and not isinstance(decision, HumanDecision):
            _logger.warning("the gate %s answered %s, which is not a HumanDecision: silence", name, shown(decision))
            return None
        return decision
