"""Pending questions, their answers from any process, and the end of a session."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kairo_team.errors import Misuse, NoQuestion, RunNotFound
from kairo_team.human import HumanDecision
from kairo_team.recorded import Place
from kairo_team.results import TeamStatus
from kairo_team.tck.calls import at_once, result_or_error
from kairo_team.tck.journal_stage import STEP, JournalStage, check_same, question_of, result_of
from kairo_team.tck.kit import clause

YES, LATER = HumanDecision.approve("well done"), HumanDecision.defer()
NO = HumanDecision.reject("not like this")


class PeopleTests(JournalStage):
    """C14 to C16."""

    @clause("C14")
    async def test_c14_every_process_sees_the_questions_that_wait_oldest_first(self) -> None:
        """The questions are those of all runs, or of one run with its inner runs; closed ones are gone."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            places = {"r": None, "r.1": Place("r", STEP, "group"), "a": None}
            sessions = {run_id: await process.begin(run_id, place) for run_id, place in places.items()}
            asked = [
                question_of("r", 2),
                question_of("r.1"),
                question_of("r", 1),
                question_of("a"),
                question_of("r", 3),
            ]
            for one in asked:
                sessions[one.run_id].keep_open(one)
                await sessions[one.run_id].written()
            sessions["r"].close_question(asked[-1].id)
            await sessions["r"].written()
            for seen_by in (process, other):
                check_same("the questions that wait", list(await seen_by.do("pending")), asked[:-1])
                check_same("the questions that wait", list(await seen_by.do("pending", "r")), asked[:3])
                check_same("the questions that wait", list(await seen_by.do("pending", "r.1")), [asked[1]])
                with pytest.raises(RunNotFound):
                    await seen_by.do("pending", "unknown")

    @clause("C14")
    async def test_c14_questions_outlive_the_process(self) -> None:
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.keep_open(question_of("r"))
            session.end(result_of("r", TeamStatus.SUSPENDED))
            await session.written()
            await process.die()
            check_same("the questions that wait", list(await other.do("pending")), [question_of("r")])
            (found,) = (await other.recover())["r"].questions
            check_same("the questions, with their answers", (found.question, found.decision), (question_of("r"), None))

    @clause("C14", "C15")
    async def test_c14_a_question_that_is_asked_again_stays_as_it_is(self) -> None:
        """A repeated question keeps its answer and its place."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            first, second = question_of("r", 1), question_of("r", 2)
            for one in (first, second, first):
                session.keep_open(one)
            await session.written()
            check_same("the questions that wait", list(await other.do("pending")), [first, second])
            await other.do("answer", first.id, YES)
            session.keep_open(replace(first, text="May it, once more?"))
            await session.written()
            check_same("the questions that wait", list(await other.do("pending")), [second])
            found = (await store.after(process))["r"].questions
            check_same(
                "the questions, with their answers",
                [(one.question, one.decision) for one in found],
                [(first, YES), (second, None)],
            )

    # ------------------------------------------------------------------ answers

    @clause("C15")
    async def test_c15_an_answer_comes_with_the_recovered_run(self) -> None:
        """Each answer comes with its question, whether the asking process lives or not; the question is not pending."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            asked = [question_of("r", number) for number in (1, 2, 3)]
            for one in asked:
                session.keep_open(one)
            await session.written()
            await other.do("answer", asked[2].id, NO)
            await process.die()
            await other.do("answer", asked[0].id, YES)
            check_same("the questions that wait", list(await other.do("pending")), [asked[1]])
            for _ in range(2):
                found = (await other.recover(take_over=True))["r"].questions
                check_same(
                    "the questions, with their answers",
                    [(one.question, one.decision) for one in found],
                    [
                        (asked[0], YES),
                        (asked[1], None),
                        (asked[2], NO),
                    ],
                )

    @clause("C15")
    async def test_c15_the_first_answer_counts(self) -> None:
        """The same answer may be given again; another one is refused."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.keep_open(question_of("r"))
            await session.written()
            for one in (process, other):
                await one.do("answer", question_of("r").id, YES)
            for wrong in (NO, HumanDecision.approve("with other words")):
                with pytest.raises(Misuse):
                    await other.do("answer", question_of("r").id, wrong)
            (found,) = (await store.after(process))["r"].questions
            assert found.decision == YES, f"the first answer was {YES}, and recorded is {found.decision}"

    @clause("C15")
    async def test_c15_of_two_answers_at_once_one_counts(self) -> None:
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            given = {YES: await store.process(), NO: await store.process()}
            for number in range(10):
                question = question_of("r", number)
                session.keep_open(question)
                await session.written()
                calls = [partial(one.do, "answer", question.id, decision) for decision, one in given.items()]
                yes, no = await at_once([partial(result_or_error, call) for call in calls])
                assert isinstance(yes, Misuse) is not isinstance(no, Misuse), f"yes and no at once: {yes!r}, {no!r}"
            found = (await store.after(process))["r"].questions
            check_same("what was found", len(found), 10)

    @clause("C15")
    async def test_c15_what_does_not_wait_has_no_answer(self) -> None:
        """An unknown question, a closed one, and an answer that is not a decision are refused."""
        async with self.store() as store:
            process = await store.process()
            session = await process.begin()
            for number in (1, 2):
                session.keep_open(question_of("r", number))
            session.close_question(question_of("r", 2).id)
            await session.written()
            for unknown in ("unknown", question_of("r", 2).id):
                with pytest.raises(NoQuestion):
                    await process.do("answer", unknown, YES)
            for no_answer in (None, "approve"):
                found = await result_or_error(partial(process.do, "answer", question_of("r", 1).id, no_answer))
                assert isinstance(found, ValueError), f"it was answered {no_answer!r}, and that gave {found!r}"
            check_same("the questions that wait", list(await process.do("pending")), [question_of("r", 1)])

    @clause("C14", "C15")
    async def test_c15_a_question_is_asked_and_answered_while_its_run_lives(self) -> None:
        """The answer belongs to exactly this question, and comes with the recovered run too."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await process.begin()
            first, second = question_of("r", 1), question_of("r", 2)
            for one in (first, second, first):
                await process.do("ask", one)
            check_same("the questions that wait", list(await other.do("pending")), [first, second])
            check_same("the answer", await process.do("answer_to", first), None)
            await other.do("answer", first.id, YES)
            await process.do("ask", first)
            check_same("the answer", await process.do("answer_to", first), YES)
            check_same("the answer", await process.do("answer_to", second), None)
            assert await process.do("answer_to", replace(first, subject="mail(2)")) is None, "it was about another mail"
            with pytest.raises(RunNotFound):
                await process.do("ask", question_of("unknown"))
            found = (await store.after(process))["r"].questions
            check_same(
                "the questions, with their answers",
                [(one.question, one.decision) for one in found],
                [(first, YES), (second, None)],
            )

    # ------------------------------------------------------------------ deferred

    @clause("C14", "C15")
    async def test_c14_a_deferred_question_waits_behind_the_others(self) -> None:
        """A deferred question has no decision yet, and can get one."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            asked = [question_of("r", number) for number in (1, 2, 3)]
            for one in asked:
                session.keep_open(one)
            await session.written()
            await other.do("answer", asked[1].id, LATER)
            await other.do("answer", asked[0].id, LATER)
            check_same("the questions that wait", list(await process.do("pending")), [asked[2], asked[1], asked[0]])
            await other.do("answer", asked[1].id, YES)
            check_same("the questions that wait", list(await other.do("pending", "r")), [asked[2], asked[0]])
            with pytest.raises(Misuse):
                await process.do("answer", asked[1].id, LATER)
            found = (await store.after(process))["r"].questions
            decided = {one.question: one.decision for one in found}
            check_same("the questions, with their answers", decided, {asked[0]: None, asked[1]: YES, asked[2]: None})

    @clause("C15")
    async def test_c15_a_run_that_waits_is_told_that_its_question_was_deferred(self) -> None:
        """Until the run asks again: then the question is back in its place."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            await process.begin()
            first, second = question_of("r", 1), question_of("r", 2)
            for one in (first, second):
                await process.do("ask", one)
            await other.do("answer", first.id, LATER)
            check_same("the answer", await process.do("answer_to", first), LATER)
            check_same("the answer", await process.do("answer_to", second), None)
            await process.do("ask", first)
            check_same("the answer", await process.do("answer_to", first), None)
            check_same("the questions that wait", list(await other.do("pending")), [first, second])
            await other.do("answer", first.id, YES)
            check_same("the answer", await process.do("answer_to", first), YES)

    # ------------------------------------------------------------------ ends

    @clause("C14", "C15", "C16")
    async def test_c16_who_has_read_it_sees_what_another_process_wrote_since(self) -> None:
        """The questions, their answers and the result, which is there when the process has died."""
        async with self.store() as store:
            process, reader = await store.process(), await store.process()
            session, question = await process.begin(), question_of("r")
            check_same("the questions that wait", list(await reader.do("pending")), [])
            check_same("the result", await reader.do("result", "r"), None)
            session.keep_open(question)
            await session.written()
            check_same("the answer", await reader.do("answer_to", question), None)
            check_same("the questions that wait", list(await reader.do("pending")), [question])
            await process.do("answer", question.id, YES)
            check_same("the answer", await reader.do("answer_to", question), YES)
            check_same("the questions that wait", list(await reader.do("pending")), [])
            session.end(result_of("r", TeamStatus.COMPLETED))
            await session.written()
            await process.die()
            check_same("the result", await reader.do("result", "r"), result_of("r", TeamStatus.COMPLETED))

    @clause("C16")
    async def test_c16_the_result_is_there_once_the_session_has_ended(self) -> None:
        """For every status, in every process; before the end there is no result."""
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            for status in TeamStatus:
                session = await process.begin(status)
                check_same("the result", await other.do("result", status), None)
                session.end(result_of(status, status))
                await session.written()
            await process.die()
            for status in TeamStatus:
                found = await other.do("result", status)
                assert found == result_of(status, status), f"a run ended {status}, and its result is {found!r:.300}"
            with pytest.raises(RunNotFound):
                await other.do("result", "unknown")

    @clause("C16")
    async def test_c16_a_suspended_run_ends_with_its_last_session(self) -> None:
        async with self.store() as store:
            process, other = await store.process(), await store.process()
            session = await process.begin()
            session.end(result_of("r", TeamStatus.SUSPENDED))
            await session.written()
            again = (await other.recover())["r"].journal
            again.end(result_of("r", TeamStatus.COMPLETED))
            await again.written()
            found = await process.do("result", "r")
            assert found == result_of("r", TeamStatus.COMPLETED), f"it was completed, and its result is {found!r:.300}"
