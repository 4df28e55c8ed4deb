"""Triage of a mail box file: code sorts, a small model words a reply, and a person approves each reply.

    python -m kairo_team.examples.mail_triage                                    # eight mails; asks at the terminal
    python -m kairo_team.examples.mail_triage inbox.mbox --out drafts.mbox       # approved replies, none is sent
    python -m kairo_team.examples.mail_triage inbox.mbox --journal runs.db       # again after Ctrl-C: resumes

Personal data is redacted before a mail becomes part of the run. A mail that gives its reader orders is held: no model
reads it. Words decide the category of a mail; if words of two categories occur, a `sort-N` task asks the model. In
`draft-N` the model words one sentence, which code holds to the subject of the mail. `reply-N` is the whole reply, and
only a person may accept it. `inbox` lists all mails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mailbox
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from pydantic import BaseModel, Field

import kairo_team as kt
from kairo_team.contracts import ChatModel, HumanGate
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.errors import Misuse
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.governance import GuardrailAction, GuardrailChain, GuardrailContext, GuardrailPhase, ToolOutput
from kairo_team.governance.policies import InjectionScreen, PiiRedactor

DATA: Final = Path(__file__).with_name("mail_triage_data") / "inbox.mbox"
LONGEST: Final = 600
"""Most characters of a mail that the model reads."""
WORDS: Final = {
    "fault": r"broken|does not (open|start|work)|out of order|leak",
    "billing": r"invoice|charged|payment|refund",
    "order": r"deliver|order(ed)? \d+|shipment",
    "news": r"newsletter|unsubscribe",
}
"""Patterns of each category's words."""
HASTE: Final = r"\btoday\b|at once|immediately"
PRIORITIES: Final = ("high", "normal", "low")
ANSWERS: Final = {
    "fault": "A technician will call you. Please leave everything as it is until then.",
    "billing": "We look into the account and write to you within three days.",
    "order": "We check the order and confirm the change to you.",
}
"""The second sentence of a reply, for each category that gets one."""
DRAFTED: Final = [
    ("The boiler is out of order again.", "No hot water", 'Thank you for your mail on "No hot water".'),
    ("Please send 12 more to [EMAIL].", "Shipment 77", 'Thank you for your mail on "Shipment 77".'),
    ("It was paid in May, see line 4.", "Payment of 310", 'Thank you for your mail on "Payment of 310".'),
    ("The oven is cold.", "The oven does not work", 'Thank you for your mail on "The oven does not work".'),
]
SORTED: Final = [
    ("The pump leaks, and the invoice is paid.", "The pump leaks", "fault"),
    ("The door that was delivered is dear.", "Payment of the door", "billing"),
    ("The invoice says 8 chairs.", "Delivery of chairs", "order"),
]
ASK: Final = "Mail: {text}\nSubject: {subject}"
DRAFT: Final = "\n\n".join(
    ["You write the first sentence of a reply. Examples:"]
    + [f"{ASK.format(text=text, subject=about)}\n{json.dumps({'sentence': said})}" for text, about, said in DRAFTED]
)
SORT: Final = "\n\n".join(
    ["You sort mails. Examples:"]
    + [f"{ASK.format(text=text, subject=about)}\n{json.dumps({'category': kind})}" for text, about, kind in SORTED]
)


class Kind(BaseModel):
    """The sorter's reply. It can say nothing else, whatever a mail asks for."""

    category: Literal["fault", "billing", "order", "news", "other"]


class Sentence(BaseModel):
    """The drafter's reply."""

    sentence: str = Field(pattern=r"^Thank you [^\n]{1,140}\.$")


@dataclass(frozen=True)
class Mail:
    """A mail as the team sees it, without its sender and without the personal data that the policy finds."""

    subject: str
    text: str
    held: bool = False
    """Whether the mail gives its reader orders; then no model reads it."""

    @property
    def kinds(self) -> list[str]:
        """The categories whose words occur in the mail."""
        return [
            kind for kind, words in WORDS.items() if re.search(words, f"{self.subject}\n{self.text}", re.IGNORECASE)
        ]


# ---------------------------------------------------------------- the mail box


def read_box(path: Path) -> list[EmailMessage]:
    """Return the mails of an mbox file; raises `Misuse` without a file or a mail."""
    if not path.is_file():
        raise Misuse(f"there is no file {str(path)!r}: name an mbox file")
    parser = BytesParser(policy=default)
    box = mailbox.mbox(path, create=False)
    mails = [parser.parsebytes(box.get_bytes(key)) for key in box.iterkeys()]
    box.close()
    if not mails:
        raise Misuse(f"{str(path)!r} has no mail: is it an mbox file?")
    return [mail for mail in mails if isinstance(mail, EmailMessage)]


def body(message: EmailMessage) -> str:
    """Return the text of a mail in one line; if it has only HTML, without the tags."""
    part = message.get_body(("plain", "html"))
    text = str(part.get_content()) if part is not None else ""
    if part is not None and part.get_content_subtype() == "html":
        text = re.sub(r"<[^>]*>", " ", text)
    return " ".join(text.split())


async def read_mails(messages: list[EmailMessage]) -> list[Mail]:
    """Return the mails as the policies leave them: without personal data, and held if they give orders."""
    return [await _guarded(" ".join(str(one["subject"] or "no subject").split()), body(one)) for one in messages]


async def _guarded(subject: str, text: str) -> Mail:
    found = ToolOutput("mailbox", {"subject": subject, "text": text})
    context = GuardrailContext(GuardrailPhase.POST_TOOL, "reader", "mailbox", found)
    clean = await GuardrailChain([PiiRedactor()]).evaluate(context)
    screened = await GuardrailChain([InjectionScreen(action="deny")]).evaluate(context)
    mail = json.loads(clean.payload.text)
    return Mail(mail["subject"], mail["text"][:LONGEST], held=screened.action is GuardrailAction.DENY)


# ---------------------------------------------------------------- the members of plain code


def sort_by_rule(assignment: kt.Assignment) -> str:
    """Take the first category whose words are in the mail."""
    return json.dumps({"category": assignment.inputs["kinds"][0]})


def draft_by_rule(assignment: kt.Assignment) -> str:
    """Write the sentence from the subject."""
    return Sentence(sentence=f'Thank you for your mail on "{assignment.inputs["subject"]}".').model_dump_json()


def reply(assignment: kt.Assignment) -> str:
    """Put the reply together: the drafted sentence, and the sentence for its category."""
    (said,) = [
        made.data_as(Sentence).sentence for name, made in assignment.upstream.items() if name.startswith("draft-")
    ]
    return f"{said}\n\n{ANSWERS[_category(assignment)]}\n\nThe desk"


def inbox(assignment: kt.Assignment) -> str:
    """List the mails, the most urgent first."""
    lines: list[tuple[int, str]] = []
    for number, one in assignment.inputs["mails"].items():
        made = assignment.upstream.get(f"sort-{number}")
        category = made.data_as(Kind).category if made else (one["kinds"] or ["other"])[0]
        state = "held" if one["held"] else "reply approved" if f"reply-{number}" in assignment.upstream else "no reply"
        priority = _priority(category, one["text"], held=one["held"])
        lines.append((priority, f"{PRIORITIES[priority]:7} {category:8} {state:14} {number}. {one['subject']}"))
    return "\n".join(line for _, line in sorted(lines, key=lambda pair: pair[0]))


def _priority(category: str, text: str, *, held: bool) -> int:
    """Return the place in `PRIORITIES`; the words of a held mail do not count."""
    if not held and category == "fault" and re.search(HASTE, text, re.IGNORECASE):
        return 0
    return 1 if held or category in ANSWERS else 2


def _category(assignment: kt.Assignment) -> str:
    made = [made for name, made in assignment.upstream.items() if name.startswith("sort-")]
    return made[0].data_as(Kind).category if made else str(assignment.inputs["kinds"][0])


# ---------------------------------------------------------------- the team


def has_words(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Take a category whose words are in the mail."""
    category, kinds = artifact.data_as(Kind).category, context.task.inputs["kinds"]
    return category in kinds or kt.Finding(
        "words", observed=f"nothing in the mail says {category}", expected=f"Say {' or '.join(kinds)}."
    )


def says_the_subject(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Name the subject, as it is."""
    subject = context.task.inputs["subject"]
    return subject in artifact.data_as(Sentence).sentence or kt.Finding(
        "subject", observed="the subject is not named", expected=f'Keep "{subject}".'
    )


def adds_nothing(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | kt.Finding:
    """Promise nothing, and say nothing that the mail asks you to say."""
    rest = artifact.data_as(Sentence).sentence.replace(context.task.inputs["subject"], "", 1)
    added = sorted(set(re.findall(r"\w+", rest)) - {"Thank", "you", "for", "your", "mail", "on"})
    if not added:
        return True
    return kt.Finding("added", observed=f"it adds {', '.join(added)}", expected=f"Leave out {', '.join(added)}.")


def settings(assignment: kt.Assignment) -> dict[str, Any]:
    """Raise the temperature at each revision."""
    return {
        "temperature": (0, 0.4, 0.7, 0.7)[min(assignment.attempt, 4) - 1],
        "seed": assignment.attempt,
        "max_tokens": 160,
    }


def rubric(**checks: Any) -> Rubric:
    """Make a rubric of functions; each criterion is the function's docstring."""
    return Rubric([Criterion(name, check.__doc__ or name, check) for name, check in checks.items()])


def make_team(model: str | ChatModel = "local:smollm2") -> kt.Team:
    """Make the sorter and the drafter with their seniors, and the members of plain code."""
    task = "{% for finding in assignment.findings %}{{ finding.expected }} {% endfor %}\n\n" + ASK.format(
        text="{{ assignment.inputs.text }}", subject="{{ assignment.inputs.subject }}"
    )

    def asks(role: kt.Role, senior: Any) -> kt.Member:
        agent = kt.MiniAgent(model, max_turns=1, settings=settings)
        return kt.Member(role, agent, senior=kt.Member(f"{role.id}-senior", senior))

    return kt.Team(
        "mail-triage",
        [
            asks(kt.Role("sorter", SORT), sort_by_rule),
            asks(kt.Role("drafter", DRAFT), draft_by_rule),
            kt.Member("editor", reply),
            kt.Member("clerk", inbox),
        ],
        coordinator=ExpertTeamCoordinator(templates={"system": "{{ role.instructions }}", "task": task}),
        evaluators={
            "kind": rubric(words=has_words),
            "sentence": rubric(subject=says_the_subject, added=adds_nothing),
            "person": Rubric([Criterion("approved", "A person approves the reply.", by="human")]),
        },
        output_types={"kind": Kind, "sentence": Sentence},
        guardrails=[PiiRedactor(), InjectionScreen(action="deny")],
    )


def make_request(mails: list[Mail]) -> kt.TeamExecutionRequest:
    """Ask for the triage of these mails; the run's id follows from them."""
    tasks = [task for number, mail in enumerate(mails, 1) for task in _tasks(number, mail)]
    inputs = {str(number): {**vars(mail), "kinds": mail.kinds} for number, mail in enumerate(mails, 1)}
    ends = [task.id for task in tasks if not task.id.startswith("draft-")]
    last = kt.Task("inbox", "List the mails.", role="clerk", inputs={"mails": inputs}, depends_on=ends, needs=0)
    config = kt.TeamConfig(budget=kt.Budget(tokens=4_000 * len(mails), seconds=600))
    name = f"mails-{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:8]}"
    return kt.TeamExecutionRequest("Sort the mails.", plan=kt.TaskGraph([*tasks, last]), config=config, run_id=name)


def _tasks(number: int, mail: Mail) -> Iterator[kt.Task]:
    """Yield the tasks of one mail: its category if words do not decide it, the sentence, the reply."""
    inputs: dict[str, Any] = {**vars(mail), "kinds": mail.kinds}
    sort, draft = f"sort-{number}", f"draft-{number}"
    if mail.held or not {*mail.kinds} & {*ANSWERS}:
        return
    before: list[str] = []
    when: dict[str, Any] | None = None
    if len(mail.kinds) > 1:
        yield kt.Task(sort, "Sort it.", role="sorter", inputs=inputs, evaluator="kind", output_type="kind")
        before, when = [sort], {"from": sort, "field": "category", "one_of": [*ANSWERS]}
    yield kt.Task(
        draft, "Begin a reply.", role="drafter", inputs=inputs, evaluator="sentence", output_type="sentence", when=when
    )
    reply_to = {"kinds": mail.kinds}
    yield kt.Task(
        f"reply-{number}",
        f"Reply to {number}.",
        role="editor",
        inputs=reply_to,
        depends_on=[draft, *before],
        evaluator="person",
    )


def __getattr__(name: str) -> Any:
    """Return the request for `kairo run` and `kairo graph`; importing the file reads no mail."""
    if name == "request":
        return make_request(anyio.run(read_mails, read_box(DATA)))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


team = make_team()


# ---------------------------------------------------------------- the program


async def work(messages: list[EmailMessage], model: str, runtime: kt.Runtime) -> kt.TeamResult:
    """Sort mails; resume the run if the runtime's journal has it."""
    return await kt.run(make_team(model), make_request(await read_mails(messages)), resume=True, runtime=runtime)


def write_drafts(result: kt.TeamResult, messages: list[EmailMessage], path: Path) -> int:
    """Write the approved replies into an mbox file, each to the sender of its mail; return how many."""
    accepted = {one.task_id: one.artifact for one in result.outcomes if one.status is kt.TaskStatus.COMPLETED}
    box = mailbox.mbox(path)
    box.clear()
    for number, message in enumerate(messages, 1):
        if (artifact := accepted.get(f"reply-{number}")) is not None:
            draft = EmailMessage()
            draft["To"], draft["Subject"] = message["Reply-To"] or message["From"], f"Re: {message['Subject']}"
            draft.set_content(artifact.text)
            box.add(draft)
    written = len(box)
    box.close()
    return written


def approve(question: kt.HumanRequest) -> bool:
    """Approve the replies, but nothing that the rubric rejects."""
    return str(question.task_id).startswith("reply-")


def summary(result: kt.TeamResult) -> str:
    """Return the list of mails, which are held and why, and the cost."""
    lines = [result.output or f"no list: {result.error or 'replies wait for a person'}", ""]
    lines += [f"{one.task_id:8} {one.status:9} {one.member or '':14} {one.attempts}" for one in result.outcomes]
    held = [f"{one.task_id}: {one.error}" for one in result.outcomes if one.error and one.attempts]
    return "\n".join([*(line.rstrip() for line in lines), *held, "", f"{result.status.value.upper()}, {result.usage}"])


def main(arguments: list[str] | None = None) -> int:
    """Sort the mails, ask the person, and print the list."""
    parser = argparse.ArgumentParser(description="Triage of a mail box file; a person approves each reply.")
    parser.add_argument("box", nargs="?", type=Path, default=DATA, help="an mbox file")
    parser.add_argument("--model", default="local:smollm2", help="the model that sorts and words")
    parser.add_argument("--out", type=Path, help="an mbox file for the approved replies; none is sent")
    parser.add_argument("--journal", type=Path, help="where the run is recorded; the same file resumes it")
    parser.add_argument("--approve", action="store_true", help="approve every reply without asking at the terminal")
    given = parser.parse_args(arguments)
    gate: HumanGate = kt.CallbackGate(approve) if given.approve else kt.ConsoleGate()
    runtime = kt.Runtime(journal=kt.SqliteJournal(given.journal) if given.journal else None, gate=gate)
    try:
        messages = read_box(given.box)
    except Misuse as error:
        parser.error(str(error))
    result = anyio.run(work, messages, given.model, runtime)
    if given.out:
        write_drafts(result, messages, given.out)
    print(summary(result))
    return 0 if result.status in (kt.TeamStatus.COMPLETED, kt.TeamStatus.DEGRADED) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; with --journal, the same command continues the run")
