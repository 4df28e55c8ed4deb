"""Checks on unified diffs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.checks.named_texts import Texts, named_texts
from kairo_team.evaluators.checks.patching import PatchError, apply_patch

if TYPE_CHECKING:
    from kairo_team.results import Artifact
    from kairo_team.verdicts import EvaluationContext


@by_name
def diff_applies(files: Texts = None) -> NamedCheck:
    """Make a check that the text is a unified diff that applies to the files.

    `files` are texts by path, or a function of the context that returns them; None takes the artifacts of the task's
    dependencies, by task id. Paths may begin with `a/` and `b/`. The old lines of a hunk must be in the file unchanged,
    at the line it names or up to 200 lines away. A fence of ``` around the diff is skipped.
    """
    find = named_texts("diff_applies", files)

    def check(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        try:
            apply_patch(artifact.text, find(context))
        except PatchError as error:
            return str(error)
        return True

    return NamedCheck("diff_applies(...)", check, source=files, in_place=False, wants_context=True)
