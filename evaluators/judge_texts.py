"""The texts of one question to a judge, within one budget of characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.evaluators.artifact_view import ArtifactView, as_data, fitted, view_of
from kairo_team.evaluators.criterion import ON
from kairo_team.evaluators.transcripts import as_artifact
from kairo_team.files import File, unique

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.evaluators.criterion import Criterion
    from kairo_team.verdicts import EvaluationContext


BATCH: Final = 4
"""Most criteria in one question."""
WORK: Final = "the artifact"
FIRST: Final = "the first work"
SECOND: Final = "the second work"


class _Given(NamedTuple):
    """One text, before it is cut."""

    key: tuple[str, object]
    text: str
    name: str
    """What a verdict calls it."""
    only: tuple[str, ...] | None = None
    """Ids of the criteria that rest on it; None: all do."""


@dataclass(frozen=True, slots=True)
class JudgeTexts:
    """The texts that a judge is shown, each as a JSON string."""

    work: ArtifactView
    second: ArtifactView
    """The second work of a pair; empty if one work is judged."""
    task: str
    goal: str
    """"" where it is the task."""
    reference: str
    """"" where no criterion compares with it."""
    upstream: Mapping[str, str]
    files: Mapping[File, str]
    """The contents of files that are texts, as they are."""
    examples: Mapping[tuple[str, int], str]
    """Examples by their criterion's id and their place there."""
    cut: Mapping[str, tuple[str, ...] | None]
    """The texts whose end is not shown, with the ids of the criteria that rest on each; None: all do."""

    def cut_for(self, criterion: Criterion) -> list[str]:
        """Return the texts whose end is not shown and on which a criterion rests."""
        return [name for name, only in self.cut.items() if only is None or criterion.id in only]

    @property
    def all(self) -> str:
        """All texts in one."""
        works = [self.work.text, self.work.plain, self.second.text, self.second.plain]
        others = [*self.upstream.values(), *self.files.values(), *self.examples.values()]
        return "\n".join([*works, self.task, self.goal, self.reference, *others])


def texts_of(context: EvaluationContext, criteria: Sequence[Criterion], second: Artifact | None = None) -> JudgeTexts:
    """Return the texts for a question about some criteria on the artifact of the context.

    Where they are longer than `MAX_SHOWN` together, the longest are cut; `second` is the second work of a pair.
    """
    given = list(_texts_of_context(context, criteria, second))
    cut = dict(zip([one.key for one in given], fitted([one.text for one in given]), strict=True))
    short = {one.name: one.only for one in given if len(cut[one.key]) < len(one.text)}
    data = {key: as_data(text) for key, text in cut.items() if key[0] not in ("work", "file")}
    return JudgeTexts(
        view_of(cut["work", 1], whole=short.keys().isdisjoint({WORK, FIRST})),  # `FIRST` in a pair
        view_of(cut.get(("work", 2), ""), whole=SECOND not in short),
        data["task", ""],
        data.get(("goal", ""), ""),
        data.get(("reference", ""), ""),
        {str(name): text for (kind, name), text in data.items() if kind == "upstream"},
        {name: text for (kind, name), text in cut.items() if kind == "file" and isinstance(name, File)},
        {name: text for (kind, name), text in data.items() if kind == "example" and isinstance(name, tuple)},
        short,
    )


def texts_not_shown(context: EvaluationContext, criteria: Sequence[Criterion]) -> list[str]:
    """Return the texts whose end a judge is not shown when it is asked about some criteria, `BATCH` at a time."""
    cut: dict[str, None] = {}
    for on in ON:
        asked = [criterion for criterion in criteria if criterion.on == on]
        about = of_conversation(context) if asked and on == "transcript" else context
        for first in range(0, len(asked), BATCH):
            cut |= dict.fromkeys(texts_of(about, asked[first : first + BATCH]).cut)
    return [*cut]


def of_conversation(context: EvaluationContext) -> EvaluationContext:
    """Return the context of a review of the member's conversation."""
    return replace(context, artifact=as_artifact(context.transcript))


def _texts_of_context(
    context: EvaluationContext, criteria: Sequence[Criterion], second: Artifact | None
) -> Iterable[_Given]:
    task, goal = context.task, context.goal
    yield _Given(("work", 1), context.artifact.text, WORK if second is None else FIRST)
    if second is not None:
        yield _Given(("work", 2), second.text, SECOND)
    yield _Given(("task", ""), task.description, "the task")
    if goal and goal != task.description:  # shown once, because characters are limited
        yield _Given(("goal", ""), goal, "the goal")
    comparing = tuple(criterion.id for criterion in criteria if criterion.reference)
    if comparing and task.reference is not None and second is None:
        yield _Given(("reference", ""), task.reference, "the reference answer", comparing)
    for task_id, artifact in context.upstream.items():
        yield _Given(("upstream", task_id), artifact.text, f"the result of {task_id!r}")
    for file in unique([*context.artifact.files, *(second.files if second else ()), *files_given(context)]):
        text = text_of(file)
        if text is not None:
            yield _Given(("file", file), text, "a file")
    for criterion in criteria:
        for place, example in enumerate(criterion.examples):
            name = f"an example of {criterion.id!r}"
            yield _Given(("example", (criterion.id, place)), example.text, name, (criterion.id,))


def files_given(context: EvaluationContext) -> tuple[File, ...]:
    """Return the files that the member of a work was given."""
    return unique([*context.files, *(file for one in context.upstream.values() for file in one.files)])


def text_of(file: File) -> str | None:
    """Return the text of a file that is one; None for any other."""
    try:
        return file.data.decode() if file.is_text and file.data is not None else None
    except UnicodeDecodeError:
        return None
