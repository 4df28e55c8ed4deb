"""Files of artifacts, as the console lists, shows and sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.views.report_tasks import PICTURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kairo_team.files import File

MOST_FILES: Final = 50
"""Most files that a page lists; those that were made last are kept."""
MOST_OF_A_PICTURE: Final = 5_000_000
"""Most bytes of a file that a page shows; a larger one can be saved."""


class MadeFile(NamedTuple):
    """A file of an artifact."""

    task_id: str
    attempt: int
    file: File
    is_kept: bool = True
    """Whether its content is kept."""

    @property
    def is_shown(self) -> bool:
        """Whether a page shows it as an image."""
        return self.is_kept and self.file.media_type in PICTURES and 0 < (self.file.size or 0) <= MOST_OF_A_PICTURE


def last_files(made: Iterable[MadeFile]) -> tuple[Sequence[MadeFile], int]:
    """Return the files to list, each content of a task once, and how many others there are."""
    each = [*{(one.task_id, one.file): one for one in made}.values()]
    return each[-MOST_FILES:], max(0, len(each) - MOST_FILES)
